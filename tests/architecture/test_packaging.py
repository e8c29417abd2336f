"""The wheels and their pinned dependencies, and importing all modules without a cluster."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.architecture.conftest import PACKAGES, PRODUCT, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEVCLUSTER = tomllib.loads((ROOT / "devcluster/pyproject.toml").read_text())["project"]
INSTALL = "reconciler/cli/install"
SHIPPED = (
    "reconciler/__main__.py",
    "reconciler/engine/evaluate.py",
    "reconciler/controller/handlers.py",
    "admission/main.py",
    "reconciler/cli/ui/static/index.html",
    "reconciler/cli/ui/static/vendor/lit-html.js",
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


def built(project: Path, folder: Path) -> Path:
    """Build the wheel of a project and return its path."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=project,
        check=True,
        capture_output=True,
        text=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("product"))


@pytest.fixture(scope="module")
def devcluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT / "devcluster", tmp_path_factory.mktemp("devcluster"))


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_contains_what_an_installation_needs(product: Path) -> None:
    assert set(SHIPPED) - set(names(product)) == set()


def test_the_wheel_contains_only_the_product(product: Path) -> None:
    metadata = f"kube_retrofit-{PROJECT['version']}.dist-info"
    assert {name.partition("/")[0] for name in names(product)} == {*PRODUCT, metadata}
    assert [name for name in names(product) if "__pycache__" in name or "/tests/" in name] == []


def test_every_manifest_is_in_the_wheel(product: Path) -> None:
    folders = (ROOT / "crds", ROOT / "manifests")
    files = (file for folder in folders for file in folder.rglob("*.yaml"))
    assert {f"{INSTALL}/{file.relative_to(ROOT)}" for file in files} - set(names(product)) == set()


def test_the_local_control_plane_has_a_wheel_of_its_own(devcluster: Path) -> None:
    metadata = f"kube_retrofit_devcluster-{PROJECT['version']}.dist-info"
    held = {name for name in names(devcluster) if not name.startswith(f"{metadata}/")}
    files = (file for file in (ROOT / "devcluster").rglob("*.*") if file.is_file())
    assert held == {
        file.relative_to(ROOT).as_posix()
        for file in files
        if "__pycache__" not in file.parts and file.name != "pyproject.toml"
    }


def test_both_wheels_have_the_same_version() -> None:
    assert DEVCLUSTER["version"] == PROJECT["version"]
    assert PROJECT["optional-dependencies"] == {
        "dev": [f"{DEVCLUSTER['name']}=={PROJECT['version']}"]
    }
    assert f"{PROJECT['name']}=={PROJECT['version']}" in DEVCLUSTER["dependencies"]
    floors = {*PROJECT["dependencies"], f"{PROJECT['name']}=={PROJECT['version']}"}
    assert set(DEVCLUSTER["dependencies"]) <= floors


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The bin folder of a virtual environment with all dependencies and without the project."""
    there = tmp_path / "dependencies"
    there.mkdir()
    for item in Path(sysconfig.get_path("purelib")).iterdir():
        if "kube_retrofit" not in item.name:
            (there / item.name).symlink_to(item)
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{there}\n")
    return tmp_path / "venv/bin"


def install(programs: Path, *wheels: Path | str) -> None:
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-index")
    subprocess.run([*pip, *wheels], check=True, capture_output=True, cwd=programs)


def retrofit(programs: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program of a virtual environment, with the packages of no other place."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [programs / "retrofit", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=programs,
        env={**environment, **variables},
    )


def test_the_dev_extra_installs_the_local_control_plane(
    product: Path, devcluster: Path, elsewhere: Path
) -> None:
    install(elsewhere, product)
    absent = retrofit(elsewhere, "dev", "up")
    assert (absent.returncode, absent.stdout) == (2, "")
    assert absent.stderr == (
        "Error: the local control plane is a package of its own, which is not installed: "
        "pip install 'kube-retrofit[dev]', or . ./devcluster in a checkout\n"
    )
    line = {"COMP_WORDS": "retrofit dev ", "COMP_CWORD": "2"}
    completed = retrofit(elsewhere, _RETROFIT_COMPLETE="bash_complete", **line)
    assert (completed.returncode, completed.stderr) == (0, "")
    install(elsewhere, f"{product}[dev]", devcluster)
    there = retrofit(elsewhere, "dev", "status")
    assert (there.returncode, there.stdout) == (1, "")
    assert there.stderr.startswith("Nothing runs in ")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The bin folder of a virtual environment with only the pins of requirements/run.txt."""
    there = tmp_path / "pinned"
    there.mkdir()
    for pin in pins("run.txt"):
        if " ; " in pin and not installed(pin.partition("==")[0]):
            continue
        for file in distribution(pin.partition("==")[0]).files or ():
            top = file.parts[0]
            if top != ".." and not (there / top).exists():
                (there / top).symlink_to(Path(sysconfig.get_path("purelib")) / top)
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "pinned.pth").write_text(f"{there}\n")
    return tmp_path / "venv/bin"


def installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def test_the_wheel_alone_provides_the_offline_commands(product: Path, empty: Path) -> None:
    """As installed with pipx: with the pinned dependencies of the image, and no checkout."""
    install(empty, product)
    files = [ROOT / "docs/examples" / f"{name}.yaml" for name in ("reload-web", "configmap")]
    targets = ROOT / "docs/examples/deployments.yaml"
    applied = retrofit(empty, "apply", str(files[0]), "-r", str(files[1]), "-t", str(targets))
    assert applied.returncode == 0, applied.stderr
    assert "pass: 1, fail: 0" in applied.stderr
    for words in (("lint", str(files[0])), ("test", str(ROOT / "docs/examples"))):
        done = retrofit(empty, *words)
        assert done.returncode == 0, done.stderr
    version = retrofit(empty, "version", "--client")
    assert PROJECT["version"] in version.stdout


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
    """Return the options after each pin of a requirements file, without comments."""
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


def test_every_runtime_pin_is_also_a_development_pin() -> None:
    run, dev = pins("run.txt"), pins("dev.txt")
    assert {pin: dev.get(pin) for pin in run} == run


def test_every_dependency_is_pinned() -> None:
    named = {re.split(r"[><=~!; \[]", text)[0].lower() for text in PROJECT["dependencies"]}
    assert named - {pin.partition("==")[0] for pin in pins("run.txt")} == set()


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
@pytest.mark.parametrize("system", ["darwin", "linux"])
@pytest.mark.parametrize("machine", ["x86_64", "arm64", "aarch64"])
def test_every_machine_has_one_pin_of_each_dependency(
    name: str, system: str, machine: str
) -> None:
    here = {"sys_platform": system, "platform_machine": machine}
    found = [Requirement(pin) for pin in pins(name)]
    there = [pin for pin in found if pin.marker is None or pin.marker.evaluate(here)]
    versions = {pin.name: next(iter(pin.specifier)).version for pin in there}
    assert len(versions) == len(there)
    lines = (ROOT / "requirements/limits.in").read_text().splitlines()
    limits = [line for line in lines if not line.startswith("#")]
    for limit in map(Requirement, (*limits, *PROJECT["dependencies"])):
        if limit.marker is None or limit.marker.evaluate(here):
            assert limit.specifier.contains(versions[limit.name])


def test_pages_name_this_version() -> None:
    """Users copy these from the pages: images, the action, pre-commit hooks, a chart revision."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    copied = re.compile(r"(?:kube-retrofit[:@]v?|rev: v|targetRevision: v)(\d+\.\d+\.\d+)")
    named = {version for page in pages for version in copied.findall(page.read_text())}
    assert named == {PROJECT["version"]}
    (supported,) = re.findall(r"\| (\S+), the newest release", (ROOT / "SECURITY.md").read_text())
    assert supported == PROJECT["version"].rpartition(".")[0]
