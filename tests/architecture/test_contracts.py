"""The import contracts detect violations: a forbidden import is planted for each of them."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.conftest import PACKAGES, ROOT

# Contract, module, line that breaks the contract.
PLANTED = (
    ("Layers: every arrow points down", "reconciler/api/meta.py", "import reconciler.services"),
    ("Layers: every arrow points down", "reconciler/unplaced.py", ""),
    ("Engine layers", "reconciler/engine/outcome.py", "import reconciler.engine.evaluate"),
    (
        "Layers: every arrow points down",
        "reconciler/engine/ports.py",
        "import reconciler.languages",
    ),
    ("Engine layers", "reconciler/engine/unplaced.py", ""),
    (
        "Layers of a dialect",
        "reconciler/dialects/kyverno/policy.py",
        "import reconciler.dialects.registry",
    ),
    (
        "Nobody but the registry names a dialect",
        "reconciler/services/catalog/policy_store.py",
        "import reconciler.dialects.kyverno.policy",
    ),
    (
        "Languages know no policies",
        "reconciler/languages/jmespath/reads.py",
        "import reconciler.engine.match",
    ),
    (
        "Wings of the services",
        "reconciler/services/recording/recorder.py",
        "import reconciler.services.processing.dispatch",
    ),
    ("Wings of the services", "reconciler/services/unplaced.py", ""),
    ("The core does no I/O", "reconciler/requests/schedule.py", "import asyncio"),
    ("The core does no I/O", "reconciler/engine/values/wildcard.py", "def read():\n    import os"),
    (
        "Use cases reach the world through ports",
        "reconciler/services/recording/recorder.py",
        "import socket",
    ),
    ("Only the controller knows kopf", "admission/roles.py", "import kopf"),
    (
        "Only reconciler.kube knows the Kubernetes client",
        "reconciler/controller/gauges.py",
        "import kubernetes",
    ),
    (
        "The reconciler is unaware of the admission server",
        "reconciler/clock.py",
        "import admission.lookup",
    ),
    (
        "What is shipped is unaware of the local control plane",
        "reconciler/cli/lint/schema.py",
        "import devcluster.waiting",
    ),
    (
        "Only the CLI runs on the in-memory cluster",
        "reconciler/wiring/base.py",
        "import reconciler.memory.cluster",
    ),
    (
        "Only reconciler.isolation starts processes for evaluations",
        "reconciler/services/processing/attempt.py",
        "import multiprocessing",
    ),
    (
        "Layers: every arrow points down",
        "reconciler/dialects/base.py",
        "import reconciler.hooks.config",
    ),
    ("The core does no I/O", "reconciler/hooks/monitor.py", "import asyncio"),
    (
        "Neither server of policies runs an executable",
        "reconciler/controller/gauges.py",
        "import reconciler.execution.executables",
    ),
    (
        "Only a worker process loads libjq",
        "reconciler/isolation/jq.py",
        "import reconciler.isolation.jqworker",
    ),
    ("No cycles between siblings", "admission/roles.py", "import admission.resources"),
)


def verdicts(folder: Path) -> dict[str, str]:
    """Return KEPT or BROKEN by contract, as lint-imports prints them."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    lines = (line.rpartition(" ") for line in done.stdout.splitlines())
    found = {name: verdict for name, _, verdict in lines if verdict in {"KEPT", "BROKEN"}}
    assert found, done.stdout + done.stderr
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages and of pyproject.toml."""
    folder = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=only_python)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def planted(tree: Path, module: str, line: str) -> Iterator[Path]:
    """The copy with a line added to a module, or with a new module."""
    place = tree / module
    text = place.read_text() if place.exists() else None
    place.write_text(f"{text or ''}\n{line}\n")
    yield tree
    if text is None:
        place.unlink()
    else:
        place.write_text(text)


@pytest.mark.parametrize(("contract", "module", "line"), PLANTED)
def test_a_planted_import_breaks_its_contract(contract: str, planted: Path) -> None:
    assert verdicts(planted)[contract] == "BROKEN"


def test_without_a_planted_import_every_contract_is_kept(tree: Path) -> None:
    assert set(verdicts(tree).values()) == {"KEPT"}


def test_every_contract_has_a_planted_violation() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {item["name"] for item in settings["contracts"]} == {name for name, *_ in PLANTED}


def only_python(folder: str, entries: list[str]) -> set[str]:
    place = Path(folder)
    return {
        name
        for name in entries
        if name == "__pycache__" or not ((place / name).is_dir() or name.endswith(".py"))
    }
