"""`retrofit test` with several processes, and with --watch."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.cli.desk.suite import watch
from reconciler.cli.desk.suite.parallel import run_file
from reconciler.cli.output.exits import INTERRUPTED
from reconciler.clock import SystemClock
from tests.unit.cli.desk.conftest import Desk

MAIN = """
import socket
from reconciler.cli.main import main
main()
"""
PROGRAM = (sys.executable, "-c", MAIN)
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: "yes"}}}}
"""
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"
TEST = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: %s}
policies: [../p.yaml]
resources: [%s]
results: [{policy: p, rule: label, kind: ConfigMap, resources: [one], result: %s}]
"""


def folder(desk: Desk, name: str, *, resource: str = "../one.yaml", result: str = "pass") -> None:
    desk.write("p.yaml", POLICY)
    desk.write("one.yaml", OBJECT)
    desk.write(f"{name}/kyverno-test.yaml", TEST % (name, resource, result))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    # Run as a program of its own, so that its fork server ends with it.
    command = [*PROGRAM, "test", ".", "-o", "json", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_results_are_in_the_order_of_the_folders(desk: Desk) -> None:
    for index in range(5):
        folder(desk, f"t{index}", result="skip" if index == 3 else "pass")
    folder(desk, "t2", resource="../absent.yaml")
    several, one = (run("--jobs", jobs) for jobs in ("3", "1"))
    assert several.returncode == one.returncode == 1
    assert several.stdout == one.stdout
    found = json.loads(several.stdout)
    assert [item["name"] for item in found["tests"]] == ["t0", "t1", "t3", "t4"]
    assert found["counts"]["Fail"] == 1
    assert found["broken"] == ["t2/kyverno-test.yaml: t2/../absent.yaml: there is no such file"]


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process in /proc")
def test_a_process_that_dies_is_reported_as_an_error_of_its_folder(desk: Desk) -> None:
    for name in ("a", "c", "d"):
        folder(desk, name)
    with _ends_its_callers() as address:
        folder(desk, "b", resource=f"{address}/x.yaml")
        done = run("--jobs", "2")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert [item["name"] for item in found["tests"]] == ["a", "c", "d"]
    assert found["broken"] == ["b/kyverno-test.yaml: the process that ran it ended"]


@contextlib.contextmanager
def _ends_its_callers() -> Iterator[str]:
    """Yield the address of a server that answers no call but kills the calling process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, (_, port) = listener.accept()
                    os.kill(_process_of(port, listener.getsockname()[1]), signal.SIGKILL)
                    caller.close()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _process_of(port: int, to: int) -> int:
    """Return the PID of the process that has a connection from one local port to another."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = (line[9] for line in lines if (_port(line[1]), _port(line[2])) == (port, to))
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()) == f"socket:[{inode}]":
                return int(link.parts[2])
    raise AssertionError(f"nobody has port {port}")


def _port(address: str) -> int:
    return int(address.partition(":")[2], 16)


def test_a_change_is_reported_only_after_the_file_stops_changing(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a")
    before = watch.state_of([tmp_path])
    looks: list[watch.State] = []

    def look() -> watch.State:
        if len(looks) < 3:
            file.write_text("a" * (len(looks) + 2))
        looks.append(watch.state_of([tmp_path]))
        return looks[-1]

    assert watch.changed_after(look, before, SystemClock()) == [file]
    assert len(looks) == 4


def test_files_that_a_test_names_are_watched(desk: Desk) -> None:
    folder(desk, "t", resource="../more/*.yaml")
    (desk.folder / "more").mkdir()
    places = watch.places_of([Path("t/kyverno-test.yaml")])
    assert places == {Path("t/kyverno-test.yaml"), Path("t/../p.yaml"), Path("t/../more")}
    desk.write("more/new.yaml", OBJECT)
    desk.write("more/notes.txt", "")
    assert Path("t/../more/new.yaml") in watch.state_of(places)
    assert Path("t/../more/notes.txt") not in watch.state_of(places)


@pytest.fixture
def watching(desk: Desk) -> Iterator[Callable[[str], str]]:
    folder(desk, "t")
    words = [*PROGRAM, "test", "t", "--watch"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdout is not None
        lines = iter(program.stdout.readline, "")

        def until(end: str) -> str:
            seen = []
            for line in lines:
                seen.append(line)
                if end in line:
                    return "".join(seen)
            raise AssertionError(f"{end} never came: {seen}")

        try:
            yield until
            program.send_signal(signal.SIGINT)
            assert program.wait(timeout=20) == INTERRUPTED
        finally:
            program.kill()
        assert "Traceback" not in "".join(lines)


def test_a_change_of_a_named_file_runs_the_tests_again(
    desk: Desk, watching: Callable[[str], str]
) -> None:
    assert "1 passed, 0 failed" in watching("broken test")
    desk.write("p.yaml", POLICY.replace("kinds: [ConfigMap]", "kinds: []"))
    output = watching("broken test")
    assert "changed: t/../p.yaml\n" in output
    assert "Invalid policy" in output
    desk.write("one.yaml", "apiVersion: [")
    assert "../one.yaml:" in watching("1 broken test")
    desk.write("one.yaml", OBJECT)
    desk.write("p.yaml", POLICY)
    assert "1 passed" in watching("0 broken test")


def test_watching_is_refused_with_json_output(desk: Desk) -> None:
    folder(desk, "t")
    assert desk.run("test", "t", "--watch", "-o", "json").exit_code == 2


def test_a_broken_test_leaves_the_results_of_earlier_tests_of_its_file(desk: Desk) -> None:
    folder(desk, "a")
    path = desk.folder / "a/kyverno-test.yaml"
    path.write_text(path.read_text() + "---" + TEST % ("b", "../absent.yaml", "pass"))
    done = run_file(path)
    assert [item.test.name for item in done.runs] == ["a"]
    assert "absent.yaml: there is no such file" in done.broken
