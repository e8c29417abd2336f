"""The command ``cue`` at the desk: which one, where somebody names it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from reconciler.services.ports.cue import Cue

T = TypeVar("T", bound=Callable[..., Any])

NO_CUE = "programs in CUE are evaluated where --cue names the command cue"


def cue_option(command: T) -> T:
    """Give a click command the flag ``--cue``."""
    return click.option(
        "--cue",
        default="",
        metavar="FILE",
        help="The command cue, which evaluates the CUE of kinitiras' policies.",
    )(command)


def cue_of(name: str) -> Cue | None:
    """Return what evaluates programs, None where nobody names a command.

    Args:
        name: A file, or a command as a shell finds it.

    Raises:
        InvalidSetting: There is no such command.
    """
    if not name:
        return None
    # Most calls have no use for it.
    from reconciler.isolation.cue import cue_at  # noqa: PLC0415

    return cue_at(str(Path(shutil.which(name) or name).absolute()))
