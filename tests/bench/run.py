"""Measures engine, handler, calls, desk, and the pipeline beside a bare client (`make bench`).

The pipeline runs on a fresh control plane.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from devcluster.cluster import ControlPlane, Options
from devcluster.install import ProgramSettings, install
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from reconciler.cli.manifests import find_manifests
from reconciler.installation import REPLACING
from tests.bench import (
    admit,
    audit,
    calls,
    desk,
    handler,
    hooks,
    installed,
    languages,
    load,
    sizes,
    sweep,
)
from tests.bench.figures import Figures, tables
from tests.bench.processes import measured
from tests.bench.wire import Refused, Wire
from tests.bench.workload import POLICY, pairs, policy, rights
from tests.conformance.kubeconfig import read

_BARE, _WARM, _PIPELINE, _STEADY = (f"bench-{name}" for name in ("bare", "warm", "full", "steady"))
_PHASES = (
    "engine", "handler", "kinitiras", "calls", "desk", "bare", "admit", "modrule", "pipeline",
    "steady", "hooks", "memory",
)  # fmt: skip
_SIZES = "sizes"
"""A phase that takes many minutes and runs only with ``--only``."""
_ALONE = frozenset({"engine", "handler", "kinitiras", "calls", "desk"})
_WARM_UP = 32
_POLICIES = 200
_READY = 30.0
_SPARE_CONNECTIONS = 4
_PROGRESS = Console(stderr=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a run; `only` is empty for all phases."""

    pairs: int
    parallel: int
    rate: float
    seconds: float
    only: str
    sweeps: tuple[int, ...]
    watched: int

    def wants(self, phase: str) -> bool:
        """Return whether a phase runs."""
        return self.only in {"", phase}


@click.command()
@click.option("--pairs", default=500, show_default=True, help="Triggers of a burst.")
@click.option("--parallel", default=16, show_default=True, help="Calls at a time in a burst.")
@click.option("--rate", default=10.0, show_default=True, help="Triggers per second, steady.")
@click.option("--seconds", default=20.0, show_default=True, help="Length of the steady run.")
@click.option("--only", type=click.Choice((*_PHASES, _SIZES)), default=None)
@click.option(
    "--objects", default="1000,10000,50000", show_default=True, help="Of the desk, as a list."
)
@click.option(
    "--sweeps", default="500,10000", show_default=True, help="Objects of sweeps, as a list."
)
@click.option("--watched", default=10_000, show_default=True, help="Pods that a hook follows.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Also write a file.")
def main(
    *, target: Path | None, only: str | None, objects: str, sweeps: str, **options: Any
) -> None:
    """Print what the programs achieve; a lost trigger or a cost that outgrows is a failure."""
    counts = tuple(int(count) for count in sweeps.split(","))
    settings = Settings(only=only or "", sweeps=counts, **options)
    broken = _alone(settings, [int(count) for count in objects.split(",")])
    if only in _ALONE:
        sys.exit(1 if broken else 0)
    _PROGRESS.print("starting a control plane")
    with ControlPlane.start(Options(audit_log=True)) as plane:
        figures = measure(plane, settings)
    console = Console(width=110)
    for table in _tables(figures):
        console.print(table)
    console.print(f"lost: {figures.lost}")
    if target:
        target.write_bytes(orjson.dumps(figures.as_json(), option=orjson.OPT_INDENT_2) + b"\n")
    sys.exit(1 if figures.lost or broken else 0)


def _tables(figures: Figures) -> Iterator[Table]:
    """Yield the tables of the phases that run on a control plane."""
    yield from tables(figures)
    if figures.admitted:
        yield admit.table(figures.admitted)
    if figures.mod_rules:
        yield admit.table(figures.mod_rules, "Pods that ModRules change")
    if figures.sweeps:
        yield sweep.table(figures.sweeps)
    if figures.hooks:
        yield hooks.table(figures.hooks)
    if figures.installed:
        yield installed.table(figures.installed)
    if figures.sizes:
        yield from sizes.tables(figures.sizes)


def _alone(settings: Settings, counts: Sequence[int]) -> bool:
    """Run the phases without a cluster, print them, and return whether one exceeds its limit."""
    console = Console(width=110)
    if settings.wants("engine"):
        console.print(desk.engine_table(desk.evaluation()))
    if settings.wants("handler"):
        console.print(handler.table(handler.measure(_POLICIES)))
    if settings.wants("modrule"):
        console.print(languages.table(languages.mod_rules(), "ModRules"))
    if settings.wants("kinitiras"):
        console.print(languages.table(languages.kinitiras(), "Policies of kinitiras"))
    broken = False
    if settings.wants("calls"):
        found = calls.measure()
        console.print(calls.table(found))
        broken = calls.outgrown(found)
    if not settings.wants("desk"):
        return broken
    with tempfile.TemporaryDirectory(prefix="retrofit-bench-") as folder:
        figures = desk.desk(counts, Path(folder))
    console.print(desk.desk_table(figures))
    for text in figures.broken:
        console.print(f"[red]{text}")
    return broken or bool(figures.broken)


def measure(plane: ControlPlane, settings: Settings) -> Figures:
    """Install everything, run the chosen phases on the control plane, and end the programs."""
    found = install(plane, "default")
    figures = Figures()
    if settings.only == _SIZES:
        _PROGRESS.print("sizes, for many minutes")
        found[CONTROLLER] = sizes.patient(found[CONTROLLER])
        with _programs(plane, found) as programs:
            _in_loop(lambda: _sizes(plane, programs, found, settings, figures))
        return figures
    if settings.wants("bare"):
        _PROGRESS.print("bare client")
        # Before the programs start, because they would process its requests.
        _in_loop(lambda: _bare(plane, settings, figures))
    if settings.wants("memory"):
        _PROGRESS.print("memory of the programs, with more and more installed")
        figures.installed = installed.measure(plane, found)
    if settings.only not in ("bare", "memory"):
        _PROGRESS.print("starting the programs")
        with _programs(plane, found) as programs:
            if settings.wants("admit"):
                _in_loop(lambda: _admit(plane, settings, figures))
            if settings.wants("modrule"):
                plane.kubectl("apply", "-k", str(find_manifests() / "manifests/dialects/kubemod"))
                _in_loop(lambda: _mod_rules(plane, programs, settings, figures))
            if settings.wants("hooks"):
                _in_loop(lambda: _hooks(plane, programs, settings, figures))
            if settings.only not in ("admit", "modrule", "hooks", "memory"):
                _in_loop(lambda: _loaded(plane, programs, settings, figures))
    return figures


def _programs(plane: ControlPlane, found: dict[str, ProgramSettings]) -> Programs:
    plane.kubectl("apply", "-f", "-", stdin=orjson.dumps(rights()).decode())
    return start_programs(plane, settings=found)


def _in_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


async def _bare(plane: ControlPlane, settings: Settings, figures: Figures) -> None:
    async with _wire(plane, settings) as wire:
        work = pairs(_BARE, settings.pairs + _WARM_UP)
        await load.make_targets(wire, work, settings.parallel)
        # Connections and caches are warmed up first, so that they do not count.
        await load.bare(wire, work[:_WARM_UP], settings.parallel)
        figures.bare = await load.bare(wire, work[_WARM_UP:], settings.parallel)


async def _admit(plane: ControlPlane, settings: Settings, figures: Figures) -> None:
    _PROGRESS.print("objects that rules change before they are stored")
    async with _wire(plane, settings) as wire:
        log, folder = plane.layout.audit_log, plane.directory
        figures.admitted = await admit.measure(wire, log, _load_of(settings), folder)


async def _mod_rules(
    plane: ControlPlane, programs: Programs, settings: Settings, figures: Figures
) -> None:
    _PROGRESS.print("Pods that ModRules change before they are stored")
    async with _wire(plane, settings) as wire, _worker(plane, settings) as worker:
        log, folder = plane.layout.audit_log, plane.directory
        load = _load_of(settings)
        figures.mod_rules = await admit.measure_mod_rules(wire, log, load, folder)
        counts = settings.sweeps
        _PROGRESS.print(f"a ModRule on {' and on '.join(map(str, counts))} objects that exist")
        pids = {name: programs.supervision.pids[name] for name in (CONTROLLER, ADMISSION)}
        figures.sweeps = await sweep.measure(wire, worker, log, pids, counts, settings.parallel)


async def _hooks(
    plane: ControlPlane, programs: Programs, settings: Settings, figures: Figures
) -> None:
    _PROGRESS.print("hooks")
    async with _wire(plane, settings) as wire:
        figures.hooks = await hooks.measure(
            plane,
            programs,
            wire,
            events=settings.pairs,
            parallel=settings.parallel,
            watched=settings.watched,
        )


def _load_of(settings: Settings) -> admit.Load:
    return admit.Load(
        number=settings.pairs,
        parallel=settings.parallel,
        rate=settings.rate,
        seconds=settings.seconds,
    )


async def _sizes(
    plane: ControlPlane,
    programs: Programs,
    found: dict[str, ProgramSettings],
    settings: Settings,
    figures: Figures,
) -> None:
    async with _wire(plane, settings) as wire:
        await _make_ready(wire)
        figures.sizes = await sizes.measure(wire, programs, found, settings.parallel)


async def _loaded(
    plane: ControlPlane, programs: Programs, settings: Settings, figures: Figures
) -> None:
    async with _wire(plane, settings) as wire:
        await _make_ready(wire)
        warm = pairs(_WARM, _WARM_UP)
        await load.make_targets(wire, warm, settings.parallel)
        phase = await load.burst(wire, warm, settings.parallel)
        if phase.lost or phase.accepted < _WARM_UP:
            raise click.ClickException(
                f"of {_WARM_UP} triggers before the measurement {phase.accepted} were accepted "
                f"and {phase.lost} lost; the programs' logs are in {programs.logs}"
            )
        pids = {name: programs.supervision.pids[name] for name in (ADMISSION, CONTROLLER)}
        async with measured(pids) as memory:
            if settings.wants("pipeline"):
                await _pipeline(plane, wire, settings, figures)
            if settings.wants("steady"):
                await _steady(wire, settings, figures)
        figures.memory = memory


async def _pipeline(plane: ControlPlane, wire: Wire, settings: Settings, figures: Figures) -> None:
    work = pairs(_PIPELINE, settings.pairs)
    await load.make_targets(wire, work, settings.parallel)
    log = plane.layout.audit_log
    begin = await audit.position(log)
    _PROGRESS.print(f"pipeline, {len(work)} triggers")
    figures.pipeline = await load.burst(wire, work, settings.parallel)
    left = await load.all_final(wire)
    if left:
        _PROGRESS.print(f"[red]{left} UpdateRequests have not ended")
    figures.calls = audit.count(log, begin, await audit.position(log))


async def _steady(wire: Wire, settings: Settings, figures: Figures) -> None:
    work = pairs(_STEADY, round(settings.rate * settings.seconds))
    await load.make_targets(wire, work, settings.parallel)
    _PROGRESS.print(f"steady, {settings.rate:g} triggers per second")
    figures.steady = await load.steady(wire, work, settings.rate)


async def _make_ready(wire: Wire) -> None:
    """Create the policy and wait until it is Ready."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _READY
    path = "/apis/kyverno.io/v1/clusterpolicies"
    body = orjson.dumps(policy([_WARM, _PIPELINE, _STEADY, *sizes.namespaces()]))
    complaint = "it is not Ready"
    created = False
    while loop.time() < deadline:
        try:
            if not created:
                await wire.send("POST", path, body)
                created = True
            status = (await wire.read(f"{path}/{POLICY}")).get("status") or {}
        except Refused as refused:
            # The right to change Secrets is aggregated a moment after its role was created.
            complaint, status = str(refused), {}
        if any(entry["status"] == "True" for entry in status.get("conditions") or ()):
            return
        await asyncio.sleep(0.1)
    raise click.ClickException(f"the policy is not in force after {_READY:g} s: {complaint}")


def _wire(plane: ControlPlane, settings: Settings) -> Wire:
    return Wire.open(read(plane.kubeconfig), settings.parallel + _SPARE_CONNECTIONS)


def _worker(plane: ControlPlane, settings: Settings) -> Wire:
    """Return a client that acts as the controller does for policies without an account."""
    names = REPLACING
    own = plane.service_account_kubeconfig(names.namespace, names.controller_account)
    access = read(own)
    user = f"system:serviceaccount:{names.namespace}:{names.background_account}"
    access = replace(access, headers={**access.headers, "Impersonate-User": user})
    return Wire.open(access, settings.parallel + _SPARE_CONNECTIONS)


if __name__ == "__main__":
    main()
