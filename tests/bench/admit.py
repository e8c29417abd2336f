"""Measures the creation of objects that rules change, beside a webhook that only allows them.

All runs are on one control plane, which slows down after a minute of work, and on a machine whose
speed varies by the second. So the bare webhook serves one namespace all the time, each run creates
objects there and in its own namespace in turns, and the ratio is what counts.
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
_FIRST, _PATCHED = "bench-admit-first", "bench-admit-patched"
_BARE = "kube-system"
"""The bare webhook's namespace; the API server calls no other webhook for it, with any policy."""
_PATCH: Sequence[Object] = ({"op": "add", "path": "/metadata/labels/l0", "value": "CREATE"},)
"""The patch that one rule produces."""
_LABEL = {"app": "created"}
"""The label of the created objects."""
_READY = 60.0
_WARM_UP = 32
_BURSTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The speed at which objects are created in one namespace.

    Attributes:
        create: Latency of a create at the steady rate.
        per_second: Creates per second in bursts, with the bench's number of parallel calls.
    """

    create: Spread
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    Attributes:
        changed: The pace with the rules or the webhook that the run is named after.
        bare: The pace with the webhook that only allows, measured in turns.
        calls: API calls of the programs per create.
    """

    name: str
    changed: Pace
    bare: Pace
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The number of creates and their rate.

    Attributes:
        number: Objects per burst; a run has several bursts.
        rate: Objects per second and namespace at the steady rate.
        seconds: How long the steady rate lasts.
    """

    number: int
    parallel: int
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """The kind of object to create.

    Attributes:
        plural: The plural of its resource, which is in the core group.
        body: The object without its metadata.
    """

    plural: str
    body: Object

    async def create(self, wire: Wire, namespace: str, name: str) -> float:
        """Create an object with a name; return the seconds that it took."""
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
    """Return the runs with Pods; the CRD of ModRules must be installed."""
    runs = []
    async with bare_webhook(wire, folder, _BARE, PODS):
        turns = Turns(wire=wire, log=log, load=load, sort=PODS)
        first = "bench-modrules-first"
        await _install_mod_rules(wire, first, 1)
        await turns.run(first, "not counted")
        for count in (1, 50):
            namespace = f"bench-modrules-{count}"
            await _install_mod_rules(wire, namespace, count)
            runs.append(await turns.run(namespace, f"{count} ModRule{'s' if count > 1 else ''}"))
    return runs


async def _install_mod_rules(wire: Wire, namespace: str, count: int) -> None:
    """Create a namespace with ``count`` ModRules in force."""
    await make_namespace(wire, namespace)
    path = _MOD_RULES.format(namespace)
    for number in range(count):
        await wire.send("POST", path, orjson.dumps(mod_rule(number)))
    for number in range(count):
        await _ready(wire, f"{path}/rule-{number}")


def mod_rule(number: int) -> Object:
    """Return a ModRule that adds a label to Pods, with a template of one field as its value."""
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
    """Return all runs, starting with that of a webhook with a fixed patch."""
    runs = []
    for namespace in (_FIRST, _PATCHED):
        await make_namespace(wire, namespace)
    async with bare_webhook(wire, folder, _BARE):
        turns = Turns(wire=wire, log=log, load=load)
        # Work that the programs do once, after their start and with their first policy, is not
        # part of any run.
        async with _policies(wire, [policy(_FIRST, {"namespaces": [_FIRST]})]):
            await turns.run(_FIRST, "not counted")
        async with bare_webhook(wire, folder, _PATCHED, patch=_PATCH):
            runs.append(await turns.run(_PATCHED, "a webhook with a fixed patch"))
        for place, policies, what in _cases():
            await make_namespace(wire, place)
            async with _policies(wire, policies):
                runs.append(await turns.run(place, what))
    return runs


def _cases() -> Iterator[tuple[str, list[Object], str]]:
    """Yield the namespace, the policies and the name of each run."""
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
"""The ways in which policies for other objects select them."""


def table(runs: Sequence[Run], title: str = "Changed before stored") -> Table:
    """Return the table of runs."""
    columns = ("p50 / p99", "bare", "over bare, ms", "creates/s", "of bare", "calls/create")
    result = Table("run", *columns, title=title, title_justify="left")
    for run in runs:
        changed, bare = run.changed, run.bare
        ours, theirs = changed.create, bare.create
        over = (ours.p50 - theirs.p50, ours.p99 - theirs.p99)
        result.add_row(
            run.name,
            f"{ours}",
            f"{theirs}",
            " / ".join(f"{seconds * 1000:+.2f}" for seconds in over),
            f"{changed.per_second:.0f}",
            f"{changed.per_second / bare.per_second:.2f}",
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
    # Without the default ServiceAccount no Pod is admitted.
    await until(wire, f"/api/v1/namespaces/{name}/serviceaccounts", lambda it: it.get("items"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Measures namespaces, each in turns with the namespace of the bare webhook.

    Attributes:
        sort: The kind of object to create in both.
    """

    wire: Wire
    log: Path
    load: Load
    sort: Sort = CONFIG_MAPS

    async def run(self, namespace: str, name: str) -> Run:
        """Create objects in a namespace and in the bare one, in turns."""
        places = (_BARE, namespace)
        for place in places:
            await self._create_all(place, f"{namespace}-warm", _WARM_UP)
        begin = await audit.position(self.log)
        bursts = dict.fromkeys(places, 0.0)
        for turn in range(_BURSTS):
            for place in places[:: -1 if turn % 2 else 1]:
                begun = perf_counter()
                await self._create_all(place, f"{namespace}-burst-{turn}", self.load.number)
                bursts[place] += perf_counter() - begun
        taken = await self._steady(places, f"{namespace}-steady")
        calls = audit.count(self.log, begin, await audit.position(self.log))
        created = _BURSTS * self.load.number
        bare, changed = (
            Pace(create=Spread.of(taken[place]), per_second=created / bursts[place])
            for place in places
        )
        total = sum(calls.by_what.values())
        each = total / (created + len(taken[namespace]))
        return Run(name=name, changed=changed, bare=bare, calls=each)

    async def _create_all(self, namespace: str, prefix: str, number: int) -> None:
        await create_all(self.wire, namespace, prefix, number, self.load.parallel, self.sort)

    async def _steady(self, places: Sequence[str], prefix: str) -> dict[str, list[float]]:
        """Create objects at the steady rate in all namespaces, in turns; return the durations."""
        rate = self.load.rate * len(places)
        begun = perf_counter()
        tasks: dict[str, list[asyncio.Task[float]]] = {place: [] for place in places}
        async with asyncio.TaskGroup() as group:
            for index in range(round(rate * self.load.seconds)):
                await asyncio.sleep(max(0.0, begun + index / rate - perf_counter()))
                place = places[index % len(places)]
                work = self.sort.create(self.wire, place, f"{prefix}-{index}")
                tasks[place].append(group.create_task(work))
        return {place: [task.result() for task in done] for place, done in tasks.items()}


async def create_all(
    wire: Wire, namespace: str, prefix: str, number: int, parallel: int, sort: Sort
) -> None:
    """Create ``number`` objects, up to ``parallel`` at a time."""
    left = iter(range(number))

    async def worker() -> None:
        for index in left:
            await sort.create(wire, namespace, f"{prefix}-{index}")

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(worker())


@contextlib.asynccontextmanager
async def _policies(wire: Wire, policies: Sequence[Object]) -> AsyncIterator[None]:
    """Create policies, wait until they are Ready, and delete them at the end."""
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
    """Wait until the object at a path fulfils a condition."""
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
    """Run the bare webhook, with a fixed patch if any, and register it for one namespace."""
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
    # The API server sees a new configuration through a watch of its own.
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
