"""The sources of the control plane's binaries, in order of precedence."""

import pwd
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster import binaries
from devcluster.binaries import NEEDED, Binaries, Source
from reconciler.errors import InvalidSetting

SOURCE = Source(
    kubernetes="v1.2.3",
    etcd="v4.5.6",
    go=(1, 26),
    digest="d" * 64,
    system="linux",
    machine="amd64",
)


def no_account(number: int) -> NoReturn:
    raise KeyError(f"getpwuid(): uid not found: {number}")


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which every source exists; tests remove those of higher precedence."""
    return {
        "HOME": str(tmp_path / "home"),
        "RETROFIT_CONTROL_PLANE": str(programs(tmp_path / "named", *NEEDED)),
        "XDG_CACHE_HOME": str(
            programs(
                tmp_path / "cache/kube-retrofit/control-plane" / SOURCE.key, "controlplane"
            ).parents[2]
        ),
        "KUBEBUILDER_ASSETS": str(programs(tmp_path / "assets", *NEEDED)),
        "PATH": str(programs(tmp_path / "bin", *NEEDED)),
    }


def found(environ: dict[str, str]) -> str:
    there = binaries.locate(environ, SOURCE)
    assert isinstance(there, Binaries)
    return there.command("etcd")[0]


def test_binaries_are_searched_in_the_order_of_their_sources(
    environ: dict[str, str], tmp_path: Path
) -> None:
    assert found(environ) == str(tmp_path / "named/etcd")
    del environ["RETROFIT_CONTROL_PLANE"]
    assert found(environ).endswith(f"cache/kube-retrofit/control-plane/{SOURCE.key}/controlplane")
    del environ["XDG_CACHE_HOME"]
    assert found(environ) == str(tmp_path / "assets/etcd")
    del environ["KUBEBUILDER_ASSETS"]
    assert found(environ) == str(tmp_path / "bin/etcd")
    del environ["PATH"]
    assert binaries.locate(environ, SOURCE) is None


def test_the_cache_of_another_version_is_not_used(environ: dict[str, str]) -> None:
    cache = {"XDG_CACHE_HOME": environ["XDG_CACHE_HOME"]}
    other = Source(
        kubernetes="v1.2.4",
        etcd="v4.5.6",
        go=(1, 26),
        digest="d" * 64,
        system="linux",
        machine="a",
    )
    assert binaries.locate(cache, SOURCE)
    assert binaries.locate(cache, other) is None


def test_without_xdg_the_cache_is_in_the_home_folder(tmp_path: Path) -> None:
    root = binaries.cache_root({"HOME": str(tmp_path)})
    assert root == tmp_path / ".cache/kube-retrofit/control-plane"


def test_without_a_home_folder_the_variables_that_set_one_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may run under a number that no account has."""

    monkeypatch.setattr(pwd, "getpwuid", no_account)
    monkeypatch.delenv("HOME")
    for environ in ({}, {"HOME": ""}):
        with pytest.raises(InvalidSetting, match="set HOME, or XDG_CACHE_HOME"):
            binaries.locate(environ, SOURCE)
    folder = str(programs(tmp_path, *NEEDED))
    assert binaries.locate({"RETROFIT_CONTROL_PLANE": folder}, SOURCE)


@pytest.mark.parametrize("missing", NEEDED)
def test_path_is_used_only_if_it_has_all_programs(tmp_path: Path, missing: str) -> None:
    folder = programs(tmp_path, *(name for name in NEEDED if name != missing))
    assert binaries.installed({"PATH": str(folder)}) is None


def test_assets_and_path_complement_each_other(tmp_path: Path) -> None:
    assets = programs(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl")
    path = programs(tmp_path / "bin", "kube-controller-manager", "kubectl")
    there = binaries.installed({"KUBEBUILDER_ASSETS": str(assets), "PATH": str(path)})
    assert there
    assert there.command("kubectl") == (str(assets / "kubectl"),)
    assert there.command("kube-controller-manager") == (str(path / "kube-controller-manager"),)


def test_a_bundle_receives_the_name_of_the_program_as_an_argument(tmp_path: Path) -> None:
    bundle = programs(tmp_path, "controlplane") / "controlplane"
    for value in (tmp_path, bundle):
        there = binaries.named({"RETROFIT_CONTROL_PLANE": str(value)})
        assert isinstance(there, Binaries)
        assert there.command("kube-scheduler") == (str(bundle), "kube-scheduler")


@pytest.mark.parametrize("name", ["RETROFIT_CONTROL_PLANE", "KUBEBUILDER_ASSETS", "PATH"])
def test_a_relative_folder_is_found_from_every_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`retrofit dev up` links kubectl in another folder, and a test may change its own."""
    programs(tmp_path / "bin", *NEEDED)
    monkeypatch.chdir(tmp_path)
    assert found({"HOME": str(tmp_path), name: "bin"}) == str(tmp_path / "bin/etcd")


def test_a_kubeconfig_can_be_named_in_place_of_binaries(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("kind: Config\n")
    assert binaries.named({"RETROFIT_CONTROL_PLANE": str(kubeconfig)}) == kubeconfig


def test_an_invalid_setting_is_reported_and_not_ignored(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["RETROFIT_CONTROL_PLANE"] = str(tmp_path / "absent")
    with pytest.raises(InvalidSetting, match="absent does not exist"):
        binaries.locate(environ, SOURCE)
    environ["RETROFIT_CONTROL_PLANE"] = str(programs(tmp_path / "half", "etcd"))
    with pytest.raises(InvalidSetting, match="neither controlplane nor all of etcd, kube-api"):
        binaries.locate(environ, SOURCE)


def test_a_program_that_a_folder_lacks_is_reported(tmp_path: Path) -> None:
    there = binaries.in_folder(programs(tmp_path, *NEEDED), "a folder")
    assert there
    with pytest.raises(InvalidSetting, match=r"kube-scheduler is not part of .* a folder"):
        there.command("kube-scheduler")


def test_the_versions_are_read_from_the_source() -> None:
    source = binaries.read_source()
    assert source.kubernetes.startswith("v1.")
    assert source.etcd.startswith("v3.")
    assert source.go >= (1, 26)
    assert source.key.startswith(f"{source.kubernetes}-{source.digest[:12]}-")


SOURCES = ("go.mod", "go.sum", "main.go", "node_linux.go")


@given(st.sampled_from(SOURCES), st.text(min_size=1))
def test_every_change_of_the_source_changes_the_key(
    tmp_path_factory: pytest.TempPathFactory, name: str, addition: str
) -> None:
    folder = tmp_path_factory.mktemp("source")
    for each in SOURCES:
        (folder / each).write_bytes((binaries.GO_SOURCES / each).read_bytes())
    before = binaries.read_source(folder).key
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(f"\n// {addition!r}")
    assert binaries.read_source(folder).key != before
