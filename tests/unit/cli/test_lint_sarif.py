"""`retrofit lint -o sarif`: the requirements of its readers, such as GitHub's code scanning.

The schema below has the members of SARIF 2.1.0 (its JSON schema, and sections 3.4 and 3.30 of
its text) that the command writes, and refuses any others.
"""

import functools
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft4Validator
from typing_extensions import override

from reconciler.cli.main import retrofit

POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets: [{apiVersion: apps/v1, kind: Deployment, name: web}]
      patchStrategicMerge: {metadata: {labels: {x: 1}}}
"""
BROKEN = "a: [\n"
TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 1}
_CHARACTERS = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=@/?]|%[0-9A-F]{2})"
URI = {
    "type": "string",
    # With a scheme or relative; a colon in the first segment would make it a scheme.
    "pattern": rf"^(?:[a-z][a-z0-9+.-]*://{_CHARACTERS[:-1]}|:)*|(?!/){_CHARACTERS}+)$",
}


def mapping(required: str, **members: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": members,
        "required": required.split(),
        "additionalProperties": False,
    }


def listing(items: object, **more: object) -> dict[str, object]:
    return {"type": "array", "items": items, **more}


MESSAGE = mapping("text", text=TEXT)
LOCATION = mapping(
    "physicalLocation",
    physicalLocation=mapping(
        "artifactLocation region",
        artifactLocation=mapping("uri", uri=URI),
        region=mapping("startLine", startLine=COUNT, startColumn=COUNT),
    ),
    logicalLocations=listing(
        mapping("fullyQualifiedName", name=TEXT, fullyQualifiedName=TEXT), uniqueItems=True
    ),
)
RESULT = mapping(
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations=listing(LOCATION),
)
RULE = mapping("id", id=TEXT, shortDescription=MESSAGE)
DRIVER = mapping("name", name=TEXT, version=TEXT, rules=listing(RULE, uniqueItems=True))
LOG = mapping(
    "version runs",
    **{"$schema": URI},
    version={"enum": ["2.1.0"]},
    runs=listing(
        mapping(
            "tool results",
            tool=mapping("driver", driver=DRIVER),
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            results=listing(RESULT),
        )
    ),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"p.yaml": POLICY, "a b:ü%.yaml": POLICY, "broken.yaml": BROKEN}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        @override
        def log_message(self, *_: object) -> None:
            """Log nothing on the terminal."""

    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def sarif(*words: str, stdin: str = "") -> list[Mapping[str, Any]]:
    """Return the results of a log, after a check that the log is valid."""
    done = CliRunner().invoke(retrofit, ["lint", "-o", "sarif", *words], input=stdin)
    log = json.loads(done.stdout)
    problems = [
        f"{error.json_path}: {error.message}" for error in Draft4Validator(LOG).iter_errors(log)
    ]
    assert problems == []
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    return list(run["results"])


def uris(results: list[Mapping[str, Any]]) -> set[str]:
    return {
        place["physicalLocation"]["artifactLocation"]["uri"]
        for result in results
        for place in result["locations"]
    }


def test_file_names_are_written_as_valid_uris(folder: Path) -> None:
    assert uris(sarif(".")) == {"p.yaml", "a%20b%3A%C3%BC%25.yaml", "broken.yaml"}
    assert uris(sarif(str(folder / "p.yaml"))) == {f"file://{folder}/p.yaml"}


def test_a_file_from_a_url_is_identified_by_the_url(address: str) -> None:
    assert uris(sarif(f"{address}/p.yaml?x=1")) == {f"{address}/p.yaml?x=1"}


def test_standard_input_is_identified_as_stdin() -> None:
    assert uris(sarif("-", stdin=POLICY)) == {"stdin"}


@pytest.mark.parametrize(
    "text",
    [
        *(BROKEN, "kind: ClusterPolicy", "{kind: Policy, spec: 1}"),
        *("apiVersion: kyverno.io/v1\nkind: Policy\n", POLICY.replace("name: p", "name: ''")),
        POLICY.replace("  rules:", "  rules: []\n  x:"),
    ],
)
def test_every_kind_of_finding_gives_a_valid_log(text: str) -> None:
    sarif("-", stdin=text)


def test_a_policy_without_findings_gives_no_results() -> None:
    good = POLICY.replace("x: 1", "x: z").replace("name: web", "name: web, namespace: a")
    assert sarif("-", stdin=good) == []
