"""Bad input on the command line: one line with place and cure, an exit code, bounded costs."""

import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.desk.files import MAX_FILE, MAX_OBJECT
from reconciler.cli.explain.options import MAX_TRIGGERS
from reconciler.cli.main import retrofit
from reconciler.languages.jmespath import braces

POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: Secret, namespace: a, name: s}]
      patchStrategicMerge: {metadata: {labels: {x: "{{ request.object.data.a }}"}}}
"""
OBJECT = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: a}
data: {a: b}
"""
# ** within a name is no pattern before Python 3.13; from then on it is one.
WILD = "no file fits" if sys.version_info >= (3, 13) else "cannot be read:"
TARGET = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\n"
TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [cm.yaml]
targetResources: [secret.yaml]
results: [{policy: p, rule: r, kind: Secret, resources: [s], result: pass}]
"""

FULL = "Error: standard output: cannot be written: No space left on device\n"
DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1beta1
kind: CustomResourceDefinition
metadata: {name: foos.x.io}
spec: {group: x.io, version: v1, names: {kind: Foo}}
"""

AS_POLICY = [
    ["apply", "FILE", "-r", "cm.yaml"],
    ["lint", "FILE"],
    ["explain", "FILE"],
]
AS_OBJECT = [
    ["apply", "policy.yaml", "-r", "FILE"],
    ["explain", "policy.yaml", "--trigger", "FILE"],
    ["explain", "policy.yaml", "--trigger", "cm.yaml", "--target", "FILE"],
]
AS_TEST = [["test", "-f", "FILE", "."]]
AS_JSON = [["jp", "query", "-i", "FILE", "a"]]
AS_VALUES = [
    ["apply", "policy.yaml", "-r", "cm.yaml", "-f", "FILE"],
    ["explain", "policy.yaml", "--trigger", "cm.yaml", "-f", "FILE"],
]
NAMED = [*AS_POLICY, *AS_OBJECT, *AS_JSON, *AS_VALUES]
ANY = [*NAMED, *AS_TEST]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("policy.yaml", POLICY),
        ("cm.yaml", OBJECT),
        ("secret.yaml", TARGET),
        ("kyverno-test.yaml", TEST),
    ):
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


def run(*words: str, stdin: str | None = None) -> Result:
    done = CliRunner().invoke(retrofit, list(words), input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def refused(words: list[str], name: str) -> str:
    """Return the error message about the file, which must be a single line."""
    done = run(*(name if word == "FILE" else word for word in words))
    if words[0] == "lint" and done.exit_code == 1:
        # To `lint` an unreadable file is a finding like any other, always with a position.
        place, reason = " ".join(done.stdout.split()).split(": error [unreadable] ")
        return f"{place.removesuffix(':1:1')}: {reason}"
    # To `test` the file is one of several.
    assert done.exit_code == (1 if words[0] == "test" else 2)
    # `test` reports the file in its table, since other tests may be fine.
    found = done.stdout if words[0] == "test" else done.stderr
    line, *rest = found.splitlines()
    assert rest == (
        ["0 passed, 0 failed, 0 excluded, 0 not run, 1 broken test"] if words[0] == "test" else []
    )
    return line.removeprefix("Error: ")


@pytest.mark.parametrize("words", ANY, ids=" ".join)
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("b.yaml", b"a: 1\nb: [c\n", "b.yaml:3:1: is not YAML: did not find expected"),
        ("b.yaml", b"a: 1\n\tb: 2\n", "b.yaml:2:1: is not YAML: found a tab"),
        ("b.yaml", b"a: {{ b }}\n", "b.yaml:1:5: is not YAML: a map or list as a key; put {{ }}"),
        ("b.yaml", b"[" * 100_000, "b.yaml:1:201: is not YAML: nested deeper than 200 levels"),
        ("b.yaml", b"a: *b\n", "b.yaml:1:4: is not YAML: nothing before has the anchor b"),
        ("b.yaml", b"a: \xff\n", "b.yaml:1:4: is not UTF-8: save it as UTF-8"),
        ("b.yaml", "é: 1\né: é".encode() + b"\xff\n", "b.yaml:2:5: is not UTF-8: save"),
        ("b.yaml", b"a: 1\nb: x\0y\n", "b.yaml:2:5: is not YAML: control characters are not"),
        ("b.json", b'{"a": }', "b.json:1:7: is not JSON: "),
        ("b.json", b'{"a":' * 100_000, "b.json:1:"),
    ],
)
def test_invalid_yaml_and_json_are_reported_with_their_place(
    words: list[str], name: str, content: bytes, said: str
) -> None:
    Path(name).write_bytes(content)
    assert refused(words, name).startswith(said)


@pytest.mark.parametrize("words", [*NAMED, ["test", "FILE"], ["migrate", "FILE"]], ids=" ".join)
def test_an_empty_name_is_not_the_current_folder(words: list[str]) -> None:
    """A variable that is not set, in quotes, must not select all that lies around."""
    done = run(*("" if word == "FILE" else word for word in words))
    assert done.exit_code == 2
    assert done.stderr == "Error: the name of a file is empty\n"


@pytest.mark.parametrize(
    "words",
    [
        ["hooks", "list", ""],
        ["hooks", "run", "", "--event", "OnStartup"],
        ["hooks", "answer", "", "--review", "cm.yaml"],
        ["migrate", "policy.yaml", "-o", ""],
        ["preview", "policy.yaml", "--write-baseline", ""],
        ["test", ".", "-f", ""],
        ["dev", "status", "--dir", ""],
    ],
    ids=" ".join,
)
def test_an_empty_name_is_no_folder_either(words: list[str]) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert done.stderr == "Error: the name of a file is empty\n"


def test_an_empty_name_does_not_stand_for_all_rules() -> None:
    done = run("run", "p", "")
    assert done.exit_code == 2
    assert done.stderr == "Error: the name of the rule is empty; leave it out for all rules\n"


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
@pytest.mark.parametrize("leads_to", ["absent.yaml", "link.yaml"])
def test_a_link_that_leads_to_no_file_is_reported_as_one(words: list[str], leads_to: str) -> None:
    Path("link.yaml").symlink_to(leads_to)
    assert refused(words, "link.yaml") == "link.yaml: the link leads to no file"


@pytest.mark.parametrize("words", ANY, ids=" ".join)
def test_a_file_above_the_size_limit_is_refused(words: list[str]) -> None:
    with Path("big.yaml").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    assert refused(words, "big.yaml").startswith("big.yaml: it is larger than 100 MiB: ")


@pytest.mark.parametrize("words", [AS_POLICY[0], AS_POLICY[2], *AS_OBJECT], ids=" ".join)
def test_an_object_larger_than_a_cluster_accepts_is_refused(words: list[str]) -> None:
    head = (POLICY if words in AS_POLICY else OBJECT).replace(
        "metadata: {", "metadata: {x: y, ", 1
    )
    Path("big.yaml").write_text(head.replace("x: y", f"x: {'y' * MAX_OBJECT}"), encoding="utf-8")
    line = refused(words, "big.yaml")
    assert line.startswith("big.yaml:1: the C")
    assert line.endswith("has 3.0 MiB; no cluster takes an object of more than 3 MiB")


def test_jp_stops_at_a_second_document() -> None:
    # The rest is not valid YAML, but is never parsed.
    Path("two.yaml").write_text("a: 1\n---\nb: 2\n---\n" + "[" * 1000, encoding="utf-8")
    assert (
        refused(AS_JSON[0], "two.yaml") == "two.yaml:2: a second document; only one can be queried"
    )


def test_explain_refuses_more_triggers_than_its_limit() -> None:
    Path("many.yaml").write_text(f"{OBJECT}---\n" * (MAX_TRIGGERS + 1), encoding="utf-8")
    line = refused(AS_OBJECT[1], "many.yaml")
    assert line == "many.yaml: 101 objects found; at most 100 are explained"


def recursive(value: str) -> str:
    context = f"    context: [{{name: a, variable: {{value: '{{{{ {value} }}}}'}}}}]\n"
    rule = POLICY.replace("  - name: r\n", "  - name: r\n" + context)
    return rule.replace("request.object.data.a", "a")


@pytest.mark.parametrize(
    ("policy", "place", "said"),
    [
        (POLICY.replace("mutate:", "mutat:"), "spec.rules[0].mutat: ", "unknown field 'mutat'"),
        (recursive("a"), "spec.rules[0].context[0].variable.value: ", "a is not defined"),
        (
            POLICY.replace("{{ request.object.data.a }}", "{{ " * 100 + "a" + " }}" * 100),
            "spec.rules[0].mutate.patchStrategicMerge.metadata.labels.x: ",
            "variables are nested deeper than 64 levels",
        ),
        (
            POLICY.replace("data.a", f"data.a{' || a' * 50_000}"),
            "spec.rules[0].mutate.patchStrategicMerge.metadata.labels.x: ",
            "the expressions are longer than",
        ),
        (
            POLICY.replace("request.object.data.a", "regex_match('(', 'x')"),
            "spec.rules[0].mutate.patchStrategicMerge.metadata.labels.x: ",
            "",
        ),
    ],
)
def test_an_invalid_policy_is_reported_alike_by_all_commands(
    policy: str, place: str, said: str
) -> None:
    Path("bad.yaml").write_text(policy, encoding="utf-8")
    for words in (["explain", "bad.yaml", "--trigger", "cm.yaml", "--target", "secret.yaml"],
                  ["apply", "bad.yaml", "-r", "cm.yaml", "-t", "secret.yaml"]):  # fmt: skip
        done = run(*words)
        output = done.stdout + done.stderr
        assert said in output
        if said:
            assert done.exit_code == 1
            assert f"bad.yaml:1: ClusterPolicy p: {place}" in output
        else:
            assert "is not a regular expression" in output
    if said:
        linted = run("lint", "bad.yaml")
        assert linted.exit_code == 1
        flowing = " ".join(linted.stdout.split())
        assert f": error [invalid] p: {place}" in flowing
        Path("kyverno-test.yaml").write_text(
            TEST.replace("policy.yaml", "bad.yaml"), encoding="utf-8"
        )
        assert f"Invalid policy: bad.yaml:1: ClusterPolicy p: {place}" in run("test", ".").stdout


def test_a_value_that_looks_like_a_variable_is_data() -> None:
    text = OBJECT.replace("a: b", 'a: "{{ request.object.data.a }}"')
    Path("cm.yaml").write_text(text, encoding="utf-8")
    done = run("apply", "policy.yaml", "-r", "cm.yaml", "-t", "secret.yaml")
    assert done.exit_code == 0
    assert '+    x: "{{ request.object.data.a }}"' in done.stdout


@pytest.mark.parametrize(
    ("expression", "end"),
    [
        (f"regex_match('^(a+)+$', '{'a' * 5000}b')", "false"),
        (f"regex_match('^(a|aa)+$', '{'a' * 5000}b')", "false"),
        (f"pattern_match('{'*a' * 50}*b', '{'a' * 5000}')", "false"),
        ("regex_match('((a{100}){100}){100}', 'a')", "invalid repetition size: {100}"),
        ("random('((a{999}){999}){999}')", "work through more than 33554432 characters"),
    ],
)
def test_costly_patterns_and_expressions_end(expression: str, end: str) -> None:
    done = run("jp", "query", expression, stdin="{}")
    assert (done.stdout or done.stderr).strip().endswith(end)
    assert done.exit_code == (0 if end == "false" else 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[cm.yaml]", "[absent.yaml]"), "kyverno-test.yaml: absent.yaml: there is no such file"),
        (("[policy.yaml]", "[absent.yaml]"), "absent.yaml: there is no such file"),
        (("[cm.yaml]", "['*.none']"), "*.none: no file fits"),
        (("result: pass", "result: pass, patchedResources: no.yaml"), "no.yaml: there is no such"),
        (("resources: [s]", "resources: [none]"), "Not found: the test has no object none"),
        (("policy: p,", "policy: other,"), "Not found: the test has no policy other"),
        (("kind: Test", "kind: Test\nmore: 1"), "kyverno-test.yaml:1.more: unknown field 'more'"),
        (("result: pass", "result: good"), "kyverno-test.yaml:1: results[0].result: expected one"),
        (("result: pass", "results: pass"), "results[0].results: unknown field 'results'"),
    ],
)
def test_an_invalid_test_is_reported_in_one_line(change: tuple[str, str], said: str) -> None:
    Path("kyverno-test.yaml").write_text(TEST.replace(*change), encoding="utf-8")
    done = run("test", ".")
    assert done.exit_code == 1
    (line,) = (line for line in done.stdout.splitlines() if said in line)
    assert line


def test_a_rule_that_the_policy_does_not_have_is_reported() -> None:
    Path("kyverno-test.yaml").write_text(TEST.replace("rule: r,", "rule: s,"), encoding="utf-8")
    done = run("test", ".", "-o", "json")
    (row,) = json.loads(done.stdout)["tests"][0]["rows"]
    assert (row["end"], row["message"]) == ("Fail", "the policy p has no rule s")
    assert done.exit_code == 1


def test_an_empty_test_file_is_an_error() -> None:
    Path("empty.yaml").write_text("", encoding="utf-8")
    assert refused(AS_TEST[0], "empty.yaml") == "empty.yaml: no test found"


def test_parsing_time_is_linear_in_the_number_of_variables() -> None:
    def seconds(count: int) -> float:
        text = "{{ request.object.data.a }}" * count
        started = time.process_time()
        assert len(braces.find(text, passes=64)) == count
        return time.process_time() - started

    # If each variable searched the whole text, `long` would be a hundred times `short`. The best
    # of a few runs counts, as other work on the machine slows down single ones.
    long, short = (min(seconds(count) for _ in range(3)) for count in (20_000, 2_000))
    assert long < 40 * short


def test_parsing_a_long_expression_uses_limited_memory() -> None:
    text = "{{ a" + " || a" * 400_000 + " }}"
    tracemalloc.start()
    try:
        assert len(braces.find(text, passes=64)) == 1
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)
    finally:
        tracemalloc.stop()


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("", ""), "https://127.0.0.1:1 does not answer (connection refused); this is the"),
        (("https://127.0.0.1:1", "nowhere"), "nowhere, is invalid: write https://HOST:PORT"),
        (('server: "https://127.0.0.1:1"', ""), "kubeconfig kc.yaml: its cluster has no server: "),
        (("127.0.0.1:1", "127.0.0.1:99999"), "127.0.0.1:99999, is invalid: write https://HOST:PORT"),
        (("clusters: [", "clusters: 5 # ["), "kc.yaml: clusters: expected a list, got a number"),
        (("{token: x}", "5"), "kc.yaml: users[0].user: expected an object, got a number"),
        (("users: [", "users: [["), "kubeconfig kc.yaml: it is not YAML: line 6, column "),
        (
            ('{server: "https://127.0.0.1:1"}',
             '{server: "https://127.0.0.1:1", certificate-authority-data: "%%%"}'),
            "kc.yaml: clusters[0].cluster.certificate-authority-data: expected PEM in base64",
        ),
    ],
)  # fmt: skip
def test_an_unusable_cluster_or_kubeconfig_is_reported_in_one_line(
    change: tuple[str, str], said: str
) -> None:
    text = KUBECONFIG.replace(*change) if change[0] else KUBECONFIG
    Path("kc.yaml").write_text(text, encoding="utf-8")
    done = run("explain", "policy.yaml", "--kubeconfig", "kc.yaml", "--trigger", "cm.yaml")
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_kubeconfig_is_reported_in_one_line() -> None:
    done = run("explain", "policy.yaml", "--kubeconfig", "absent", "--trigger", "cm.yaml")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "there is no kubeconfig absent" in done.stderr


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("kind: [a, b]\n", ["lint", "FILE", "policy.yaml"], ""),
        (
            DEFINITION,
            ["apply", "policy.yaml", "-r", "FILE"],
            "CustomResourceDefinition foos.x.io: spec.versions: expected a list of versions",
        ),
        (
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\nnamespaces: [shop]\n",
            AS_VALUES[0],
            "FILE: namespaces[0]: expected a Kubernetes object, found text",
        ),
        (TEST + "values: {namespaces: [{}]}\n", AS_TEST[0], "namespaces[0]: the object has no"),
        (
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Context\nspec: [a]\n",
            ["apply", "policy.yaml", "-r", "cm.yaml", "--context-file", "FILE"],
            "FILE:1: spec: expected an object, got a list",
        ),
        (
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Context\nspec: {globalReference: [a]}\n",
            ["apply", "policy.yaml", "-r", "cm.yaml", "--context-file", "FILE"],
            "FILE:1: spec.globalReference: expected an object, got a list",
        ),
        (
            "",
            ["apply", "policy.yaml", "-r", "objects/**.yaml"],
            f"objects/**.yaml: {WILD}",
        ),
        (OBJECT, ["explain", "FILE"], "FILE: no policy found"),
        (
            OBJECT,
            ["apply", "policy.yaml", "-r", "cm.yaml", "--exception", "FILE"],
            "FILE: no PolicyException found",
        ),
        (
            OBJECT,
            ["explain", "policy.yaml", "--trigger", "cm.yaml", "--exception", "FILE"],
            "FILE: no PolicyException found",
        ),
        ("", ["explain", "n" * 300], f"{'n' * 300}: cannot be read: File name too long"),
        ("", ["preview", f"{'n' * 300}.yaml"], "File name too long"),
        (
            POLICY.replace("{name: p}", "5"),
            ["migrate", "FILE"],
            "1 object to move",
        ),
        (
            POLICY.replace("{name: p}", "{name: p, annotations: 1.5}"),
            ["migrate", "FILE"],
            "1 object to move",
        ),
    ],
)
def test_malformed_input_is_reported_in_one_line(text: str, words: list[str], said: str) -> None:
    Path("FILE").write_text(text)
    done = run(*words)
    assert said in done.output


def test_output_that_cannot_be_written_is_reported_in_one_line() -> None:
    command = [sys.executable, "-m", "reconciler.cli.main"]
    apply = [*command, "apply", "policy.yaml", "-r", "cm.yaml", "-t", "secret.yaml", "-o", "json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(apply, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    counts = "1 object read as trigger: 1 change, 0 errors\n"
    assert (done.returncode, done.stderr.removeprefix(counts)) == (2, FULL)


@pytest.mark.parametrize("words", [["--help"], ["apply", "--help"], ["--version"]], ids=" ".join)
def test_help_that_cannot_be_written_is_reported_in_one_line(words: list[str]) -> None:
    command = [sys.executable, "-m", "reconciler.cli.main", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, FULL)


def test_messages_that_cannot_be_written_are_no_finding() -> None:
    command = [sys.executable, "-m", "reconciler.cli.main", "lint", "policy.yaml"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ("stdout", ["--help"]),
        ("stdout", ["test", "-v", "."]),
        ("stdout", ["explain", "policy.yaml"]),
        ("stderr", ["lint", "policy.yaml"]),
        ("stderr", ["lint", "absent.yaml"]),
    ],
)
def test_a_reader_that_has_enough_is_no_finding(stream: str, words: list[str]) -> None:
    """As with `git log | head -1`: 141 is what a shell shows for SIGPIPE."""
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "reconciler.cli.main", *words]
    with os.fdopen(theirs, "w") as closed, Path("other").open("w") as other:
        streams = {"stdout": other, "stderr": other} | {stream: closed}
        done = subprocess.run(
            command, stdout=streams["stdout"], stderr=streams["stderr"], check=False
        )
    assert done.returncode == 141
    assert "Exception" not in Path("other").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16"])
@pytest.mark.parametrize("form", ["diff", "yaml", "json"])
def test_output_is_utf_8_whatever_the_locale(encoding: str, form: str) -> None:
    """As kubectl writes it: a locale that lacks a character must not end the command."""
    Path("cm.yaml").write_text(OBJECT.replace("a: b", "a: 日本"), encoding="utf-8")
    Path("cm-rule.yaml").write_text(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: q}\n"
        "spec: {rules: [{name: grün, match: {any: [{resources: {kinds: [ConfigMap]}}]},"
        " mutate: {patchStrategicMerge: {data: {b: x}}}}]}\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "reconciler.cli.main", "apply", "cm-rule.yaml", "cm.yaml"]
    done = subprocess.run(
        [*command, "-o", form, "-v"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "日本" in done.stdout.decode()
    assert "grün" in (done.stdout + done.stderr).decode()


def test_closed_streams_count_as_empty() -> None:
    command = f"exec {sys.executable} -m reconciler.cli.main jp query a <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
