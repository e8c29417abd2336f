"""The figures of a run, and the tables that show them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from typing_extensions import override


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Two percentiles of durations, in seconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        """Return the percentiles by nearest rank; zeros for no values."""
        if not seconds:
            return cls(p50=0.0, p99=0.0)
        ordered = sorted(seconds)
        last = len(ordered) - 1
        return cls(p50=ordered[round(0.50 * last)], p99=ordered[round(0.99 * last)])

    @override
    def __format__(self, _: str) -> str:
        return f"{_time(self.p50)} / {_time(self.p99)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One run.

    Attributes:
        accepted: Triggers that the API server accepted.
        refused: Triggers that it refused.
        lost: Accepted triggers whose target never changed.
        per_second: Triggers per second, from the first call to the last change.
        create: Latency of the call that creates a trigger.
        patched: Time from the start of that call until the change of the target was observed.
    """

    accepted: int
    refused: int
    lost: int
    per_second: float
    create: Spread
    patched: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """API calls of both programs in a run.

    Attributes:
        by_what: Numbers of calls by verb and resource, such as ``create updaterequests``.
        aside: The same for watches, Leases and Events, which do not grow with the triggers.
    """

    by_what: dict[str, int] = field(default_factory=dict)
    aside: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident bytes of one program."""

    at_rest: int
    peak: int


@dataclass(slots=True)
class Figures:
    """All figures of a session; those of a part that did not run are None or empty."""

    bare: Phase | None = None
    pipeline: Phase | None = None
    steady: Phase | None = None
    calls: Calls | None = None
    memory: dict[str, Memory] = field(default_factory=dict)
    admitted: Sequence[Any] = ()
    mod_rules: Sequence[Any] = ()
    hooks: Sequence[Any] = ()
    installed: Sequence[Any] = ()
    sweeps: Sequence[Any] = ()
    sizes: Any = None

    @property
    def lost(self) -> int:
        """The number of accepted triggers without an effect."""
        return sum(phase.lost for phase in (self.bare, self.pipeline, self.steady) if phase)

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self) | {"lost": self.lost}


def tables(figures: Figures) -> list[Table]:
    """Return the tables of the runs, API calls and memory."""
    result = [_phases(figures)] if figures.bare or figures.pipeline or figures.steady else []
    if figures.calls and figures.pipeline:
        result.append(_calls(figures.calls, figures.pipeline.accepted))
    if figures.memory:
        result.append(_memory(figures.memory))
    return result


def _phases(figures: Figures) -> Table:
    columns = (
        "triggers",
        "refused",
        "lost",
        "triggers/s",
        "create p50 / p99",
        "to patched p50 / p99",
    )
    table = Table("run", *columns, title="Runs", title_justify="left")
    named = {"bare client": figures.bare, "pipeline": figures.pipeline, "steady": figures.steady}
    for name, phase in named.items():
        if phase:
            counts = map(str, (phase.accepted, phase.refused, phase.lost))
            speed = f"{phase.per_second:.1f}"
            table.add_row(name, *counts, speed, f"{phase.create}", f"{phase.patched}")
    return aligned(table)


def _calls(calls: Calls, triggers: int) -> Table:
    table = Table("call", "number", "per trigger", title="API calls of the pipeline run")
    total = sum(calls.by_what.values())
    for what, count in sorted(calls.by_what.items(), key=lambda entry: -entry[1]):
        table.add_row(what, str(count), f"{count / triggers:.3f}")
    table.add_row("all", str(total), f"{total / triggers:.3f}", style="bold")
    for what, count in sorted(calls.aside.items()):
        table.add_row(f"aside: {what}", str(count), "")
    return aligned(table)


def _memory(memory: dict[str, Memory]) -> Table:
    table = Table("program", "at rest", "peak", title="Resident memory")
    for name, used in memory.items():
        table.add_row(name, f"{used.at_rest / 1e6:.0f} MB", f"{used.peak / 1e6:.0f} MB")
    return aligned(table)


def aligned(table: Table) -> Table:
    """Return a table with its title on the left and its figures on the right."""
    table.title_justify = "left"
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
