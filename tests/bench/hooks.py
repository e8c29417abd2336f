"""Measures declared hooks, beside a client that makes the same calls, and executables."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import orjson
from rich.table import Table

from devcluster.cluster import ControlPlane
from devcluster.programs import CONTROLLER, HOOKS, Programs
from reconciler.api.meta import Object, policy_ref, ref_of
from reconciler.api.requestwire import render_spec
from reconciler.cli.manifests import find_manifests
from reconciler.clock import SystemClock
from reconciler.errors import NotReady
from reconciler.hooks.contexts import Context, ContextType
from reconciler.hooks.records import HookIdentity, Record, spec_of
from reconciler.isolation.jq import JqWorkers
from tests.bench import audit
from tests.bench.admit import make_namespace, until
from tests.bench.figures import Spread
from tests.bench.processes import cpu_seconds, measured
from tests.bench.wire import MERGE, Refused, Wire

_HOOKS: Final = "/apis/kube-retrofit.dev/v1alpha1/namespaces/{}/hooks"
_HOOK: Final = {"apiVersion": "kube-retrofit.dev/v1alpha1", "kind": "Hook"}
_REQUESTS: Final = "/apis/kyverno.io/v2/namespaces/{}/updaterequests"
_MAPS: Final = "/api/v1/namespaces/{}/configmaps"
_EVENT, _ANSWER = {"event": "yes"}, {"answer": "yes"}
_IDLE: Final = 40
"""Number of events that are sent one by one, each after the work of the previous one."""
_BURST: Final = 1_000
_SETTLED: Final = 120.0
_FILTER: Final = ".metadata.labels"
_FILTERED: Final = 10_000
_SCRIPT: Final = """#!/bin/bash
if [[ $1 == --config ]]; then
cat <<'END'
{config}
END
else
echo "$EPOCHREALTIME" >> {file}
fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table: a measured value and its goal."""

    what: str
    found: str
    wanted: str
    good: bool


def table(figures: Sequence[Figure]) -> Table:
    """Return the table of figures, with missed goals marked."""
    found = Table("hooks", "measured", "goal", title="Hooks", title_justify="left")
    for item in figures:
        value = item.found if item.good else f"[red]{item.found}[/red]"
        found.add_row(item.what, value, item.wanted)
    return found


async def measure(
    plane: ControlPlane,
    programs: Programs,
    wire: Wire,
    *,
    events: int,
    parallel: int,
    watched: int,
) -> list[Figure]:
    """Return all figures.

    Args:
        plane: The control plane, without the CRDs of hooks.
        programs: The running programs.
        wire: The client.
        events: Number of events in a burst for declared hooks.
        parallel: Number of events that are sent at a time.
        watched: Number of Pods that an executable watches.
    """
    definitions = str(find_manifests() / "crds" / "hooks")
    await asyncio.to_thread(plane.kubectl, "apply", "--server-side", "-k", definitions)
    await wire.send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", _role())
    found = await _declared(plane, programs, wire, events, parallel)
    found += await _executables(plane, programs, wire, parallel)
    found += await _filters()
    return found + await _watched(plane, programs, wire, watched, parallel)


async def _declared(
    plane: ControlPlane, programs: Programs, wire: Wire, events: int, parallel: int
) -> list[Figure]:
    """Return the events per second that a declared hook answers, beside those of a bare client."""
    log, pid = plane.layout.audit_log, programs.supervision.pids[CONTROLLER]
    bare, declared = "bench-hooks-bare", "bench-hooks-declared"
    for namespace in (bare, declared):
        await make_namespace(wire, namespace)
    begin = await audit.position(log)
    await _in_parallel(events, parallel, lambda number: _answered(wire, bare, number))
    middle = await audit.position(log)
    run = {"foreach": "contexts[?type=='Event']", "operations": [_operation()]}
    await wire.send("POST", _HOOKS.format(declared), _hook(run=run))
    await until(wire, f"{_HOOKS.format(declared)}/bench", _is_ready)
    start, before = await audit.position(log), cpu_seconds(pid)
    await _in_parallel(events, parallel, lambda number: _event(wire, declared, number))
    await _until_answered(wire, declared, events)
    used = (cpu_seconds(pid) - before) / events
    end = await audit.position(log)
    calls = sum(audit.count(log, start, end).by_what.values()) / events
    rates = [
        audit.rate(log, between, namespace, "create") / 2
        for between, namespace in (((begin, middle), bare), ((start, end), declared))
    ]
    ratio = rates[1] / rates[0]
    return [
        Figure(
            what=f"declared hook, events/s, {parallel} at a time; bare client with its calls",
            found=f"{rates[1]:.0f}; {rates[0]:.0f}: {ratio:.2f} of it",
            wanted="0.80 of it",
            good=ratio >= 0.8,
        ),
        Figure(
            what="declared hook, calls and CPU of the controller for an event",
            found=f"{calls:.2f}, {used * 1000:.1f} ms",
            wanted="",
            good=True,
        ),
    ]


async def _answered(wire: Wire, namespace: str, number: int) -> None:
    """Make the calls for a single event: create object, request and answer; patch the status."""
    await _event(wire, namespace, number)
    path = _REQUESTS.format(namespace)
    await wire.send("POST", path, _request(namespace, number))
    await wire.send("POST", _MAPS.format(namespace), _map(f"answer-{number}", _ANSWER))
    status = orjson.dumps({"status": {"state": "Completed", "attempts": 1}})
    await wire.send("PATCH", f"{path}/event-{number}/status", status, MERGE)


async def _event(wire: Wire, namespace: str, number: int) -> None:
    await wire.send("POST", _MAPS.format(namespace), _map(f"event-{number}", _EVENT))


async def _until_answered(wire: Wire, namespace: str, events: int) -> None:
    # Without a selector, the API server reports the number of items that it did not list.
    path = f"{_MAPS.format(namespace)}?limit=1"

    def all_are_there(answer: Object) -> bool:
        left = int(answer["metadata"].get("remainingItemCount") or 0)
        return len(answer["items"]) + left >= 2 * events

    await until(wire, path, all_are_there, within=_SETTLED)


async def _executables(
    plane: ControlPlane, programs: Programs, wire: Wire, parallel: int
) -> list[Figure]:
    namespace, folder = "bench-hooks-executable", plane.directory / "bench-hooks"
    runs = plane.directory / "bench-hooks-runs"
    bindings = {"kubernetes": [_binding(namespace)]}
    script = _put(folder / "bench", bindings, runs)
    spawned = [_spawn(script, runs) for _ in range(_IDLE)]
    async with _running(plane, programs, wire, namespace, folder) as pid:
        runs.unlink()
        before = cpu_seconds(pid)
        taken = [await _one_by_one(wire, namespace, number, runs) for number in range(_IDLE)]
        used = (cpu_seconds(pid) - before) / _IDLE
        begun = len(_moments(runs))
        await _in_parallel(
            _BURST, parallel, lambda number: _event(wire, namespace, _IDLE + number)
        )
        requests = await _until_done(wire, namespace)
        burst = len(_moments(runs)) - begun
    lost = _IDLE + _BURST - requests
    start, bare = Spread.of(taken), Spread.of(spawned)
    return [
        Figure(
            what="executable, event to process start, p50 / p99; a process by itself",
            found=f"{start}; {bare}",
            wanted="30 ms p50",
            good=start.p50 <= 0.03,
        ),
        Figure(
            what="executable, CPU beside its process for an event that comes alone",
            found=f"{used * 1000:.1f} ms",
            wanted="5 ms",
            good=used <= 0.005,
        ),
        Figure(
            what=f"executable, runs for {_BURST} events of a burst, and events lost",
            found=f"{burst}, {lost}",
            wanted="60, 0",
            good=burst <= 60 and not lost,
        ),
    ]


async def _one_by_one(wire: Wire, namespace: str, number: int, runs: Path) -> float:
    """Return the seconds from the answer to a create until the hook's process had started."""
    known = len(_moments(runs))
    await _event(wire, namespace, number)
    stored = SystemClock().now().timestamp()
    deadline = perf_counter() + _SETTLED
    while len(moments := _moments(runs)) == known:
        if perf_counter() > deadline:
            raise NotReady(f"event {number} has no run")
        await asyncio.sleep(0.02)
    # The remaining work of this event must not delay the next one.
    await asyncio.sleep(0.3)
    return moments[-1] - stored


async def _until_done(wire: Wire, namespace: str) -> int:
    """Wait until all requests of a namespace are completed; return how many events they hold."""
    path = _REQUESTS.format(namespace)
    ended = {"Completed"}

    def all_have(answer: Object) -> bool:
        states = {(item.get("status") or {}).get("state") for item in answer["items"]}
        return states == ended and _events_of(answer) >= _IDLE + _BURST

    # What is missing after that time is counted as lost.
    with contextlib.suppress(Refused):
        await until(wire, path, all_have, within=_SETTLED)
    return _events_of(await wire.read(path))


def _events_of(answer: Object) -> int:
    recorded = (item["spec"].get("recorded") or {} for item in answer["items"])
    return sum(len(found.get("contexts") or ()) for found in recorded)


async def _filters() -> list[Figure]:
    """Return the number of Pods per second for which a jq program is evaluated."""
    pods = [_pod(f"pod-{number}") for number in range(_FILTERED)]
    jq = JqWorkers()
    try:
        await jq.evaluate(_FILTER, pods[:1])
        begun = perf_counter()
        await jq.evaluate(_FILTER, pods)
        rate = len(pods) / (perf_counter() - begun)
    finally:
        await jq.close()
    return [
        Figure(
            what="jqFilter, Pods a second", found=f"{rate:.0f}", wanted="5000", good=rate >= 5000
        )
    ]


async def _watched(
    plane: ControlPlane, programs: Programs, wire: Wire, count: int, parallel: int
) -> list[Figure]:
    """Return how long the program takes to sync ``count`` Pods, and how much memory it needs."""
    namespace, folder = "bench-hooks-watched", plane.directory / "bench-hooks-watching"
    path = f"/api/v1/namespaces/{namespace}/pods"
    binding = {
        "name": "pods",
        "kind": "Pod",
        "jqFilter": _FILTER,
        "keepFullObjectsInMemory": False,
    }
    binding["executeHookOnSynchronization"] = False
    _put(folder / "bench", {"kubernetes": [binding]}, plane.directory / "bench-hooks-unused")
    await make_namespace(wire, namespace)

    async def create(number: int) -> None:
        await wire.send("POST", path, orjson.dumps(_pod(f"pod-{number}")))

    await _in_parallel(count, parallel, create)
    begun = perf_counter()
    async with _running(plane, programs, wire, namespace, folder, made=True) as pid:
        synced = perf_counter() - begun
        async with measured({HOOKS: pid}) as memory:
            await asyncio.sleep(1.0)
    size = memory[HOOKS].peak / 1e6
    return [
        Figure(
            what=f"{count} Pods, filtered: start of the program until it is Ready",
            found=f"{synced:.1f} s",
            wanted="10 s",
            good=synced <= 10,
        ),
        Figure(
            what="the same, memory of the program then",
            found=f"{size:.0f} MB",
            wanted="150 MB",
            good=size <= 150,
        ),
    ]


@contextlib.asynccontextmanager
async def _running(
    plane: ControlPlane,
    programs: Programs,
    wire: Wire,
    namespace: str,
    folder: Path,
    *,
    made: bool = False,
) -> AsyncIterator[int]:
    """Run the hooks of a folder in a namespace; yield the process id."""
    if not made:
        await make_namespace(wire, namespace)
    rbac = find_manifests() / "manifests" / "hooks" / "rbac.yaml"
    await asyncio.to_thread(plane.kubectl, "apply", "-n", namespace, "-f", str(rbac))
    subject = {"kind": "ServiceAccount", "name": HOOKS, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    }
    path = f"/apis/{group}/v1/clusterrolebindings"
    await wire.send("POST", path, orjson.dumps(binding))
    pid = await asyncio.to_thread(programs.start_hooks, namespace, folder)
    try:
        await until(wire, _HOOKS.format(namespace), _one_is_ready, within=_SETTLED)
        yield pid
    finally:
        await asyncio.to_thread(programs.kill, HOOKS)


def _one_is_ready(answer: Object) -> bool:
    return any(_is_ready(item) for item in answer["items"])


def _is_ready(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


async def _in_parallel(count: int, parallel: int, do: Callable[[int], Any]) -> None:
    left = iter(range(count))

    async def worker() -> None:
        for number in left:
            await do(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(worker())


def _put(script: Path, bindings: dict[str, Any], runs: Path) -> Path:
    script.parent.mkdir(parents=True)
    config = json.dumps({"configVersion": "v1", **bindings})
    script.write_text(_SCRIPT.format(config=config, file=runs))
    script.chmod(0o755)
    return script


def _spawn(script: Path, runs: Path) -> float:
    begun = SystemClock().now().timestamp()
    subprocess.run([script], check=True)
    return _moments(runs)[-1] - begun


def _moments(runs: Path) -> list[float]:
    with contextlib.suppress(FileNotFoundError):
        return [float(line) for line in runs.read_text().splitlines()]
    return []


def _binding(namespace: str) -> Object:
    return {
        "name": "events",
        "kind": "ConfigMap",
        "labelSelector": {"matchLabels": _EVENT},
        "namespace": {"nameSelector": {"matchNames": [namespace]}},
        "executeHookOnSynchronization": False,
        "executeHookOnEvent": ["Added"],
    }


def _hook(**spec: Any) -> bytes:
    binding = {name: it for name, it in _binding("").items() if name != "namespace"}
    return orjson.dumps(
        {
            **_HOOK,
            "metadata": {"name": "bench"},
            "spec": {"kubernetes": [binding], **spec},
        }
    )


def _operation() -> Object:
    name = "answer-{{ element.object.metadata.name }}"
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": _ANSWER}}
    return {"operation": "Create", "object": {**obj, "data": {"key": "value"}}}


def _map(name: str, labels: dict[str, str]) -> bytes:
    meta = {"name": name, "labels": labels}
    return orjson.dumps({"metadata": meta, "data": {"key": "value"}})


def _pod(name: str) -> Object:
    labels = {"app": name, "tier": "front", "team": "shop"}
    env = [{"name": f"SETTING_{number}", "value": "x" * 20} for number in range(10)]
    container = {"name": "main", "image": "registry.invalid/none", "env": env}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"automountServiceAccountToken": False, "containers": [container]},
    }


def _request(namespace: str, number: int) -> bytes:
    """Return the request that a program creates for one event."""
    meta = {"name": f"event-{number}", "namespace": namespace, "labels": _EVENT}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"key": "value"}}
    context = Context(
        type=ContextType.EVENT, binding="events", event="Added", shown={"object": obj}
    )
    record = Record(
        context=context,
        queue="main",
        allow_failure=False,
        scope=namespace,
        at=str(number),
        resource=ref_of(obj),
        watched="bench",
    )
    ref = policy_ref({**_HOOK, "metadata": {"namespace": namespace, "name": "bench"}})
    spec = spec_of(HookIdentity(ref=ref, uid="bench", generation=1), [record], number + 1)
    return orjson.dumps(
        {
            "apiVersion": "kyverno.io/v2",
            "kind": "UpdateRequest",
            "metadata": {"name": f"event-{number}"},
            "spec": render_spec(spec),
        }
    )


def _role() -> bytes:
    verbs = ["get", "list", "watch", "create"]
    labels = {"rbac.kyverno.io/aggregate-to-background-controller": "true"}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}
    return orjson.dumps({"metadata": {"name": "bench:hooks", "labels": labels}, "rules": [rule]})
