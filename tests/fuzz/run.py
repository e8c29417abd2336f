"""Runs the fuzzers in turns for some minutes (`make fuzz`)."""

import sys
import time
from collections import Counter

import click
from rich.console import Console
from rich.table import Table

from tests.fuzz import http, pipeline
from tests.fuzz.fuzzing import Fuzzer

FUZZERS = {fuzzer.name: fuzzer for fuzzer in (*http.FUZZERS, *pipeline.FUZZERS)}
_TURN = 200
"""Inputs of one turn; the next turn starts new servers."""


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="Until no turn is begun.")
@click.option("--only", type=click.Choice(sorted(FUZZERS)), multiple=True, help="All by default.")
def main(minutes: float, only: tuple[str, ...]) -> None:
    """Print how many inputs were tried, and those that were met with a fault."""
    console = Console()
    end = time.monotonic() + 60 * minutes
    chosen = [FUZZERS[name] for name in only or FUZZERS]
    tried: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    while time.monotonic() < end:
        fuzzer = chosen.pop(0)
        chosen.append(fuzzer)
        begun = time.monotonic()
        faults[fuzzer.name] += not _turn(fuzzer, tried, console)
        seconds[fuzzer.name] += round(time.monotonic() - begun)
    table = Table("way in", "inputs", "minutes", "faults")
    for name in tried:
        table.add_row(name, str(tried[name]), f"{seconds[name] / 60:.1f}", str(faults[name]))
    console.print(table)
    sys.exit(1 if faults.total() else 0)


def _turn(fuzzer: Fuzzer, tried: Counter[str], console: Console) -> bool:
    """Run a fuzzer for one turn, print a failure, and return whether there was none."""
    try:
        fuzzer.run(_TURN, lambda: tried.update([fuzzer.name]))
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        console.print(f"[bold]{fuzzer.name}[/]: found a fault")
        console.print_exception(max_frames=8)
        return False
    return True


if __name__ == "__main__":
    main()
