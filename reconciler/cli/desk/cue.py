"""The option ``--cue``, which names the command that evaluates CUE programs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from reconciler.services.ports.cue import Cue

T = TypeVar("T", bound=Callable[..., Any])

NO_CUE = "programs in CUE are evaluated where --cue names the cue command"


def cue_option(command: T) -> T:
    """Add the option ``--cue`` to a click command."""
    return click.option(
        "--cue",
        default="",
        metavar="FILE",
        help="The cue command, which evaluates the CUE of kinitiras' policies.",
    )(command)


def cue_of(name: str) -> Cue | None:
    """Return the evaluator of CUE programs, None where no command is named.

    Args:
        name: A file, or the name of a command in PATH.

    Raises:
        InvalidSetting: The command does not exist.
    """
    if not name:
        return None
    # Imported lazily: most calls evaluate no CUE.
    from reconciler.isolation.cue import cue_at  # noqa: PLC0415

    return cue_at(str(Path(shutil.which(name) or name).absolute()))
