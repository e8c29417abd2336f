"""The two installations share no object; the manifests of one are generated from the other's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.beside import CRDS, FOLDERS, generated
from reconciler.dialects.registry import policy_kinds
from reconciler.installation import BESIDE, INSTALLATIONS, REPLACING
from tests.architecture.conftest import ROOT
from tests.architecture.test_kinds import granted

MADE = dict(generated(ROOT))
HOOKS = Path("manifests/hooks")


def documents(text: str) -> Iterator[Any]:
    return (item for item in yaml.safe_load_all(text) if item)


def identities(files: Iterator[str]) -> set[tuple[str, str, str, str]]:
    """Return API version, kind, namespace and name of all objects except kustomize's own."""
    return {
        (
            item["apiVersion"],
            item["kind"],
            item["metadata"].get("namespace", ""),
            item["metadata"]["name"],
        )
        for text in files
        for item in documents(text)
        if item["kind"] not in {"Kustomization", "Component"}
    }


@pytest.mark.parametrize("path", MADE, ids=str)
def test_a_generated_file_is_up_to_date(path: Any) -> None:
    assert (ROOT / path).read_text() == MADE[path], "run python -m devcluster.beside"


def test_the_folders_contain_only_generated_files() -> None:
    found = {
        path.relative_to(ROOT)
        for folder in (CRDS, *FOLDERS.values())
        for path in (ROOT / folder).rglob("*.yaml")
    }
    assert found == set(MADE)


def test_the_installations_share_no_object() -> None:
    # The objects for hooks have equal names: they go to a namespace that users create for them.
    sources = [ROOT / folder for folder in FOLDERS if folder != HOOKS]
    first = identities(
        path.read_text() for folder in (ROOT / "crds", *sources) for path in folder.glob("*.yaml")
    )
    second = identities(text for path, text in MADE.items() if path.parent != FOLDERS[HOOKS])
    assert first & second == set()
    assert len(second) > 40


def test_generated_files_do_not_name_objects_of_kyverno() -> None:
    named = {
        line.strip()
        for text in MADE.values()
        for line in text.splitlines()
        if "kyverno" in line.partition("#")[0]
    }
    assert named == {"[*/*,kyverno,*]", "- ../beside-kyverno"}


def test_definitions_differ_in_names_and_versions_only() -> None:
    for path, text in MADE.items():
        if path.parent != CRDS or path.name == "kustomization.yaml":
            continue
        made = yaml.safe_load(text)["spec"]
        source = ROOT / "crds" / path.name.removeprefix(BESIDE.plural_prefix)
        spec = yaml.safe_load(source.read_text())["spec"]
        (version,) = made["versions"]
        assert version["schema"] in [item["schema"] for item in spec["versions"]]
        assert (made["scope"], made["names"]["kind"]) == (spec["scope"], spec["names"]["kind"])
        assert made["names"]["listKind"] == spec["names"]["listKind"]


def test_no_plural_singular_or_short_name_is_shared_with_kyverno() -> None:
    """kubectl resolves a plural, singular or short name to the first group that has it."""

    def typed(files: Iterator[str]) -> set[str]:
        names = [item["spec"]["names"] for text in files for item in documents(text)]
        return {
            name
            for item in names
            for name in (item["plural"], item["singular"], *item["shortNames"])
        }

    crds = (path for path in (ROOT / "crds").glob("*.yaml") if path.name != "kustomization.yaml")
    ours = (
        text
        for path, text in MADE.items()
        if path.parent == CRDS and path.name != "kustomization.yaml"
    )
    assert typed(path.read_text() for path in crds) & typed(ours) == set()


@pytest.mark.parametrize("kind", policy_kinds(BESIDE), ids=lambda kind: kind.plural)
def test_the_programs_may_watch_each_kind_and_write_its_status(kind: Any) -> None:
    if kind.group != BESIDE.group:
        pytest.skip("a kind of both")
    reads = {(kind.group, kind.plural, verb) for verb in ("get", "list", "watch")}
    assert reads <= granted("../beside/rbac-admission.yaml")
    status = (kind.group, f"{kind.plural}/status", "patch")
    assert reads | {status} <= granted("../beside/rbac-controller.yaml")


def test_names_that_could_collide_differ_between_the_installations() -> None:
    """Objects in the namespace of the programs may have the same name in both installations."""
    for name in ("group", "namespace", "recorded", "prefix", "owner", "plural_prefix"):
        assert getattr(BESIDE, name) != getattr(REPLACING, name)
    assert set(INSTALLATIONS) == {"kyverno.io", "kube-retrofit.dev"}
