"""Measures a ModRule on existing objects, beside a client that only patches.

All rates come from the API server's log, from the first patch that it received to the last that it
answered. So the interval at which this module polls for the end of the work has no influence.

The client runs three times: first as an administrator, for whom the API server looks up no rights,
then with the controller's calls, which impersonate the same account and are validated strictly, at
last with these calls on the rule's objects while the rule is in force, for which the API server
evaluates a condition of the webhook. The differences are work of the API server that safety
requires of any client.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import orjson
from rich.table import Table

from reconciler.api.meta import ANNOTATION_EXISTING, EXISTING_MANAGER, Object
from tests.bench import audit
from tests.bench.admit import CONFIG_MAPS, create_all, make_namespace, until
from tests.bench.figures import Memory
from tests.bench.processes import cpu_seconds, measured
from tests.bench.wire import MERGE, Refused, Wire
from tests.bench.workload import requests_path

_PAGE: Final = 500
_READY: Final = 30.0
_LABELS: Final = {"swept": "yes"}
_OPTIONS: Final = f"?fieldManager={EXISTING_MANAGER}&fieldValidation=Strict"
_CONFIG_MAPS: Final = "/api/v1/namespaces/{}/configmaps"
_MOD_RULES: Final = "/apis/api.kubemod.io/v1beta1/namespaces/{}/modrules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One rule on a number of objects.

    Attributes:
        bare: Patches per second of the client as an administrator.
        same: Patches per second of the client as the account of policies, with the rule's options.
        rule: Patches per second of the rule.
        there: Patches per second of the client with ``same`` calls while the rule is in force.
        requests: Number of requests for the rule.
        cpu: CPU seconds per object, by program.
        memory: The memory of the controller.
    """

    objects: int
    bare: float
    same: float
    rule: float
    there: float
    requests: int
    cpu: Mapping[str, float]
    memory: Memory


async def measure(
    wire: Wire,
    worker: Wire,
    log: Path,
    pids: Mapping[str, int],
    counts: Sequence[int],
    parallel: int,
) -> list[Sweep]:
    """Return a sweep of each size, the smallest first; the CRD of ModRules must be installed.

    Args:
        wire: A client that acts as an administrator.
        worker: A client that acts as the controller does.
        log: The audit log.
        pids: The process ids of the programs, with the controller first.
        counts: The numbers of objects.
        parallel: Number of patches that the bare client sends at a time.
    """
    await wire.send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", _role())
    return [await _sweep(wire, worker, log, pids, count, parallel) for count in sorted(counts)]


def table(sweeps: Sequence[Sweep]) -> Table:
    """Return the table of sweeps."""
    columns = ("bare", "same calls", "in force", "ModRule", "of these", "requests", "ms/object")
    found = Table("objects", *columns, "MB, peak", title="A ModRule on what exists, patches/s")
    found.title_justify = "left"
    for item in sweeps:
        clients = (item.bare, item.same, item.there)
        rates = [f"{rate:.0f}" for rate in (*clients, item.rule)]
        shares = " / ".join(f"{item.rule / rate:.2f}" for rate in clients)
        cpu = " + ".join(f"{seconds * 1000:.2f}" for seconds in item.cpu.values())
        memory = ", ".join(f"{s / 1e6:.0f}" for s in (item.memory.at_rest, item.memory.peak))
        row = (*rates, shares, str(item.requests), cpu, memory)
        found.add_row(str(item.objects), *row)
    for column in found.columns:
        column.justify = "right"
    return found


async def _sweep(
    wire: Wire, worker: Wire, log: Path, pids: Mapping[str, int], count: int, parallel: int
) -> Sweep:
    bare, same, ruled = (f"bench-sweep-{name}-{count}" for name in ("bare", "same", "rule"))
    for namespace in (bare, same, ruled):
        await make_namespace(wire, namespace)
        await create_all(wire, namespace, "it", count, parallel, CONFIG_MAPS)
    begin = await audit.position(log)
    await _patch_all(wire, bare, _LABELS, parallel)
    first = await audit.position(log)
    await _until_allowed(worker, same)
    await _patch_all(worker, same, _LABELS, parallel, _OPTIONS)
    second = await audit.position(log)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    async with measured(pids) as memory:
        await _rule(wire, ruled)
    end = await audit.position(log)
    cpu = {name: (cpu_seconds(pid) - before[name]) / count for name, pid in pids.items()}
    await _patch_all(worker, ruled, {"swept": "again"}, parallel, _OPTIONS)
    last = await audit.position(log)
    await wire.send("DELETE", f"{_MOD_RULES.format(ruled)}/swept")
    return Sweep(
        objects=count,
        bare=audit.rate(log, (begin, first), bare),
        same=audit.rate(log, (first, second), same),
        rule=audit.rate(log, (second, end), ruled),
        there=audit.rate(log, (end, last), ruled),
        requests=await _requests(wire, ruled),
        cpu=cpu,
        memory=next(iter(memory.values())),
    )


async def _until_allowed(worker: Wire, namespace: str) -> None:
    """Wait until the right to read ConfigMaps is aggregated, soon after its role is created."""
    deadline = perf_counter() + _READY
    while True:
        try:
            await worker.read(f"{_CONFIG_MAPS.format(namespace)}?limit=1")
        except Refused:
            if perf_counter() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def _patch_all(
    wire: Wire, namespace: str, labels: Object, parallel: int, options: str = ""
) -> None:
    """List all objects and label each in its listed version, up to ``parallel`` at a time."""
    path = _CONFIG_MAPS.format(namespace)
    token, more = "", True
    while more:
        page = await wire.read(f"{path}?limit={_PAGE}&continue={token}")
        token = (page.get("metadata") or {}).get("continue") or ""
        more = bool(token)
        left = iter(page["items"])

        async def worker(items: Any = left) -> None:
            for item in items:
                meta = item["metadata"]
                guarded = {"resourceVersion": meta["resourceVersion"], "labels": labels}
                body = orjson.dumps({"metadata": guarded})
                await wire.send("PATCH", f"{path}/{meta['name']}{options}", body, MERGE)

        async with asyncio.TaskGroup() as group:
            for _ in range(parallel):
                group.create_task(worker())


async def _rule(wire: Wire, namespace: str) -> None:
    """Create the rule and wait until its run on existing objects has ended."""
    path = _MOD_RULES.format(namespace)
    await wire.send("POST", path, orjson.dumps(_mod_rule()))
    await until(wire, f"{path}/swept", _is_done, within=300.0)


def _is_done(rule: Object) -> bool:
    figures = (rule.get("status") or {}).get("mutateExisting") or {}
    return bool(figures.get("lastRun")) and not figures.get("pending")


def _mod_rule() -> Object:
    patch = {"op": "add", "path": "/metadata/labels/swept", "value": '"yes"'}
    return {
        "apiVersion": "api.kubemod.io/v1beta1",
        "kind": "ModRule",
        "metadata": {"name": "swept", "annotations": {ANNOTATION_EXISTING: "true"}},
        "spec": {
            "type": "Patch",
            "match": [{"select": "$.kind", "matchValue": "ConfigMap"}],
            "patch": [patch],
        },
    }


def _role() -> bytes:
    verbs = ["get", "list", "update", "patch"]
    labels = {"rbac.kyverno.io/aggregate-to-background-controller": "true"}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}
    return orjson.dumps({"metadata": {"name": "bench:sweeps", "labels": labels}, "rules": [rule]})


async def _requests(wire: Wire, namespace: str) -> int:
    found = await wire.read(requests_path())
    return sum(item["spec"]["policy"].endswith(f"{namespace}/swept") for item in found["items"])
