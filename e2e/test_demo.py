"""A user runs `retrofit dev demo`."""

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import state
from devcluster.binaries import Binaries

RETROFIT = Path(sys.executable).with_name("retrofit")
# The promised seconds, for an idle machine; this machine may have other work.
PROMISED = 60.0
FACTS = (
    r"3 of 5 Deployments restarted: those that mount prices",
    r"team=payments on all 6 workloads of namespace shop, on none elsewhere",
    r"500 existing ConfigMaps changed in [0-9.]+ s \(\d+ per second\)",
    r"refused with the role to grant; taken away and given back, it went on in [0-9.]+ s",
)

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def _own_cluster(machine: Binaries | Path) -> None:
    if isinstance(machine, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster; the demo starts one of its own")


def run(temporary: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RETROFIT, "dev", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        # As after `make demo` in a fresh shell, which has no retrofit.
        env={**os.environ, "TMPDIR": str(temporary), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        cwd=temporary,
    )


def test_the_demo_shows_all_four_facts_and_leaves_no_file(tmp_path: Path) -> None:
    done = run(tmp_path, "demo")
    assert (done.returncode, done.stderr) == (0, "")
    epilogue = done.stdout.partition("What you have seen")[2]
    for fact in FACTS:
        assert re.search(fact, epilogue), fact
    assert f'eval "$({RETROFIT} dev up)"' in epilogue
    assert "\x1b" not in done.stdout
    (seconds,) = re.findall(r"^([0-9.]+) s in all\.$", done.stdout, re.MULTILINE)
    assert float(seconds) < PROMISED
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_the_colours_of_the_demo_are_colours(tmp_path: Path) -> None:
    near, far = pty.openpty()
    with subprocess.Popen(
        [RETROFIT, "dev", "demo"],
        stdin=subprocess.DEVNULL,
        stdout=far,
        stderr=far,
        env={**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm", "NO_COLOR": ""},
        cwd=tmp_path,
    ) as process:
        os.close(far)
        # Reading a closed terminal ends with an error, not with an end of file.
        shown = b""
        with os.fdopen(near, "rb", 0) as stream, contextlib.suppress(OSError):
            while chunk := stream.read(65536):
                shown += chunk
        assert process.wait(timeout=200) == 0
    text = shown.decode()
    assert "\x1b[1m1  A changed ConfigMap" in text
    assert "\\x1b" not in text


def test_with_keep_the_cluster_of_the_demo_runs_until_down(tmp_path: Path) -> None:
    done = run(tmp_path, "demo", "--keep", "--dir", "here")
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert f"export KUBECONFIG={tmp_path}/here/kubeconfig" in done.stdout
        assert f"{RETROFIT} dev down --dir {tmp_path}/here" in done.stdout
        assert run(tmp_path, "status", "--dir", "here").returncode == 0
        again = run(tmp_path, "demo", "--keep", "--dir", "here")
        assert again.returncode == 2
        assert "already" in again.stderr
        left = state.load(tmp_path / "here")
        assert left
    finally:
        ended = run(tmp_path, "down", "--dir", "here")
    assert ended.returncode == 0
    assert not any(process.running() for group in left.groups() for process in group.members)
