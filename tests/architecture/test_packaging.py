"""What is shipped, and that every module of it loads on a machine without a cluster."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.architecture.conftest import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALL = "reconciler/cli/dev/install"
SHIPPED = (
    "reconciler/__main__.py",
    "reconciler/engine/evaluate.py",
    "reconciler/controller/handlers.py",
    "reconciler/cli/dev/demo/objects/shop.yaml",
    "reconciler/cli/dev/controlplane/main.go",
    "reconciler/cli/dev/controlplane/go.mod",
    "reconciler/cli/dev/controlplane/go.sum",
    "admission/main.py",
    f"{INSTALL}/crds/kustomization.yaml",
    f"{INSTALL}/crds/updaterequests.yaml",
    f"{INSTALL}/crds/clusterpolicies.yaml",
    f"{INSTALL}/manifests/base/kustomization.yaml",
    f"{INSTALL}/manifests/overlays/default/kustomization.yaml",
    f"{INSTALL}/manifests/overlays/demo/kustomization.yaml",
)
IMPORT_ALL = """
import importlib, pkgutil
for package in {packages!r}:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
PIN = re.compile(r"[a-z0-9][a-z0-9._-]*==\S+(?: ; [^\\]+)?")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files in a wheel that is built now."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


def test_the_wheel_holds_what_an_installation_needs(wheel: list[str]) -> None:
    assert set(SHIPPED) - set(wheel) == set()


def test_the_wheel_holds_nothing_else(wheel: list[str]) -> None:
    metadata = f"kube_retrofit-{PROJECT['version']}.dist-info"
    assert {name.partition("/")[0] for name in wheel} == {*PACKAGES, metadata}
    assert [name for name in wheel if "__pycache__" in name or "/tests/" in name] == []


def test_every_manifest_is_in_the_wheel(wheel: list[str]) -> None:
    folders = (ROOT / "crds", ROOT / "manifests")
    files = (file for folder in folders for file in folder.rglob("*.yaml"))
    assert {f"{INSTALL}/{file.relative_to(ROOT)}" for file in files} - set(wheel) == set()


def test_every_module_loads_without_a_cluster(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if "KUBE" not in key}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL.format(packages=PACKAGES)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env={**environment, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")},
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", sorted(PROJECT["scripts"]))
def test_every_program_shows_its_help(script: str) -> None:
    program = Path(sys.executable).with_name(script)
    done = subprocess.run([program, "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage:")


def pins(name: str) -> dict[str, list[str]]:
    """Return what follows each pin of a requirements file, comments left out."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        text = line.strip().removesuffix("\\").strip()
        if line[:1].isalnum():
            assert PIN.fullmatch(text), f"{name}: {line!r} is no exact version"
            current = found.setdefault(text, [])
        elif text and not text.startswith("#"):
            current.append(text)
    return found


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_every_requirement_is_pinned_by_hash(name: str) -> None:
    found = pins(name)
    assert len(found) > len(PROJECT["dependencies"])
    for pin, options in found.items():
        assert options, f"{name}: {pin} has no hash"
        assert all(option.startswith("--hash=sha256:") for option in options), pin


def test_what_runs_is_what_was_tested() -> None:
    run, dev = pins("run.txt"), pins("dev.txt")
    assert {pin: dev.get(pin) for pin in run} == run


def test_every_dependency_is_pinned() -> None:
    named = {re.split(r"[><=~!; \[]", text)[0].lower() for text in PROJECT["dependencies"]}
    assert named - {pin.partition("==")[0] for pin in pins("run.txt")} == set()
