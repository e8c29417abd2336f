"""The Dockerfile passes its linter and builds for both machine architectures."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.conftest import ROOT

HADOLINT = Path(sys.executable).with_name("hadolint")


@pytest.mark.skipif(not HADOLINT.exists(), reason="there is no hadolint for this machine")
def test_the_dockerfile_passes_its_linter() -> None:
    done = subprocess.run(
        [HADOLINT, "--failure-threshold=style", ROOT / "Dockerfile"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_dockerfile_names_no_architecture() -> None:
    """A base image or a file of one platform would break the build for the other."""
    text = (ROOT / "Dockerfile").read_text()
    assert "--platform" not in text
    assert [name for name in ("amd64", "arm64", "x86_64", "aarch64") if name in text] == []


def test_python_in_a_hook_is_that_of_the_base_image() -> None:
    """Users install packages for it; the program's own has those of the program only."""
    _, _, stage = (ROOT / "Dockerfile").read_text().partition(" AS hooks\n")
    (line,) = (line for line in stage.split("\nFROM ")[0].splitlines() if "PATH" in line)
    assert "ENV PATH=$PATH:/opt/retrofit/bin " in line
