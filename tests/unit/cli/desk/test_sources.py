"""Sources of files: folders that also hold other files, and URLs."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typing_extensions import override

from reconciler.cli.desk.fetching import fetch
from reconciler.errors import InvalidSetting
from tests.unit.cli.desk.conftest import Desk

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
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: a}\ndata: {a: b}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\n"
OTHERS = {
    "kustomization.yaml": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [p.yaml]\n"
    ),
    "base/kustomization.yaml": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        "metadata: {name: base}\n"
    ),
    "values.yaml": "replicas: 3\nkind: canary\n",
    "Chart.yml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
    "package.json": '{"name": "site", "version": "1.0.0"}\n',
    "tools/list.json": '["a", "b"]\n',
    "test/values.yaml": "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\nmetadata: {name: v}\n",
    "empty.yaml": "",
}
PASSED = 7


@pytest.fixture
def files(desk: Desk) -> Desk:
    desk.write("all/p.yaml", POLICY)
    desk.write("all/cm.yaml", OBJECT)
    desk.write("all/s.yaml", SECRET)
    for name, text in OTHERS.items():
        desk.write(f"all/{name}", text)
    return desk


def test_a_folder_may_hold_the_files_of_other_tools(files: Desk) -> None:
    said = f"passed over {PASSED} files without a Kubernetes object: "
    applied = files.run("apply", "all", "-r", "all", "-t", "all")
    assert applied.exit_code == 0, applied.stderr
    assert "pass: 1, fail: 0, warn: 0, error: 0," in applied.stderr
    assert f"{said}all/Chart.yml, all/base/kustomization.yaml, " in applied.stderr
    assert " and 4 more\n" in applied.stderr
    whole = files.run("apply", "all", "-r", "all", "-t", "all", "-v")
    for name in OTHERS:
        assert (f"all/{name}" in whole.stderr) == (name != "empty.yaml")
    output = files.run("explain", "all", "--trigger", "all/cm.yaml", "--target", "all")
    assert output.exit_code == 0, output.stderr
    assert "Secret a/s is selected" in output.stdout
    assert said in output.stderr
    wild = files.run("apply", "all/*.yaml", "-r", "all/*.yaml", "-t", "all/*.yaml")
    assert wild.exit_code == 0, wild.stderr
    assert "pass: 1, fail: 0, warn: 0, error: 0," in wild.stderr


def test_the_state_of_a_policy_that_a_test_asserts_is_no_policy(files: Desk) -> None:
    asserted = (
        "kind: ClusterPolicy\nmetadata: {name: p}\nstatus: {conditions: [{status: 'True'}]}\n"
    )
    files.write("all/.chainsaw-test/ready.yaml", f"apiVersion: kyverno.io/v1\n{asserted}")
    applied = files.run("apply", "all", "-r", "all", "-t", "all")
    assert applied.exit_code == 0, applied.stderr
    assert "pass: 1, fail: 0, warn: 0, error: 0," in applied.stderr
    explained = files.run("explain", "all", "--trigger", "all/cm.yaml", "--target", "all")
    assert explained.exit_code == 0, explained.stderr
    linted = files.run("lint", "all")
    assert linted.exit_code == 0, linted.stdout
    assert "1 policy: 0 errors" in linted.stderr


@pytest.mark.parametrize(
    "name",
    [name for name, text in OTHERS.items() if name != "empty.yaml" and "metadata" not in text],
)
def test_a_file_that_is_named_must_hold_an_object(files: Desk, name: str) -> None:
    done = files.run("apply", "all/p.yaml", "-r", f"all/{name}")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: all/{name}:1: ")


def test_a_malformed_object_in_a_folder_is_an_error(files: Desk) -> None:
    files.write("all/bad.yaml", OBJECT.replace("name: c", "name: 5"))
    done = files.run("apply", "all/p.yaml", "-r", "all")
    assert done.exit_code == 2
    assert "all/bad.yaml:1: metadata.name is not a string; put it in quotes" in done.stderr


def test_a_folder_without_any_object_is_an_error(desk: Desk) -> None:
    desk.write("p.yaml", POLICY)
    desk.write("charts/values.yaml", "a: 1\n")
    done = desk.run("apply", "p.yaml", "-r", "charts")
    assert done.exit_code == 2
    assert "charts: no object found" in done.stderr


def listed(*items: str) -> str:
    return f"apiVersion: v1\nkind: List\nitems:\n- {'- '.join(map(nested, items))}"


def nested(text: str) -> str:
    return text.replace("\n", "\n  ").rstrip(" ")


def test_lists_may_hold_lists(desk: Desk) -> None:
    """As for kubectl, which also reads what an inner List holds last."""
    first, second, third = (OBJECT.replace("name: c", f"name: {name}") for name in "cde")
    desk.write("p.yaml", listed(listed(listed(POLICY))))
    desk.write("s.yaml", SECRET)
    desk.write("cm.yaml", listed(first, listed(second), third))
    done = desk.run("apply", "p.yaml", "-r", "cm.yaml", "-t", "s.yaml", "-o", "json")
    assert done.exit_code == 0, done.stderr
    names = [item["metadata"]["name"] for item in json.loads(done.stdout)["items"]]
    assert names == ["c", "s", "e", "d"]
    desk.write("bad.yaml", listed(SECRET, listed(SECRET, POLICY.replace("rules:", "rulez:"))))
    done = desk.run("lint", "bad.yaml")
    assert "bad.yaml:17:7: error [invalid] p: spec.rulez: unknown field" in done.stdout
    desk.write("bad.yaml", listed(SECRET, listed(OBJECT, OBJECT.replace("name: c", "name: 5"))))
    done = desk.run("apply", "p.yaml", "-r", "bad.yaml")
    assert "bad.yaml:1: items[1].items[1]: metadata.name is not a string" in done.stderr
    desk.write("bad.yaml", "{kind: List, items: [" * 101)
    done = desk.run("apply", "p.yaml", "-r", "bad.yaml")
    assert "nested deeper than 200 levels" in done.stderr


PAGES = {"/p.yaml": POLICY, "/cm.yaml": OBJECT, "/page": "<!DOCTYPE html><html></html>"}
LEADS = {"/to": "/p.yaml", "/loop": "/loop", "/away": "http://example.com/p.yaml"}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path in LEADS:
            self.send_response(302)
            self.send_header("Location", LEADS[self.path])
            self.end_headers()
        elif self.path in PAGES:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGES[self.path].encode())
        else:
            self.send_response(404)
            self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_files_are_read_from_urls(desk: Desk, server: str) -> None:
    desk.write("s.yaml", SECRET)
    words = [f"{server}/to", "-r", f"{server}/cm.yaml", "-t", "s.yaml"]
    done = desk.run("apply", *words)
    assert (done.exit_code, "+    x: b" in done.stdout) == (0, True), done.stderr
    output = desk.run("explain", f"{server}/p.yaml", "--trigger", f"{server}/cm.yaml")
    assert output.exit_code == 0
    assert "the rule fires" in output.stdout
    assert desk.run("lint", f"{server}/p.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/absent.yaml", "the server answered 404"),
        ("/page", "this is a web page; give the URL of the file itself"),
        ("/loop", "too many redirects"),
        ("/away", "(redirected to http://example.com/p.yaml): only https is supported"),
    ],
)
def test_a_url_that_returns_no_file_is_an_error(
    desk: Desk, server: str, path: str, said: str
) -> None:
    done = desk.run("explain", f"{server}{path}")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {server}{path}")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "http://example.com/p.yaml",
            "only https is supported; http content can be changed in transit",
        ),
        ("http://127.0.0.1:1/p.yaml", "cannot be read: connection refused"),
        (
            "https://nobody.invalid/p.yaml",
            "cannot be read: the name of the server cannot be resolved",
        ),
        ("https://", "cannot be read: the URL is invalid"),
    ],
)
def test_a_url_that_cannot_be_read_is_an_error(desk: Desk, address: str, said: str) -> None:
    done = desk.run("explain", address)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_download_larger_than_the_limit_is_refused(server: str) -> None:
    assert fetch(f"{server}/cm.yaml", len(OBJECT)) == OBJECT.encode()
    with pytest.raises(InvalidSetting, match="it is larger than"):
        fetch(f"{server}/cm.yaml", len(OBJECT) - 1)


def test_the_http_client_is_not_imported_for_paths() -> None:
    code = "import sys, reconciler.cli.desk.files; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
