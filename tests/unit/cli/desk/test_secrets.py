"""Values of Secrets in files are not shown, and endless files are not read."""

import base64
import os
from pathlib import Path

import pytest

from tests.linux import linux

TOKEN = "hunter2-hunter2"
RULE = """
- name: r
  match: {any: [{resources: {kinds: [Secret]}}]}
  mutate:
    targets: [{apiVersion: v1, kind: ConfigMap, namespace: shop, name: t}]
    patchStrategicMerge:
      data: {copy: "{{ %s }}"}
"""


def _secret_rule(policy):
    return policy(RULE % "base64_decode(request.object.data.x)")


def _secret_files(desk):
    encoded = base64.b64encode(TOKEN.encode()).decode()
    secret = desk.write(
        "secret.yaml",
        f"""\
        apiVersion: v1
        kind: Secret
        metadata: {{name: s, namespace: shop}}
        data: {{x: {encoded}}}
        """,
    )
    target = desk.write(
        "target.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: t, namespace: shop}}"
    )
    return ("-r", secret, "-t", target), encoded


def test_a_diff_shows_no_content_of_a_secret_unless_asked(desk, policy):
    files, encoded = _secret_files(desk)
    done = desk.run("apply", _secret_rule(policy), *files)
    assert done.exit_code == 0
    assert TOKEN not in done.output
    assert encoded not in done.output
    assert "+  copy: '***'" in done.output or '+  copy: "***"' in done.output
    assert TOKEN in desk.run("apply", _secret_rule(policy), *files, "--show-secrets").output


def test_yaml_output_contains_the_content_of_secrets(desk, policy):
    files, _ = _secret_files(desk)
    assert TOKEN in desk.run("apply", _secret_rule(policy), *files, "-o", "yaml").stdout


def test_a_message_shows_no_content_of_a_secret(desk, policy):
    files, _ = _secret_files(desk)
    wrong = policy(RULE % "parse_json(base64_decode(request.object.data.x))", "wrong")
    done = desk.run("apply", wrong, *files)
    assert done.exit_code == 1
    assert TOKEN not in done.output


@pytest.mark.parametrize("words", [["lint"], ["apply", "-r", "x.yaml"], ["explain"]])
@pytest.mark.parametrize(
    "before",
    ["", "/dev/fd/../../..", pytest.param("/proc/self/fd/../../../..", marks=linux)],
)
def test_a_named_pipe_without_a_writer_is_refused(desk, before, words):
    os.mkfifo(desk.folder / "pipe.yaml")
    desk.write("x.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: t}}")
    done = desk.run(*words, f"{before}{desk.folder}/pipe.yaml")
    assert done.exit_code == 2
    assert "pipe.yaml: not a regular file" in done.output


def test_a_pipe_that_a_shell_has_opened_is_read(desk, policy):
    files, _ = _secret_files(desk)
    reading, writing = os.pipe()
    os.write(writing, Path(files[1]).read_bytes())
    os.close(writing)
    done = desk.run("apply", _secret_rule(policy), "-r", f"/dev/fd/{reading}", *files[2:])
    os.close(reading)
    assert done.exit_code == 0, done.output
