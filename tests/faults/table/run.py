"""`make faults`: everything that goes wrong, and what became of the triggers, as a table."""

import asyncio
import contextlib
import itertools
import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from devcluster.binaries import Binaries, locate, read_source
from devcluster.programs import ADMISSION, CONTROLLER
from devcluster.supervision import last_lines
from reconciler.clock import SystemClock
from tests.faults.table.counting import Row
from tests.faults.table.play import Scenario, play
from tests.faults.table.scenarios import scenarios
from tests.faults.table.stage import House, open_house

_WIDTH = 80
_MOST_SHOWN = 2000
_LOG_LINES = 25
_PROGRESS = Console(stderr=True)


@click.command()
@click.option("--only", help="Scenarios whose name contains this text.")
@click.option("--short", is_flag=True, help="The short form, which `make test` plays too.")
def main(*, only: str | None, short: bool) -> None:
    """Print the table; ends with 1 where a promise was broken."""
    chosen = [
        item for item in scenarios() if (only or "") in item.name and (item.short or not short)
    ]
    if not chosen:
        raise click.ClickException(f"no scenario's name contains {only!r}")
    rows = played(_binaries(), chosen, short=short)
    Console(width=_WIDTH).print(table(rows))
    sys.exit(0 if all(row.good for row in rows) else 1)


def played(binaries: Binaries, chosen: Sequence[Scenario], *, short: bool) -> list[Row]:
    """Play scenarios one after another; those of one setting share a control plane."""
    rows: list[Row] = []
    for setting, group in itertools.groupby(chosen, key=lambda item: item.setting):
        left = deque(group)
        while left:
            # What could not be played to its end leaves a control plane that nobody knows.
            with open_house(binaries, setting) as house, contextlib.suppress(Unplayed):
                while left:
                    item = left.popleft()
                    rows.append(_row(house, item.shortened() if short else item))
                    if rows[-1].problem:
                        raise Unplayed
    return rows


class Unplayed(Exception):
    """A scenario did not come to its end."""


def _row(house: House, scenario: Scenario) -> Row:
    clock = SystemClock()
    begun = clock.monotonic()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            row = runner.run(play(house, scenario))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other rows are worth having
        _PROGRESS.print_exception()
        row = Row(name=scenario.name, failure_policy=scenario.failure_policy, problem=str(error))
    _PROGRESS.print(f"{scenario.name}: {clock.monotonic() - begun:.0f} s")
    if not row.good:
        _explain(house, row)
    return row


def _explain(house: House, row: Row) -> None:
    """Show what helps to find out why a promise was broken, before the logs are gone."""
    _PROGRESS.print(f"not healed: {row.left[:_MOST_SHOWN]}", markup=False)
    for name in (ADMISSION, CONTROLLER):
        log = house.programs.logs / f"{name}.log"
        _PROGRESS.print(f"{name}:\n{last_lines(log, _LOG_LINES)}", markup=False)


def table(rows: Sequence[Row]) -> Table:
    """Return what the table shows; a promise that was broken is marked."""
    result = Table(box=None, padding=(0, 1, 0, 0))
    result.add_column("Scenario")
    result.add_column("Policy")
    for column in ("Accepted", "Refused", "Applied", "Lost", "Told", "Twice", "Heal"):
        result.add_column(column, justify="right")
    for row in rows:
        numbers = (row.accepted, row.refused, row.applied, row.lost, row.told, row.twice)
        heal = "never" if row.heal is None else f"{row.heal:.1f} s"
        name = row.name if row.good else f"[red]BROKEN[/red] {row.name}"
        if row.problem:
            result.add_row(f"{name}: {escape(row.problem)}", row.failure_policy)
            continue
        result.add_row(name, row.failure_policy, *map(str, numbers), heal)
    return result


def _binaries() -> Binaries:
    found = locate(os.environ, read_source())
    if isinstance(found, Path):
        raise click.ClickException(
            "RETROFIT_CONTROL_PLANE names a cluster, which nobody may break"
        )
    if found is None:
        raise click.ClickException("no control plane on this machine: run `make control-plane`")
    return found


if __name__ == "__main__":
    main()
