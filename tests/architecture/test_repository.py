"""Text that no file of the repository may contain, required files, and rules of the Makefile."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.state import process_mark
from devcluster.waiting import wait_until
from tests.architecture.conftest import ROOT, relative, tracked_files

MAKEFILE = ROOT / "Makefile"
# Written so that this file does not find itself.
LEFT_OVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b")
HOME = re.compile(r"(?<![\w.-])/(?:root|home/[\w.-]+|Users/[\w.-]+)/")
INDEX = re.compile(
    r"--(?:extra-)?index-url|GO(?:PROXY|SUMDB)=|find-links"
    r"|\b(?:pypi|pythonhosted)\.org\b|\b(?:proxy|sum)\.golang\.org\b"
)
TARGET = re.compile(r"^([a-z][a-z0-9-]*):(?!=)(.*)$", re.MULTILINE)


def lines(pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield each line of the repository that matches a pattern, with its file and number."""
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path == Path(__file__) or not pattern.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                yield f"{relative(path)}:{number}: {line.strip()[:100]}"


def here() -> re.Pattern[str]:
    """Return a pattern for paths of this machine: the checkout, its parent, home folders."""
    places = {str(ROOT), str(ROOT.parent), str(Path.home())}
    # Too general to identify this machine if the checkout lies directly below one of them.
    places -= {"/", "/tmp", tempfile.gettempdir(), "/src", "/app"}
    named = "|".join(re.escape(place) for place in sorted(places))
    return re.compile(rf"(?<![\w.-])(?:{named})/|{HOME.pattern}")


def test_no_file_contains_a_path_of_a_machine() -> None:
    assert list(lines(here())) == []


def test_no_file_contains_the_address_of_a_package_index() -> None:
    assert list(lines(INDEX)) == []


def test_no_file_contains_a_marker_of_unfinished_work() -> None:
    assert list(lines(LEFT_OVER)) == []


def test_the_required_files_exist() -> None:
    names = {relative(path) for path in tracked_files()}
    wanted = {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", ".ci/run", "pyproject.toml"}
    wanted |= {"CONTRIBUTING.md", "SECURITY.md"}
    assert wanted - names == set()
    assert os.access(ROOT / ".ci/run", os.X_OK)


def targets() -> dict[str, str]:
    return dict(TARGET.findall(MAKEFILE.read_text()))


def test_every_target_has_a_help_text() -> None:
    assert {name for name, rest in targets().items() if " ## " not in rest} == set()


def test_every_target_is_phony() -> None:
    text = MAKEFILE.read_text().replace("\\\n", " ")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == set(targets())


def test_make_alone_lists_every_target() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("MAKE")},
    )
    listed = re.findall(r"^  ([a-z0-9-]+)  ", done.stdout, re.MULTILINE)
    assert listed == list(targets())


@pytest.mark.parametrize("feature", ["!=", "::=", "&:", ".ONESHELL", "$(file "])
def test_the_makefile_keeps_to_make_3_81(feature: str) -> None:
    code = [line for line in MAKEFILE.read_text().splitlines() if not line.startswith("\t")]
    assert [line for line in code if feature in line] == []


def test_make_clean_keeps_what_a_cluster_is_found_by_if_it_cannot_end_it(tmp_path: Path) -> None:
    """Ending it takes the environment, which may be removed already, and is made again."""
    (tmp_path / "Makefile").write_text(MAKEFILE.read_text())
    state = tmp_path / ".retrofit/state.json"
    for file in (state, tmp_path / "requirements/dev.txt", tmp_path / "pyproject.toml"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    command = ["make", "clean", "PYTHON=none"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "no Python 3.11" in done.stderr
    assert done.returncode != 0
    assert state.exists()
    state.unlink()
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert not state.parent.exists()


def ci(folder: Path, change: tuple[str, str], make: str) -> subprocess.Popen[str]:
    """Start a copy of the script, with a change in its text and another `make`."""
    script = folder / ".ci/run"
    script.parent.mkdir()
    text = (ROOT / ".ci/run").read_text()
    assert change[0] in text
    script.write_text(text.replace(*change))
    programs = folder / "bin"
    programs.mkdir()
    for name in ("make", "jq", "chromium", "python3"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{folder}/calls"\n')
        (programs / name).chmod(0o755)
    with (programs / "make").open("a") as file:
        file.write(make)
    return subprocess.Popen(
        ["bash", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )


def test_ci_tries_nothing_again_after_its_time(tmp_path: Path) -> None:
    with ci(tmp_path, ("80 * 60", "3"), "exec sleep 30\n") as program:
        _, said = program.communicate(timeout=60)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if call.startswith("make")] == ["make check"]
    assert program.returncode == 124
    assert "stopped after 80 minutes" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ci_ends_at_once_with_all_that_it_started(tmp_path: Path, number: signal.Signals) -> None:
    """A signal to the script alone, as of a system that stops a job."""
    children = tmp_path / "children"
    children.touch()
    # One of them leaves the group of processes, as the servers of tests do.
    make = f"setsid sleep 60 & echo $! >>{children}; echo $$ >>{children}; exec sleep 60\n"
    with ci(tmp_path, ("", ""), make) as program:
        wait_until(
            lambda: len(children.read_text().split()) == 2,
            within=30.0,
            what="make runs",
        )
        program.send_signal(number)
        _, said = program.communicate(timeout=20)
    assert program.returncode == 128 + number
    assert "make" in (tmp_path / "calls").read_text()
    assert "left behind" not in said
    assert not any(process_mark(int(child)) for child in children.read_text().split())


def test_ci_requires_the_conformance_data() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert "export CONFORMANCE_REQUIRED=1" in script
    assert "make check" in script
