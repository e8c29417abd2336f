"""Every kind of policy has a CRD, and the programs may read it and write its status."""

from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from reconciler.api.meta import Kind
from reconciler.dialects.registry import DIALECTS, POLICY_KINDS, REFUSING_KINDS, required_kinds
from reconciler.installation import REPLACING
from tests.architecture.conftest import ROOT


def granted(name: str) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of the rights in a file of roles, without named objects."""
    return rights(yaml.safe_load_all((ROOT / "manifests/base" / name).read_text()))


def granted_with(kind: Kind, part: str) -> set[tuple[str, str, str]]:
    """Return the rights on an optional kind that its dialect's role grants to one program."""
    (dialect,) = (item.name for item in DIALECTS if kind in item.kinds)
    file = ROOT / "manifests/dialects" / dialect / "rbac.yaml"
    roles = yaml.safe_load_all(file.read_text())
    found = rights(
        item for item in roles if item["metadata"]["name"] == f"kube-retrofit:{part}:{dialect}"
    )
    return {right for right in found if right[1].partition("/")[0] == kind.plural}


def rights(roles: Iterable[Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for role in roles
        for rule in role.get("rules") or ()
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("kind", POLICY_KINDS, ids=lambda kind: kind.plural)
class TestAKindOfPolicies:
    def test_has_a_definition_that_serves_its_version(self, kind: Kind) -> None:
        (file,) = (ROOT / "crds").rglob(f"{kind.plural}.yaml")
        definition = yaml.safe_load(file.read_text())["spec"]
        assert definition["group"] == kind.group
        assert definition["names"]["kind"] == kind.kind
        assert (definition["scope"] == "Namespaced") == kind.namespaced
        served = {item["name"] for item in definition["versions"] if item["served"]}
        assert kind.version in served

    def test_may_be_watched_by_both_programs_and_reported_by_the_controller(
        self, kind: Kind
    ) -> None:
        follows = {(kind.group, kind.plural, verb) for verb in ("list", "watch")}
        get = {(kind.group, kind.plural, "get")}
        status = {(kind.group, f"{kind.plural}/status", "patch")}
        if kind in required_kinds(REPLACING):
            assert get | follows <= granted("rbac-admission.yaml")
            assert get | follows | status <= granted("rbac-controller.yaml")
        else:
            # Without an installed dialect, no role grants rights on its kinds.
            assert granted_with(kind, "admission") == follows
            # By its name, because a report does not say of which kind the policy of a result is.
            # A policy that only refuses requests has neither requests nor results.
            read = follows if kind in REFUSING_KINDS else get | follows
            assert granted_with(kind, "controller") == read | status
            assert not get & granted("rbac-controller.yaml")

    def test_has_its_rights_explained(self, kind: Kind) -> None:
        assert f"`{kind.plural}" in (ROOT / "docs/reference/rbac.md").read_text()
