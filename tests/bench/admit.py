"""What a create costs that rules change before it is stored, beside a webhook that only allows.

All runs are on one control plane, one after the other: what counts is the ratio to the bare one.
"""

import asyncio
import base64
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson
from rich.table import Table

from devcluster.credentials import create
from devcluster.parts import free_ports
from reconciler.api.meta import Object
from reconciler.clock import SystemClock
from tests.bench import audit
from tests.bench.figures import Spread
from tests.bench.wire import Refused, Wire

_POLICIES = "/apis/kyverno.io/v1/clusterpolicies"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_MOD_RULES = "/apis/api.kubemod.io/v1beta1/namespaces/{}/modrules"
_FIRST, _BARE, _PATCHED = "bench-admit-first", "bench-admit-bare", "bench-admit-patched"
_PATCH: Sequence[Object] = ({"op": "add", "path": "/metadata/labels/l0", "value": "CREATE"},)
"""What one rule changes."""
_LABEL = {"app": "created"}
"""Of the objects that are created."""
_READY = 60.0
_WARM_UP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    Attributes:
        create: Latency of a create at the steady rate.
        per_second: Creates, so many at a time as the bench was asked for.
        calls: Of the programs, for each create.
    """

    name: str
    create: Spread
    per_second: float
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is created, and how fast."""

    number: int
    parallel: int
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """What is created.

    Attributes:
        plural: Of its resource, which is of the core group.
        body: The object, but for its name.
    """

    plural: str
    body: Object

    async def create(self, wire: Wire, namespace: str, name: str) -> float:
        """Create one of a name; return the seconds that it took."""
        body = orjson.dumps({**self.body, "metadata": {"name": name, "labels": _LABEL}})
        begun = perf_counter()
        await wire.send("POST", f"/api/v1/namespaces/{namespace}/{self.plural}", body)
        return perf_counter() - begun


CONFIG_MAPS = Sort(plural="configmaps", body={"data": {"key": "value"}})
PODS = Sort(
    plural="pods",
    body={
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [
                {"name": name, "image": f"registry.invalid/{name}:1"} for name in ("web", "log")
            ],
        }
    },
)


async def measure_mod_rules(wire: Wire, log: Path, load: Load, folder: Path) -> list[Run]:
    """Return the runs of Pods, that of the bare webhook first; ModRules are installed."""
    runs = []
    first, bare = "bench-modrules-first", "bench-modrules-bare"
    await _install_mod_rules(wire, first, 1)
    await _run(wire, log, load, first, "not counted", PODS)
    await make_namespace(wire, bare)
    async with bare_webhook(wire, folder, bare, PODS):
        runs.append(await _run(wire, log, load, bare, "a webhook that only allows", PODS))
    for count in (1, 50):
        namespace = f"bench-modrules-{count}"
        await _install_mod_rules(wire, namespace, count)
        name = f"{count} ModRule{'s' if count > 1 else ''}"
        runs.append(await _run(wire, log, load, namespace, name, PODS))
    return runs


async def _install_mod_rules(wire: Wire, namespace: str, count: int) -> None:
    """Create a namespace with so many ModRules in force."""
    await make_namespace(wire, namespace)
    path = _MOD_RULES.format(namespace)
    for number in range(count):
        await wire.send("POST", path, orjson.dumps(mod_rule(number)))
    for number in range(count):
        await _ready(wire, f"{path}/rule-{number}")


def mod_rule(number: int) -> Object:
    """Return a ModRule that adds a label to Pods, made by a template with one field."""
    patch = {
        "op": "add",
        "path": f"/metadata/labels/l{number}",
        "value": '"{{ .Target.kind }}"',
    }
    return {
        "apiVersion": "api.kubemod.io/v1beta1",
        "kind": "ModRule",
        "metadata": {"name": f"rule-{number}"},
        "spec": {
            "type": "Patch",
            "match": [{"select": "$.kind", "matchValue": "Pod"}],
            "patch": [patch],
        },
    }


async def measure(wire: Wire, log: Path, load: Load, folder: Path) -> list[Run]:
    """Return all runs, that of the bare webhook first."""
    runs = []
    # What the programs do once they have started, and with their first policy, no run pays for.
    await make_namespace(wire, _FIRST)
    async with _policies(wire, [policy(_FIRST, {"namespaces": [_FIRST]})]):
        await _run(wire, log, load, _FIRST, "not counted")
    await make_namespace(wire, _BARE)
    async with bare_webhook(wire, folder, _BARE):
        runs.append(await _run(wire, log, load, _BARE, "a webhook that only allows"))
    await make_namespace(wire, _PATCHED)
    async with bare_webhook(wire, folder, _PATCHED, patch=_PATCH):
        runs.append(await _run(wire, log, load, _PATCHED, "a webhook with a fixed patch"))
    for place, policies, what in _cases():
        await make_namespace(wire, place)
        async with _policies(wire, policies):
            runs.append(await _run(wire, log, load, place, what))
    return runs


def _cases() -> Iterator[tuple[str, list[Object], str]]:
    """Yield where objects are created, the policies that are in force, and what that is."""
    for number, what in ((1, "1 rule"), (20, "20 rules that match")):
        namespace = f"bench-admit-{number}"
        yield namespace, [policy(namespace, {"namespaces": [namespace]}, number)], what
    for by, others in _OTHERS.items():
        namespace = f"bench-admit-by-{by}"
        meant = {"namespaces": [namespace]} if by != "label" else _labelled(_LABEL["app"])
        made = [policy(f"{namespace}-{n}", others(f"other-{n}")) for n in range(_OTHER_POLICIES)]
        what = f"{_OTHER_POLICIES + 1} policies, one matches, by {by}"
        yield namespace, [policy(namespace, meant), *made], what


def _labelled(app: str) -> Object:
    return {"selector": {"matchLabels": {"app": app}}}


_OTHER_POLICIES = 199
_OTHERS: dict[str, Callable[[str], Object]] = {
    "name": lambda other: {"names": [other]},
    "namespace": lambda other: {"namespaces": [other]},
    "label": _labelled,
}
"""How policies that are for other objects choose theirs."""


def table(runs: Sequence[Run], title: str = "Changed before stored") -> Table:
    """Return what to print."""
    columns = ("create p50 / p99", "over bare p50 / p99", "creates/s", "of bare", "calls/create")
    result = Table("run", *columns, title=title, title_justify="left")
    bare = runs[0]
    for run in runs:
        over = (run.create.p50 - bare.create.p50, run.create.p99 - bare.create.p99)
        result.add_row(
            run.name,
            f"{run.create}",
            " / ".join(f"{seconds * 1000:+.1f} ms" for seconds in over),
            f"{run.per_second:.0f}",
            f"{run.per_second / bare.per_second:.2f}",
            f"{run.calls:.3f}",
        )
    return result


def policy(name: str, chosen: Object, rules: int = 1) -> Object:
    """Return a policy whose rules each add a label to some ConfigMaps."""
    resources = {"kinds": ["ConfigMap"], **chosen}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {
            "rules": [
                {
                    "name": f"rule-{number}",
                    "match": {"any": [{"resources": resources}]},
                    "mutate": {
                        "patchStrategicMerge": {
                            "metadata": {"labels": {f"l{number}": "{{ request.operation }}"}}
                        }
                    },
                }
                for number in range(rules)
            ]
        },
    }


async def make_namespace(wire: Wire, name: str) -> None:
    """Create a namespace, ready for Pods."""
    await wire.send("POST", "/api/v1/namespaces", orjson.dumps({"metadata": {"name": name}}))
    # Without its default account no Pod is admitted.
    await until(wire, f"/api/v1/namespaces/{name}/serviceaccounts", lambda it: it.get("items"))


async def _run(
    wire: Wire, log: Path, load: Load, namespace: str, name: str, sort: Sort = CONFIG_MAPS
) -> Run:
    await create_all(wire, namespace, "warm", _WARM_UP, load.parallel, sort)
    begin = await audit.position(log)
    begun = perf_counter()
    await create_all(wire, namespace, "burst", load.number, load.parallel, sort)
    spent = perf_counter() - begun
    taken = await _steady(wire, namespace, load, sort)
    calls = audit.count(log, begin, await audit.position(log))
    total = sum(calls.by_what.values())
    return Run(
        name=name,
        create=Spread.of(taken),
        per_second=load.number / spent,
        calls=total / (load.number + len(taken)),
    )


async def create_all(
    wire: Wire, namespace: str, prefix: str, number: int, parallel: int, sort: Sort
) -> None:
    """Create so many objects, so many at a time."""
    left = iter(range(number))

    async def worker() -> None:
        for index in left:
            await sort.create(wire, namespace, f"{prefix}-{index}")

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(worker())


async def _steady(wire: Wire, namespace: str, load: Load, sort: Sort) -> list[float]:
    begun = perf_counter()
    tasks = []
    async with asyncio.TaskGroup() as group:
        for index in range(round(load.rate * load.seconds)):
            await asyncio.sleep(max(0.0, begun + index / load.rate - perf_counter()))
            tasks.append(group.create_task(sort.create(wire, namespace, f"steady-{index}")))
    return [task.result() for task in tasks]


@contextlib.asynccontextmanager
async def _policies(wire: Wire, policies: Sequence[Object]) -> AsyncIterator[None]:
    """Have policies in force."""
    paths = [f"{_POLICIES}/{item['metadata']['name']}" for item in policies]
    for item in policies:
        await wire.send("POST", _POLICIES, orjson.dumps(item))
    for path in paths:
        await _ready(wire, path)
    try:
        yield
    finally:
        for path in paths:
            await wire.send("DELETE", path)


async def _ready(wire: Wire, path: str) -> None:
    await until(wire, path, lambda policy: (policy.get("status") or {}).get("ready"))


async def until(
    wire: Wire, path: str, there: Callable[[Object], Any], *, within: float = _READY
) -> None:
    """Return when what is at a path is as it is needed."""
    deadline = perf_counter() + within
    while not there(found := await wire.read(path)):
        if perf_counter() > deadline:
            status = found.get("status") or f"{len(found.get('items') or ())} items"
            raise Refused(f"{path} is not ready after {within:g} s: {status}")
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def bare_webhook(
    wire: Wire,
    folder: Path,
    namespace: str,
    sort: Sort = CONFIG_MAPS,
    patch: Sequence[Object] = (),
) -> AsyncIterator[None]:
    """Have the API server ask the bare webhook, which gives a patch, about one namespace."""
    made = create(folder / namespace, SystemClock())
    (port,) = free_ports(1)
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.bare"),
        *(str(port), str(made.certificate), str(made.key)),
        orjson.dumps(patch).decode() if patch else "",
    )
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": [sort.plural],
        "operations": ["CREATE", "UPDATE"],
    }
    bundle = base64.b64encode(made.ca.read_bytes()).decode()
    webhook = {
        "name": f"{namespace}.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    body = orjson.dumps({"metadata": {"name": namespace}, "webhooks": [webhook]})
    await _listening(port)
    await wire.send("POST", _CONFIGURATIONS, body)
    # The API server learns of it by its own watch.
    await asyncio.sleep(1.0)
    try:
        yield
    finally:
        await wire.send("DELETE", f"{_CONFIGURATIONS}/{namespace}")
        server.terminate()
        await server.wait()


async def _listening(port: int) -> None:
    deadline = perf_counter() + _READY
    while perf_counter() < deadline:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise Refused(f"the bare webhook does not listen on port {port}")
