"""Measures the memory that the CRDs of more languages, and of hooks, cost if they are unused."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from devcluster.cluster import ControlPlane
from devcluster.install import ProgramSettings
from devcluster.programs import ADMISSION, CONTROLLER, start_programs
from devcluster.waiting import pause
from reconciler.cli.manifests import find_manifests
from tests.bench.processes import resident

_STEPS: Final = {
    "Kyverno's policies alone": "",
    "and ModRules": "manifests/dialects/kubemod",
    "and policies of kinitiras": "manifests/dialects/kinitiras",
    "and hooks": "crds/hooks",
}
_CALM: Final = 5.0
"""Seconds after which a ready program has loaded everything that it keeps in memory."""
_MOST: Final = 5e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Resident bytes of the programs, by name, with the named CRDs installed."""

    what: str
    resident: Mapping[str, int]


def measure(plane: ControlPlane, settings: Mapping[str, ProgramSettings]) -> list[Installed]:
    """Return the memory of freshly started programs, each time with one more step installed."""
    found = []
    for what, folder in _STEPS.items():
        if folder:
            place = str(find_manifests() / folder)
            plane.kubectl("apply", "--server-side", "-k", place)
        with start_programs(plane, settings=settings) as programs:
            pause(_CALM)
            pids = programs.supervision.pids
            sizes = {name: asyncio.run(resident(pids[name])) for name in (ADMISSION, CONTROLLER)}
        found.append(Installed(what=what, resident=sizes))
    return found


def table(steps: Sequence[Installed]) -> Table:
    """Return the table of steps, with values above the limit marked."""
    title = f"Memory at rest, and what a language without objects adds ({_MOST / 1e6:.0f} MB)"
    found = Table("installed", *steps[0].resident, title=title, title_justify="left")
    for before, step in zip((steps[0], *steps), steps, strict=False):
        found.add_row(step.what, *(_shown(step, before, name) for name in step.resident))
    return found


def _shown(step: Installed, before: Installed, name: str) -> str:
    more = step.resident[name] - before.resident[name]
    added = f"{more / 1e6:+.1f}" if step is not before else ""
    colour = "[red]{}[/red]" if more > _MOST else "{}"
    return f"{step.resident[name] / 1e6:.0f} MB {colour.format(added)}"
