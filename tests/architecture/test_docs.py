"""The documents agree with the code: flags, words of a request, examples, links, paths."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api.updaterequest import Outcome, Reason, Source, State
from reconciler.config import (
    AdmissionSettings,
    ControllerSettings,
    ProcessSettings,
    render_duration,
)
from reconciler.dialects.registry import compile_entry, compile_policy, is_policy
from reconciler.engine.program import CompiledPolicy
from reconciler.installation import INSTALLATIONS
from tests.architecture.conftest import ROOT, relative, sources

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SETTINGS = ROOT / "docs/reference/settings.md"
REQUEST = ROOT / "docs/reference/updaterequest.md"
STATUS = ROOT / "docs/reference/policy-status.md"
ARCHITECTURE = ROOT / "docs/explanation/architecture.md"
SECURITY = ROOT / "docs/explanation/security.md"
FLAG = re.compile(r"^\| `--([a-z-]+)` \| `(\w+)` \| (?:`([^`]*)`)? *\|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`(\w+)`")


def section(title: str, page: Path = SETTINGS) -> str:
    found = re.search(
        rf"^## {title}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"{relative(page)} has no section {title}"
    return found[1]


def flags(settings: type[ProcessSettings]) -> set[tuple[str, str, str]]:
    """Return flag, environment variable and default of each setting as the document shows them."""
    return {
        (item.name.replace("_", "-"), f"RETROFIT_{item.name.upper()}", default(item))
        for item in dataclasses.fields(settings)
    }


def default(item: dataclasses.Field[Any]) -> str:
    value: Any = item.default
    if isinstance(value, bool):
        return str(value).lower()
    return render_duration(value) if item.type is float else str(value)


@pytest.mark.parametrize(
    ("title", "settings"),
    [("retrofit-admission", AdmissionSettings), ("retrofit-controller", ControllerSettings)],
)
def test_every_flag_is_documented(title: str, settings: type[ProcessSettings]) -> None:
    shared = FLAG.findall(section("Both programs"))
    assert set(shared) == flags(ProcessSettings)
    assert {*shared, *FLAG.findall(section(title))} == flags(settings)


@pytest.mark.parametrize(
    ("title", "settings"),
    [("retrofit-admission", AdmissionSettings), ("retrofit-controller", ControllerSettings)],
)
def test_the_help_of_a_flag_says_what_the_page_says(
    title: str, settings: type[ProcessSettings]
) -> None:
    rows = re.findall(
        r"^\| `--([a-z-]+)` .* \| ([^|]+) \|$", section("Both programs"), re.MULTILINE
    )
    rows += re.findall(r"^\| `--([a-z-]+)` .* \| ([^|]+) \|$", section(title), re.MULTILINE)
    page = {flag: re.sub(r"\[([^]]+)\]\([^)]*\)|`", r"\1", meaning) for flag, meaning in rows}
    for item in dataclasses.fields(settings):
        # The page may say more.
        for clause in re.split(r"[;.](?: |$)", item.metadata["help"]):
            assert clause in page[item.name.replace("_", "-")], item.name


def test_every_state_outcome_and_source_of_a_request_is_documented() -> None:
    text = REQUEST.read_text()
    assert {word for word in (*State, *Outcome, *Source) if f"`{word}`" not in text} == set()


def test_the_table_lists_every_state_and_every_reason() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section("Reasons", REQUEST), re.MULTILINE)
    reported = [(state, word) for state, words in rows for word in CODE.findall(words)]
    assert {state for state, _ in reported} == set(State)
    assert {word for _, word in reported} == set(Reason)
    assert len(reported) == len(set(reported))


def test_every_reason_is_used() -> None:
    paths = sources("reconciler/services", "reconciler/requests")
    text = "".join(path.read_text() for path in paths)
    # The outcome of a target may become the reason of its request.
    given = {item for item in Reason if f"Reason.{item.name}" in text} | set(Outcome)
    assert set(Reason) - given == set()


def test_every_field_and_column_of_a_request_is_documented() -> None:
    (version,) = (
        item
        for item in yaml.safe_load((ROOT / "crds/updaterequests.yaml").read_text())["spec"][
            "versions"
        ]
        if item["storage"]
    )
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    text = REQUEST.read_text()
    columns = {item["name"].upper() for item in version["additionalPrinterColumns"]}
    assert {name for name in columns if f"`{name}`" not in text} == set()
    fields = {
        name
        for part in ("spec", "status")
        for name, field in schema[part]["properties"].items()
        if "not used" not in field.get("description", "")
    }
    known = set(re.findall(r"`(?:status\.|spec\.)?([A-Za-z]+)[.`\[]", text))
    assert fields - known == set()


def test_every_column_of_a_policy_is_documented() -> None:
    shown = set(re.findall(r"`([A-Z ]+)`", section("Columns", STATUS)))
    for name in ("clusterpolicies", "policies"):
        for version in yaml.safe_load((ROOT / f"crds/{name}.yaml").read_text())["spec"][
            "versions"
        ]:
            columns = {item["name"].upper() for item in version["additionalPrinterColumns"]}
            assert columns - {"AGE"} == shown, name


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_link_has_an_existing_target(document: Path) -> None:
    for name, anchor in LINK.findall(document.read_text()):
        if "://" in name:
            continue
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{name} in {relative(document)}"
        if anchor:
            assert anchor in anchors(target), f"{name}#{anchor} in {relative(document)}"


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}


def examples() -> Iterator[Any]:
    for document in DOCUMENTS:
        blocks = "---\n".join(FENCE.findall(document.read_text()))
        for number, example in enumerate(yaml.safe_load_all(blocks), 1):
            yield pytest.param(example, id=f"{relative(document)}:{number}")


@pytest.mark.parametrize("example", [*examples()])
def test_every_example_works(example: Any) -> None:
    # Examples that are not Kubernetes objects are for CI (tests/unit/cli/test_in_ci.py).
    kind = example.get("kind") if isinstance(example, dict) else None
    if isinstance(example, dict) and is_policy(example):
        compiled = compile_policy(example)
        assert isinstance(compiled, CompiledPolicy)
        assert compiled.programs
        assert not compiled.warnings
    elif kind == "GlobalContextEntry":
        assert not compile_entry(example).warnings
    elif kind == "ClusterRole":
        labels = {
            label
            for item in INSTALLATIONS.values()
            for label in (item.background_label, item.admission_label)
        }
        assert labels & set(example["metadata"]["labels"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_make_target_in_the_text_exists(document: Path) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", document.read_text(), re.MULTILINE))
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named - set(targets) == set()


# The changelog also names paths that no longer exist.
PRESENT = [document for document in DOCUMENTS if document.name != "CHANGELOG.md"]


@pytest.mark.parametrize("document", PRESENT, ids=relative)
def test_every_path_named_in_a_document_exists(document: Path) -> None:
    named = re.findall(
        r"(?:`|pytest )((?:reconciler|admission|tests|crds|e2e)/[^`\s:]*?)/?[`\s:]",
        document.read_text(),
    )
    # A module may be named without its suffix.
    gone = [path for path in named if not [*ROOT.glob(path), *ROOT.glob(f"{path}.py")]]
    assert gone == []


def test_the_picture_names_modules_that_exist() -> None:
    rows = re.findall(
        r"^\| `((?:reconciler|admission)\S*)` \| (.*) \|$", ARCHITECTURE.read_text(), re.MULTILINE
    )
    assert rows
    for folder, cell in rows:
        for name in re.findall(r"`([a-z0-9_]+)/?`", cell):
            module = ROOT / folder / name
            assert module.is_dir() or module.with_suffix(".py").is_file(), f"{folder}: {name}"


def test_the_picture_names_every_module() -> None:
    text = ARCHITECTURE.read_text()
    for path in sources("reconciler/services", "reconciler/requests", "admission"):
        if path.name != "__init__.py":
            assert f"`{path.stem}`" in text, relative(path)


def test_every_test_that_the_security_page_names_exists() -> None:
    named = re.findall(r"`((?:tests/[\w/]+/)?(?:test_)\w+\.py)(?:::(\w+))?`", SECURITY.read_text())
    assert len(named) > 15
    for file, function in named:
        path = ROOT / file if file.startswith("tests/") else ROOT / "tests/attacks" / file
        assert path.exists(), file
        assert f"def {function}" in path.read_text(), function
