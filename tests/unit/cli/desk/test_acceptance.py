"""Policies that every API server refuses are refused on files, too."""

from collections.abc import Callable

import pytest
import yaml

from reconciler.cli.desk.acceptance import compile_acceptable
from reconciler.cli.manifests import find_manifests
from reconciler.dialects.registry import KNOWN_KINDS
from reconciler.errors import InvalidPolicy
from tests.unit.cli.desk.conftest import Desk

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {data: {a: b}}}
"""
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
LONG = "x" * 64


@pytest.fixture
def refuse(desk: Desk) -> Callable[..., list[str]]:
    """Return what each command says about a policy with a change, which all of them refuse."""
    desk.write("cm.yaml", OBJECT)

    def refused(before: str, after: str) -> list[str]:
        file = desk.write("p.yaml", POLICY.replace(before, after))
        commands = ["apply", file, "cm.yaml"], ["explain", file], ["lint", file]
        found = [desk.run(*words) for words in commands]
        assert [done.exit_code for done in found] == [1, 1, 1]
        return [done.output for done in found]

    return refused


def test_a_version_that_no_cluster_serves_is_refused(refuse: Callable[..., list[str]]) -> None:
    for said in refuse("kyverno.io/v1", "kyverno.io/v9"):
        assert "apiVersion: " in said
        assert "kyverno.io/v1" in said
        assert "kyverno.io/v2beta1" in said


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ("{name: P}", "metadata.name: 'P'"),
        ("{name: a_b}", "metadata.name: 'a_b'"),
        (f"{{name: {'a' * 254}}}", "metadata.name: 'aaa"),
        ("{name: p, labels: {team: a b}}", "metadata.labels.team: 'a b'"),
        (f"{{name: p, labels: {{team: {LONG}}}}}", f"metadata.labels.team: '{LONG}'"),
        ("{name: p, labels: {a/b/c: x}}", "metadata.labels[\"a/b/c\"]: 'a/b/c'"),
        ("{name: p, annotations: {a b: x}}", "metadata.annotations[\"a b\"]: 'a b'"),
    ],
)
def test_metadata_that_no_cluster_accepts_is_refused(
    refuse: Callable[..., list[str]], metadata: str, place: str
) -> None:
    for said in refuse("{name: p}", metadata):
        where, found = place.split(": ")
        assert where in said
        assert found in said


def test_other_objects_may_have_any_metadata(desk: Desk) -> None:
    file = desk.write("p.yaml", POLICY)
    other = desk.write("cm.yaml", OBJECT.replace("{name: c}", "{name: C_C, labels: {a b: c d}}"))
    assert desk.run("apply", file, other).exit_code == 0


def _served() -> list[tuple[str, str]]:
    found = []
    for file in (find_manifests() / "crds").rglob("*.yaml"):
        spec = yaml.safe_load(file.read_text()).get("spec", {})
        found += [
            (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            for version in spec.get("versions", ())
            if version["served"]
        ]
    return found


def test_the_versions_are_those_that_the_definitions_serve() -> None:
    kinds = {(kind.group, kind.kind) for kind in KNOWN_KINDS}
    served = {item for item in _served() if (item[0].partition("/")[0], item[1]) in kinds}
    versions = {version.partition("/")[2] for version, _ in _served()} | {"v3"}
    accepted = set()
    for group, kind in kinds:
        for version in versions:
            policy = {
                "apiVersion": f"{group}/{version}",
                "kind": kind,
                "metadata": {"name": "p", "namespace": "a"},
            }
            try:
                compile_acceptable(policy)
            except InvalidPolicy as error:
                if error.location == "apiVersion":
                    continue
            accepted.add((f"{group}/{version}", kind))
    assert accepted == served
