"""Names of files that are not UTF-8: output for programs can be parsed, and spells the byte."""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from reconciler.cli.main import retrofit

LATIN: Final = os.fsdecode(b"caf\xe9")
SPELT: Final = r"caf\udce9"
POLICY: Final = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec: {rules: [{name: r, matc: 1}]}
"""
TEST: Final = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [p.yaml]
resources: [absent.yaml]
results: [{policy: p, rule: r, kind: ConfigMap, resources: [c], result: pass}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"{LATIN}.yaml").write_text(POLICY, encoding="utf-8")
    Path(LATIN).mkdir()
    Path(LATIN, "p.yaml").write_text(POLICY, encoding="utf-8")
    Path(LATIN, "kyverno-test.yaml").write_text(TEST, encoding="utf-8")


def parsed(*words: str) -> Any:
    done = CliRunner().invoke(retrofit, list(words))
    assert done.exit_code == 1, done.output
    # As strict parsers do, which take no half of a pair of surrogates.
    done.stdout_bytes.decode("utf-8")
    found = json.loads(done.stdout)
    json.dumps(found, ensure_ascii=False).encode("utf-8")
    return found


def test_lint_writes_json_and_sarif() -> None:
    first, *_ = parsed("lint", "-o", "json", f"{LATIN}.yaml")
    assert first["file"] == f"{SPELT}.yaml"
    result, *_ = parsed("lint", "-o", "sarif", f"{LATIN}.yaml")["runs"][0]["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact["uri"] == "caf%E9.yaml"


def test_test_writes_json() -> None:
    found = parsed("test", "-o", "json", LATIN)
    assert found["broken"] == [
        f"{SPELT}/kyverno-test.yaml: {SPELT}/absent.yaml: there is no such file"
    ]
    Path(LATIN, "absent.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", encoding="utf-8"
    )
    (test,) = parsed("test", "-o", "json", LATIN)["tests"]
    assert test["file"] == f"{SPELT}/kyverno-test.yaml"
    assert test["rows"][0]["location"].startswith(f"{SPELT}/kyverno-test.yaml:1: ")
