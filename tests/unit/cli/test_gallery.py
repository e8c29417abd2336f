"""The gallery passes its tests and lint, and its roles grant exactly the necessary rights."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from reconciler.api.rights import Right
from reconciler.cli.main import retrofit
from reconciler.dialects.registry import compile_policy
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.authoring.rights import RightsCheck
from tests.architecture.conftest import ROOT

GALLERY = ROOT / "docs/gallery"
ENTRIES = sorted(path.parent for path in GALLERY.glob("*/policy.yaml"))
VIEW = {
    "": {"configmaps", "namespaces", "persistentvolumeclaims", "pods", "resourcequotas"},
    "apps": {"daemonsets", "deployments", "statefulsets"},
    "batch": {"cronjobs"},
}
"""The kinds of the gallery that the built-in ClusterRole `view` may read."""


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def run(*words: str) -> Result:
    return CliRunner().invoke(retrofit, list(words))


@dataclass
class Granted:
    """The `Access` port: grants the rights of a role and of the ClusterRole `view`."""

    rules: list[dict[str, Any]]
    used: set[tuple[str, str]] = field(default_factory=set)

    async def may(self, right: Right) -> bool:
        held = any(
            right.group in rule["apiGroups"]
            and right.resource in rule["resources"]
            and right.verb in rule["verbs"]
            for rule in self.rules
        )
        if held:
            self.used.add((right.group, right.resource))
        viewed = right.verb in {"get", "list"} and right.resource in VIEW.get(right.group, ())
        return held or viewed


def test_the_page_names_all_twelve_entries() -> None:
    page = (GALLERY / "README.md").read_text()
    assert [entry.name for entry in ENTRIES if f"]({entry.name}/README.md)" not in page] == []
    assert len(ENTRIES) == 12


def test_every_test_of_the_gallery_passes() -> None:
    # If this is slow, `test` would start processes, which outlive this one test.
    done = run("test", str(GALLERY), "--strict", "--jobs", "1")
    assert done.exit_code == 0, done.stdout + done.stderr


def test_lint_has_no_findings_for_the_gallery() -> None:
    done = run("lint", "--strict", *(str(entry / "policy.yaml") for entry in ENTRIES))
    assert done.exit_code == 0, done.stdout + done.stderr


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
async def test_the_role_of_an_entry_grants_exactly_the_needed_rights(entry: Path) -> None:
    rules = load(entry / "role.yaml")["rules"]
    granted = Granted(rules=rules)
    policy = compile_policy(load(entry / "policy.yaml"))
    lack = await RightsCheck(kinds=MemoryKinds(), access=granted, whole=True).check(policy)
    assert lack.rights == ()
    assert not lack.unserved_targets
    listed = {
        (group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted.used == listed
