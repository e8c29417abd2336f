"""Every kind of policies that is known is installed, and may be read and told about."""

from typing import Any

import pytest
import yaml

from reconciler.api.meta import Kind
from reconciler.dialects.registry import POLICY_KINDS
from tests.architecture.conftest import ROOT


def granted(name: str) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of all that a file of roles grants without a name."""
    roles: list[Any] = list(yaml.safe_load_all((ROOT / "manifests/base" / name).read_text()))
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

    def test_is_followed_by_both_programs_and_told_by_the_controller(self, kind: Kind) -> None:
        reads = {(kind.group, kind.plural, verb) for verb in ("get", "list", "watch")}
        assert reads <= granted("rbac-admission.yaml")
        status = (kind.group, f"{kind.plural}/status", "patch")
        assert reads | {status} <= granted("rbac-controller.yaml")

    def test_has_its_rights_explained(self, kind: Kind) -> None:
        assert f"`{kind.plural}" in (ROOT / "docs/reference/rbac.md").read_text()
