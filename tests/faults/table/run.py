"""`make faults`: plays all fault scenarios and prints the results for triggers and hooks."""

import asyncio
import contextlib
import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from secrets import randbelow
from typing import Any, TypeVar

import click
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from devcluster.binaries import Binaries, locate, read_source
from devcluster.supervision import last_lines
from reconciler.clock import SystemClock
from tests.faults.table.counting import Row
from tests.faults.table.hooking import HookRow
from tests.faults.table.hookscenes import HookScenario, hook_scenarios, play_hooks
from tests.faults.table.play import Scenario, play
from tests.faults.table.scenarios import scenarios
from tests.faults.table.stage import House, Setting, open_house

_WIDTH = 80
_MOST_SHOWN = 2000
_LOG_LINES = 25
_PROGRESS = Console(stderr=True)

R = TypeVar("R", Row, HookRow)


@click.command()
@click.option("--only", help="Scenarios whose name contains this text.")
@click.option("--short", is_flag=True, help="The short form, which `make test` plays too.")
@click.option("--seed", type=int, help="Of the random moments; by default another one each time.")
def main(*, only: str | None, short: bool, seed: int | None) -> None:
    """Print the tables; ends with 1 where a promise was broken."""
    chosen = [
        item for item in scenarios() if (only or "") in item.name and (item.short or not short)
    ]
    hooks = [
        item
        for item in hook_scenarios()
        if (only or "") in f"{item.name} {item.program}" and not short
    ]
    if not chosen and not hooks:
        raise click.ClickException(f"no scenario's name contains {only!r}")
    binaries, console = _binaries(), Console(width=_WIDTH)
    rows = played(binaries, chosen, short=short)
    if rows:
        console.print(table(rows))
    seed = randbelow(1 << 32) if seed is None else seed
    hook_rows = played_hooks(binaries, hooks, seed)
    if hook_rows:
        console.print(hook_table(hook_rows))
        console.print(f"--seed {seed}")
    good = all(row.good for row in rows) and all(row.good for row in hook_rows)
    sys.exit(0 if good else 1)


def played(binaries: Binaries, chosen: Sequence[Scenario], *, short: bool) -> list[Row]:
    """Play scenarios one after another; those of one setting share a control plane."""
    rows: list[Row] = []
    for setting, group in itertools.groupby(chosen, key=lambda item: item.setting):
        left = deque(group)
        while left:
            # After a problem the state of the control plane is undefined, so start a new one.
            with open_house(binaries, setting) as house, contextlib.suppress(Unplayed):
                while left:
                    item = left.popleft()
                    rows.append(_row(house, item.shortened() if short else item))
                    if rows[-1].problem:
                        raise Unplayed
    return rows


def played_hooks(binaries: Binaries, chosen: Sequence[HookScenario], seed: int) -> list[HookRow]:
    """Play hook scenarios one after another; a problem causes the start of a new control plane."""
    rows: list[HookRow] = []
    left = deque(chosen)
    while left:
        with open_house(binaries, Setting()) as house, contextlib.suppress(Unplayed):
            while left:
                item = left.popleft()
                rows.append(_hook_row(house, item, seed))
                if rows[-1].problem:
                    raise Unplayed
    return rows


class Unplayed(Exception):
    """Signals that a scenario was not played to its end."""


def _row(house: House, scenario: Scenario) -> Row:
    def unplayed(problem: str) -> Row:
        policy = scenario.failure_policy
        return Row(name=scenario.name, failure_policy=policy, problem=problem)

    row = _played(scenario.name, play(house, scenario), unplayed)
    if not row.good:
        _explain(house, row.left)
    return row


def _hook_row(house: House, scenario: HookScenario, seed: int) -> HookRow:
    def unplayed(problem: str) -> HookRow:
        return HookRow(name=scenario.name, program=scenario.program, problem=problem)

    row = _played(scenario.name, play_hooks(house, scenario, seed), unplayed)
    if not row.good:
        _explain(house, row.left)
    return row


def _played(name: str, playing: Coroutine[Any, Any, R], unplayed: Callable[[str], R]) -> R:
    """Play a scenario and return its row, or a row with the problem if the scenario fails."""
    clock = SystemClock()
    begun = clock.monotonic()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            row = runner.run(playing)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other rows are worth having
        _PROGRESS.print_exception()
        row = unplayed(str(error))
    what = "kept" if row.good else "BROKEN"
    _PROGRESS.print(f"{name}: promise {what}, {clock.monotonic() - begun:.0f} s", markup=False)
    return row


def _explain(house: House, left: str) -> None:
    """Print what has not healed and the ends of the logs, before the logs are removed."""
    _PROGRESS.print(f"not healed: {left[:_MOST_SHOWN]}", markup=False)
    for log in sorted(house.programs.logs.glob("retrofit-*.log")):
        _PROGRESS.print(f"{log.stem}:\n{last_lines(log, _LOG_LINES)}", markup=False)


def table(rows: Sequence[Row]) -> Table:
    """Return the table of the scenarios, with broken promises marked."""
    result = Table(box=None, padding=(0, 1, 0, 0))
    result.add_column("Scenario")
    result.add_column("Policy")
    for column in ("Accepted", "Refused", "Applied", "Lost", "Told", "Twice", "Heal"):
        result.add_column(column, justify="right")
    for row in rows:
        numbers = (row.accepted, row.refused, row.applied, row.lost, row.reported, row.twice)
        heal = "never" if row.heal is None else f"{row.heal:.1f} s"
        name = row.name if row.good else f"[red]BROKEN[/red] {row.name}"
        if row.problem:
            result.add_row(f"{name}: {escape(row.problem)}", row.failure_policy)
            continue
        result.add_row(name, row.failure_policy, *map(str, numbers), heal)
    return result


def hook_table(rows: Sequence[HookRow]) -> Table:
    """Return the table of the hook scenarios, with broken promises marked."""
    result = Table(box=None, padding=(0, 1, 0, 0))
    result.add_column("Scenario")
    result.add_column("Run by")
    for column in ("Kills", "Events", "Lost", "Twice", "Late", "Heal"):
        result.add_column(column, justify="right")
    for row in rows:
        numbers = (row.kills, row.events, row.lost, row.twice, row.unordered)
        heal = "never" if row.heal is None else f"{row.heal:.1f} s"
        name = row.name if row.good else f"[red]BROKEN[/red] {row.name}"
        problem = row.problem or ("" if row.stuck else "no queue was held up")
        if problem:
            result.add_row(f"{name}: {escape(problem)}", row.program)
            continue
        result.add_row(name, row.program, *map(str, numbers), heal)
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
