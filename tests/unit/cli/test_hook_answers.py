"""`retrofit hooks answer` with real scripts and with reviews from files."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit
from tests.linux import linux

pytestmark = linux

RULES = "rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]"
VALIDATING = f"""
configVersion: v1
kubernetes: [{{name: maps, kind: ConfigMap, jqFilter: .data}}]
kubernetesValidating:
- {{name: a.example.com, includeSnapshotsFrom: [maps], {RULES}}}
"""
MUTATING = f"configVersion: v1\nkubernetesMutating: [{{name: b.example.com, {RULES}}}]"
CONVERTING = """
configVersion: v1
kubernetesCustomResourceConversion:
- {name: up, crdName: crontabs.g, conversions: [{fromVersion: v1, toVersion: v2}]}
"""
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "namespace": "a"},
    "stringData": {"value": "hunter22"},
}


UNFIT = """
patch=$(echo '[{"op": "remove", "path": "/x"}]' | base64 -w0)
echo '{"allowed": true, "patch": "'$patch'"}' > $ADMISSION_RESPONSE_PATH
"""


class Desk:
    def __init__(self, folder: Path) -> None:
        self._hook, self._review = folder / "hook.sh", folder / "review.json"

    def answer(self, config: str, body: str, *words: str, **request: Any) -> Result:
        shown = f"if [ \"$1\" = --config ]; then cat <<'END'\n{config}\nEND\nexit; fi"
        self._hook.write_text(f"#!/bin/sh\n{shown}\n{body}\n")
        self._hook.chmod(0o755)
        kind = "ConversionReview" if "objects" in request else "AdmissionReview"
        group = "apiextensions" if "objects" in request else "admission"
        review = {
            "apiVersion": f"{group}.k8s.io/v1",
            "kind": kind,
            "request": {"uid": "1", "namespace": "a", **request},
        }
        self._review.write_text(json.dumps(review))
        files = (str(self._hook), "--review", str(self._review))
        return CliRunner().invoke(retrofit, ["hooks", "answer", *files, "--yes", *words])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_review_of_a_cluster_scoped_object_is_answered_by_the_hook(desk: Desk) -> None:
    answer = """echo '{"allowed": false}' > $VALIDATING_RESPONSE_PATH"""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    for namespace in ({"namespace": ""}, {"namespace": None}):
        done = desk.answer(VALIDATING, answer, object=node, **namespace)
        assert "refused (403)" in done.stdout, done.output


def test_a_refusal_of_the_hook_is_shown_as_the_answer(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: b}\n"
    )
    answer = '{"allowed": false, "message": "not today", "warnings": ["soon"]}'
    done = desk.answer(
        VALIDATING,
        f"echo asked; echo '{answer}' > $VALIDATING_RESPONSE_PATH",
        "-t",
        str(tmp_path / "map.yaml"),
        object=SECRET,
    )
    assert done.exit_code == 0, done.output
    assert "type: Validating" in done.stdout
    assert "filterResult:\n        a: b" in done.stdout
    assert done.stdout.endswith("# Answer\nrefused (403): not today\nWarning: soon\n")
    assert "hunter22" not in done.output


def test_a_patch_is_shown_as_a_diff(desk: Desk) -> None:
    patch = '[{"op": "add", "path": "/metadata/labels", "value": {"team": "blue"}}]'
    body = f"""
    patch=$(echo '{patch}' | base64 -w0)
    echo '{{"allowed": true, "patch": "'$patch'"}}' > $ADMISSION_RESPONSE_PATH
    """
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    done = desk.answer(MUTATING, body, object=pod)
    assert done.exit_code == 0, done.output
    assert "# Answer\nallowed\n" in done.stdout
    assert "+    team: blue" in done.stdout


@pytest.mark.parametrize(
    ("config", "body", "said"),
    [
        (VALIDATING, "exit 3", "hook.sh failed: exit 3"),
        (VALIDATING, "true", "hook.sh gave no valid answer: $VALIDATING_RESPONSE_PATH: is empty"),
        (
            MUTATING,
            UNFIT,
            "the API server cannot apply its patch",
        ),
        ("configVersion: v1", "", "is the only field: add a binding"),
    ],
)
def test_an_invalid_answer_of_the_hook_exits_with_1(
    desk: Desk, config: str, body: str, said: str
) -> None:
    done = desk.answer(config, body, object={"apiVersion": "v1", "kind": "Pod", "metadata": {}})
    assert done.exit_code == 1, done.output
    assert said in done.output


def test_a_conversion_is_shown_as_a_diff(desk: Desk) -> None:
    obj = {"apiVersion": "g/v1", "kind": "CronTab", "metadata": {"name": "a"}}
    body = """
    echo '{"convertedObjects": [{"apiVersion": "g/v2", "kind": "CronTab",
      "metadata": {"name": "a"}}]}' > $CONVERSION_RESPONSE_PATH
    """
    done = desk.answer(CONVERTING, body, objects=[obj], desiredAPIVersion="g/v2")
    assert done.exit_code == 0, done.output
    assert "# Answer\nconverted\n" in done.stdout
    assert "-apiVersion: g/v1\n+apiVersion: g/v2\n" in done.stdout
    done = desk.answer(CONVERTING, body, objects=[obj], desiredAPIVersion="g/v3")
    assert done.exit_code == 1
    assert "not converted: no hook converts g/v1 to g/v3; available: v1 to v2" in done.stdout


@pytest.mark.parametrize(
    ("config", "request_", "said"),
    [
        (VALIDATING, {"objects": [], "desiredAPIVersion": "v1"}, "no kubernetesCustomResource"),
        (CONVERTING, {}, "the hook has no kubernetesValidating or kubernetesMutating binding"),
        (VALIDATING, {"uid": ""}, "request.uid is missing; write an AdmissionReview"),
        (VALIDATING, {"objects": [1], "desiredAPIVersion": "v1"}, "request.objects[0]"),
    ],
)
def test_a_review_that_does_not_fit_the_hook_is_reported(
    desk: Desk, config: str, request_: dict[str, Any], said: str
) -> None:
    done = desk.answer(config, "true", **request_)
    assert done.exit_code == 2, done.output
    assert said in done.output
