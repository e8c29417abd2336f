"""Fixtures that write scripts and run them as hooks."""

import os
from pathlib import Path

import pytest

from reconciler.execution.discovery import Executable
from reconciler.execution.environment import clean_environment
from reconciler.execution.executables import Executables
from reconciler.execution.limits import HookLimits
from reconciler.execution.workspace import clear

SECONDS = 20.0
"""The time limit of a run, far more than any script here needs."""


@pytest.fixture
def executables(tmp_path: Path) -> Executables:
    folder = tmp_path / "tmp"
    clear(folder)
    environment = clean_environment({**os.environ, "TOKEN": "secret"}, ())
    return Executables(
        folder=folder,
        environment=environment,
        limits=HookLimits(config_seconds=SECONDS, grace=0.2),
    )


def script(tmp_path: Path, *lines: str, shell: str = "#!/bin/sh") -> Executable:
    path = tmp_path / "hooks/some/hook.sh"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("\n".join([shell, *lines, ""]))
    path.chmod(0o755)
    return Executable("some/hook.sh", path)
