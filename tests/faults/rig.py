"""A cluster with both programs at work, and a client of its administrator that hides nothing."""

import asyncio
import contextlib
import signal
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.parser import text_string_to_metric_families

from devcluster.cluster import Cluster, ControlPlane
from devcluster.install import NAMESPACE, ProgramSettings, install
from devcluster.programs import ADMISSION, CONTROLLER, Programs
from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind, Object
from reconciler.api.requestwire import parse_request
from reconciler.api.rights import parse_right
from reconciler.api.updaterequest import Source, State, UpdateRequest
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError, Conflict, NotFound
from reconciler.installation import REPLACING
from reconciler.kube.access import AccessReviews
from reconciler.kube.client import Client, connect
from reconciler.kube.decoding import MERGE_PATCH
from reconciler.kube.discovery import KubeKinds

BACKGROUND = "system:serviceaccount:kyverno:kyverno-background-controller"
"""In whose name policies work; the controller itself has another one."""
CONTROLLER_USER = "system:serviceaccount:kyverno:kube-retrofit-controller"
REACHES_THE_CONTROLLER = "rbac.kyverno.io/aggregate-to-background-controller"
ALL_VERBS = ("get", "list", "update", "patch")
FINAL = frozenset({State.COMPLETED, State.FAILED, State.SKIP})
# A killed leader is followed after seconds instead of a quarter of a minute.
SHORT_LEASE = ("--lease-duration=5s", "--lease-renew=4s", "--lease-retry=1s")

_PAGE = 500
SHORT_WAR = ("--patch-war-window=15s",)
_WRONG_CLOCK = Path(__file__).with_name("wrong_clock")
MANAGER = "person"
"""Who writes: else the name of the client is taken, which is that of the programs."""


def _kind(api_version: str, kind: str, plural: str, *, namespaced: bool = True) -> Kind:
    group, _, version = api_version.rpartition("/")
    return Kind(group=group, version=version, kind=kind, plural=plural, namespaced=namespaced)


_KNOWN = {
    kind.kind: kind
    for kind in (
        _kind("v1", "ConfigMap", "configmaps"),
        _kind("v1", "Event", "events"),
        _kind("v1", "Namespace", "namespaces", namespaced=False),
        _kind("v1", "Pod", "pods"),
        _kind("v1", "Secret", "secrets"),
        _kind("apps/v1", "Deployment", "deployments"),
        _kind("coordination.k8s.io/v1", "Lease", "leases"),
        _kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False),
        _kind(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            namespaced=False,
        ),
        _kind(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            namespaced=False,
        ),
        _kind(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            namespaced=False,
        ),
        _kind("kyverno.io/v1", "ClusterPolicy", "clusterpolicies", namespaced=False),
        _kind("kyverno.io/v1", "Policy", "policies"),
        kinds_of(REPLACING).requests,
    )
}


def audit_log(cluster: Cluster, program: str) -> Path:
    """Return the file that a program of these tests appends its audit log to."""
    return cluster.directory / f"{program}.audit"


def clock_environment(clock: Path) -> dict[str, str]:
    """Return the variables by which a program's wall clock is what a file says."""
    return {"PYTHONPATH": str(_WRONG_CLOCK), "RETROFIT_TEST_CLOCK": str(clock)}


def set_clock(clock: Path, ahead: float) -> None:
    """Set the wall clock of a program so many seconds off, now or at its start."""
    # It is read all the time: never half of it.
    new = clock.with_suffix(".new")
    new.write_text(str(ahead))
    new.replace(clock)


def config_map(namespace: str, name: str, **data: str) -> Object:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def pod(namespace: str, name: str) -> Object:
    """Return a Pod that no node runs."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "registry.invalid/none"}],
        },
    }


def deployment(namespace: str, name: str) -> Object:
    """Return a Deployment without replicas."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod(namespace, name)["spec"]},
        },
    }


def target(namespace: str, name: str, kind: str = "ConfigMap", api: str = "v1") -> Object:
    """Return one entry of ``mutate.targets``."""
    return {"apiVersion": api, "kind": kind, "namespace": namespace, "name": name}


def rule(
    namespace: str,
    targets: Iterable[Object],
    patch: Any,
    *,
    names: str = "trigger-*",
    kinds: Iterable[str] = ("ConfigMap",),
    operations: Iterable[str] = (),
    name: str = "rule",
    **more: Any,
) -> Object:
    """Return a rule; a text as patch is a JSON patch."""
    resources: Object = {"kinds": list(kinds), "names": [names], "namespaces": [namespace]}
    if operations:
        resources["operations"] = list(operations)
    edit = "patchesJson6902" if isinstance(patch, str) else "patchStrategicMerge"
    return {
        "name": name,
        "match": {"any": [{"resources": resources}]},
        "mutate": {"targets": list(targets), edit: patch},
        **more,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """What became of triggers that were sent at a steady rate."""

    accepted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class Rig:
    """Everything that a test does to the cluster, and sees of it.

    Attributes:
        cluster: Where the programs work.
        programs: The two programs.
        namespace: Of this test alone; its policies bear the same name.
    """

    def __init__(
        self, cluster: Cluster, programs: Programs, client: Client, namespace: str
    ) -> None:
        self.cluster = cluster
        self.programs = programs
        self.namespace = namespace
        self._client = client
        self._kinds: dict[str, Kind] = dict(_KNOWN)

    async def learn(self, api_version: str, kind: str) -> None:
        """Make a kind known that the cluster serves, now or soon."""

        async def missing() -> str:
            found = await KubeKinds(self._client, SystemClock()).find(api_version, kind)
            if found:
                self._kinds[kind] = found[0]
            return "" if found else f"{kind} is not served"

        await self.settle(missing, within=15.0)

    async def create(self, obj: Object) -> Object:
        """Create an object; nothing is tried twice."""
        meta = obj["metadata"]
        kind = self._kinds[obj["kind"]]
        return await self._write(kind, "create", obj, meta.get("namespace"))

    async def refused(self, obj: Object) -> bool:
        """Return whether the API server refuses to create an object."""
        try:
            await self.create(obj)
        except ClusterError:
            return True
        return False

    async def create_all(self, objects: Iterable[Object]) -> None:
        """Create objects side by side."""
        gate = asyncio.Semaphore(16)

        async def one(obj: Object) -> None:
            async with gate:
                await self.create(obj)

        await asyncio.gather(*(one(obj) for obj in objects))

    async def burst(self, triggers: Iterable[Object], per_second: float) -> Burst:
        """Create triggers at a steady rate, whatever the answers are."""
        burst = Burst()
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def one(obj: Object) -> None:
            name = obj["metadata"]["name"]
            try:
                await self.create(obj)
            except ClusterError as error:
                burst.refused[name] = str(error)
            else:
                burst.accepted.append(name)

        async with asyncio.TaskGroup() as group:
            for index, obj in enumerate(triggers):
                await asyncio.sleep(max(0.0, begun + index / per_second - loop.time()))
                group.create_task(one(obj))
        return burst

    async def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """Return an object of the test's namespace, or of another."""
        resource = self._client.resource(self._kinds[kind])
        found: Object = await resource.get(name, self._place(namespace))
        return found

    async def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return an object, None where there is none."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def data(self, name: str) -> dict[str, str]:
        """Return the data of a ConfigMap of the test's namespace."""
        return dict((await self.get("ConfigMap", name)).get("data") or {})

    async def items(self, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """Return the objects of a namespace; an empty one means all."""
        resource, place = self._client.resource(self._kinds[kind]), self._place(namespace)
        found: list[Object] = []
        token = ""
        while True:
            # In pages, for as long as this process decodes one no thread of it passes a call on.
            answer = await resource.get(namespace=place, limit=_PAGE, _continue=token, **query)
            found += answer["items"]
            token = answer["metadata"].get("continue") or ""
            if not token:
                return found

    async def merge(
        self,
        kind: str,
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """Change an object by a merge patch."""
        changed = replace(self._kinds[kind], subresource=subresource)
        place = self._place(namespace)
        return await self._write(changed, "patch", patch, place, name=name)

    async def replace(self, obj: Object, manager: str = MANAGER) -> Object:
        """Write back an object that was read, as a PUT."""
        kind, place = self._kinds[obj["kind"]], obj["metadata"].get("namespace")
        return await self._write(kind, "replace", obj, place, manager=manager)

    async def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object that exists."""
        resource = self._client.resource(self._kinds[kind])
        await resource.delete(name, self._place(namespace), repeat=False)

    async def delete_all(self, kind: str, *kept: str) -> None:
        """Delete what the test's namespace holds of a kind, by one call as the end of it would."""
        path = self._client.resource(self._kinds[kind]).path(namespace=self.namespace)
        # Each namespace is given the first one again.
        names = (f"metadata.name!={name}" for name in ("kube-root-ca.crt", *kept))
        query = {"fieldSelector": ",".join(names)}
        await self._client.request("DELETE", path, query=query, repeat=False)

    async def apply(self, *rules: Object, kind: str = "ClusterPolicy", **spec: Any) -> str:
        """Create or replace the test's policy, wait until it is Ready, return its key."""
        namespace = self.namespace if kind == "Policy" else ""
        wanted = {"rules": list(rules), **spec}
        old = await self.find(kind, self.namespace, namespace)
        if old is None:
            meta = {"name": self.namespace} | ({"namespace": namespace} if namespace else {})
            body = {"apiVersion": "kyverno.io/v1", "kind": kind, "metadata": meta, "spec": wanted}
            await self.create(body)
        else:
            await self._put_spec(old, wanted)
        await self.ready(kind)
        return f"{namespace}/{self.namespace}" if namespace else self.namespace

    async def _put_spec(self, policy: Object, spec: Object) -> None:
        """Replace the spec of a policy, whose status is written every second."""
        while True:
            try:
                await self.replace({**policy, "spec": spec})
            except Conflict:
                meta = policy["metadata"]
                policy = await self.get(policy["kind"], meta["name"], meta.get("namespace", ""))
            else:
                return

    async def ready(self, kind: str = "ClusterPolicy") -> None:
        """Wait until the test's policy is in force in its newest generation."""
        namespace = self.namespace if kind == "Policy" else ""

        async def missing() -> Any:
            policy = await self.get(kind, self.namespace, namespace)
            status = policy.get("status") or {}
            seen = (status.get("mutateExisting") or {}).get("observedGeneration")
            if status.get("ready") and seen == policy["metadata"]["generation"]:
                return None
            return status or "no status"

        await self.settle(missing, within=30.0)

    async def requests(self, policy: str = "", state: State | None = None) -> list[UpdateRequest]:
        """Return the requests of a policy, by default of the test's own."""
        chosen = f"spec.policy={policy or self.namespace}"
        items = await self.items("UpdateRequest", NAMESPACE, field_selector=chosen)
        found = [parse_request(item) for item in items]
        return [item for item in found if state is None or item.status.state is state]

    async def waiting(self, policy: str = "") -> list[str]:
        """Return what the unfinished requests of a policy say."""
        found = await self.requests(policy)
        return [
            f"{item.name} {item.status.reason} {item.status.message}"
            for item in found
            if item.status.state not in FINAL
        ]

    async def states(self, policy: str = "") -> Counter[str]:
        """Return how many requests of a policy ended how."""
        return Counter(str(item.status.state) for item in await self.requests(policy))

    async def one_to_one(self, count: int) -> list[Object]:
        """Apply a rule by which each trigger changes a target of its own; return the triggers."""
        place = self.namespace
        await self.apply(
            rule(
                place,
                [target(place, "target-{{ request.object.data.n }}")],
                {"data": {"got": "{{ request.object.metadata.name }}"}},
            )
        )
        await self.create_all(config_map(place, f"target-{n}") for n in range(count))
        return [config_map(place, f"trigger-{n}", n=str(n)) for n in range(count)]

    async def completed(self, least: int, within: float) -> None:
        """Wait until so many requests are completed."""

        async def missing() -> str:
            done = await self.states()
            return "" if done[State.COMPLETED] >= least else f"only {done} yet"

        await self.settle(missing, within=within)

    async def finish(self, count: int = 1, policy: str = "", within: float = 20.0) -> None:
        """Wait until a policy has so many requests and all of them ended."""

        async def missing() -> Any:
            found = await self.requests(policy)
            open_ = [item for item in found if item.status.state not in FINAL]
            if len(found) >= count and not open_:
                return None
            return f"{len(found)} of {count} requests, {len(open_)} waiting: {open_[:2]}"

        await self.settle(missing, within=within)

    async def parked(self, reason: str, within: float = 20.0) -> UpdateRequest:
        """Wait until the one waiting request says why it waits, and return it.

        What catch-up found is left out: of a trigger as young as its rule it may make one more.
        """
        found: list[UpdateRequest] = []

        async def missing() -> Any:
            waiting = await self.requests(state=State.PENDING)
            found[:] = [item for item in waiting if item.spec.source is not Source.CATCH_UP]
            return [] if [item.status.reason for item in found] == [reason] else found or "none"

        await self.settle(missing, within=within)
        return found[0]

    async def settle(self, missing: Callable[[], Awaitable[Any]], within: float) -> None:
        """Wait until nothing is missing any more; what was missing last is in the failure."""
        loop = asyncio.get_running_loop()
        begun = looked = loop.time()
        while left := await missing():
            now = loop.time()
            waited = now - begun
            assert waited < within, f"after {within:g} s there is still: {left}"
            # Looking costs CPU, here and in the API server: a long look is not repeated as often
            # as a short one, and what takes long is not noticed to the tenth of a second.
            await asyncio.sleep(max(0.1, 3 * (now - looked), min(waited / 10, 0.5)))
            looked = loop.time()

    async def lacking(self, expected: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """Return the ConfigMaps whose data does not contain what is expected."""
        items = await self.items("ConfigMap")
        live = {item["metadata"]["name"]: item.get("data") or {} for item in items}
        return {
            name: live.get(name)
            for name, data in expected.items()
            if not data.items() <= live.get(name, {}).items()
        }

    async def applied(self, expected: Mapping[str, Mapping[str, str]], within: float) -> None:
        """Wait until all ConfigMaps contain what is expected."""

        async def missing() -> Any:
            return await self.lacking(expected)

        await self.settle(missing, within=within)

    async def kill(self, *names: str) -> None:
        """End programs as ``kill -9`` does."""
        for name in names:
            await asyncio.to_thread(self.programs.kill, name)

    async def restart(self, *names: str) -> None:
        """Start programs again, side by side, and wait until they are ready."""
        await asyncio.to_thread(self._restart, names)

    async def controller(self, *flags: str, name: str, ahead: float = 0.0) -> None:
        """Start another controller with flags of its own and wait until it is ready.

        Args:
            flags: More of them.
            name: Of this replica.
            ahead: Seconds by which its wall clock is wrong.
        """
        clock = self.cluster.directory / f"clock-{name}"
        set_clock(clock, ahead)
        settings = ProgramSettings(flags=flags, env=clock_environment(clock))
        await asyncio.to_thread(self.programs.start, CONTROLLER, settings, name=name)

    def reinstall(self) -> None:
        """Install the manifests again, and give the programs tokens of the new accounts."""
        install(self.cluster, "demo")
        for name in ("kyverno-admission-controller", "kube-retrofit-controller"):
            self.cluster.service_account_kubeconfig(NAMESPACE, name)

    def ensure(self) -> None:
        """Start what an earlier test left dead, and end what it started beside."""
        exits = self.programs.supervision.exit_code
        for name in list(self.programs.supervision.pids):
            if name not in {ADMISSION, CONTROLLER} and exits(name) is None:
                # Killed, it would leave a Lease behind that others have to wait for.
                self.programs.kill(name, signal.SIGTERM)
        self._restart([name for name in (ADMISSION, CONTROLLER) if exits(name) is not None])

    async def metric(self, program: str, name: str, **labels: str) -> float:
        """Return the sum of the samples of a program's metric."""

        def read() -> str:
            with urllib.request.urlopen(f"{self.programs.address(program)}/metrics") as answer:
                return str(answer.read().decode())

        families = text_string_to_metric_families(await asyncio.to_thread(read))
        return sum(
            item.value
            for family in families
            for item in family.samples
            if item.name == f"retrofit_{name}" and labels.items() <= dict(item.labels).items()
        )

    async def may(self, right: str) -> bool:
        """Return whether the controller has a right, as ``update secrets in namespace a``."""
        wanted = parse_right(right)
        assert wanted is not None, right
        account = BACKGROUND.rpartition(":")[2]
        reviews = AccessReviews(self._client, namespace=NAMESPACE, service_account=account)
        return await reviews.may(wanted)

    @contextlib.asynccontextmanager
    async def granted(self, *resources: str) -> AsyncIterator[None]:
        """Give the controller rights by an aggregated ClusterRole, as people do, for a while."""
        name = f"team:{self.namespace}"
        rules = [
            {"apiGroups": [group], "resources": [plural], "verbs": list(ALL_VERBS)}
            for plural, _, group in (item.partition(".") for item in resources)
        ]
        meta = {"name": name, "labels": {REACHES_THE_CONTROLLER: "true"}}
        await self.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": meta,
                "rules": rules,
            }
        )
        try:
            await self._until_rights(resources, granted=True)
            yield
        finally:
            await self.delete("ClusterRole", name, "")
            await self._until_rights(resources, granted=False)

    async def _until_rights(self, resources: Iterable[str], *, granted: bool) -> None:
        async def other() -> list[str]:
            return [item for item in resources if await self.may(f"update {item}") is not granted]

        await self.settle(other, within=20.0)

    async def clean(self) -> None:
        """Remove the test's policies and objects, so that nobody waits for them.

        Its namespace only where the cluster outlives the tests: to end one the API server is asked
        for each kind that it serves, more than most tests ask.
        """
        for item in await self.items("ClusterPolicy", ""):
            if item["metadata"]["name"].startswith(self.namespace):
                await self.delete("ClusterPolicy", item["metadata"]["name"], "")
        if not isinstance(self.cluster, ControlPlane):
            with contextlib.suppress(NotFound):
                await self.delete("Namespace", self.namespace, "")
            return
        for kind in ("Policy", "ConfigMap", "Secret", "Pod", "Deployment"):
            # Refused where a test left nobody to answer about deletions, as within a namespace.
            with contextlib.suppress(ClusterError):
                await self.delete_all(kind)

    def running(self) -> bool:
        """Return whether both programs still run as they were started."""
        exits = self.programs.supervision.exit_code
        return exits(ADMISSION) is None and exits(CONTROLLER) is None

    def has_log(self, name: str) -> bool:
        """Return whether a program of that name ever ran."""
        return (self.programs.logs / f"{name}.log").exists()

    def log(self, name: str) -> list[Object]:
        """Return the log lines of a program; what is no line of its own is told as text."""
        found: list[Object] = []
        for line in (self.programs.logs / f"{name}.log").read_text().splitlines():
            try:
                found.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                found.append({"text": line})
        return found

    async def calls(
        self,
        verb: str,
        resource: str,
        *,
        name: str = "",
        user: str | None = None,
        by: str = CONTROLLER_USER,
        code: int = 0,
    ) -> int:
        """Return how often a program made a call, see `addresses`."""
        return len(await self.addresses(verb, resource, name=name, user=user, by=by, code=code))

    async def addresses(
        self,
        verb: str,
        resource: str,
        *,
        name: str = "",
        user: str | None = None,
        by: str = CONTROLLER_USER,
        code: int = 0,
    ) -> list[str]:
        """Return the URIs of a program's calls in the test's namespace (audit log).

        Args:
            verb: As the audit log names it.
            resource: Without its group.
            name: Of the object; empty: any.
            user: In whose name; empty: its own, None: any.
            by: The program's user; else the controller is meant.
            code: What it was answered; 0: anything.
        """
        found = await self._calls(verb, resource, name=name, by=by, code=code)
        return [
            event["requestURI"] for event in found if user is None or _spoken_for(event) == user
        ]

    async def asked(self, verb: str, resource: str) -> list[bool]:
        """Return of each call of the controller whether a mutating webhook was asked about it."""
        mark = "mutation.webhook.admission.k8s.io/"
        return [
            any(key.startswith(mark) for key in event.get("annotations") or {})
            for event in await self._calls(verb, resource, by=CONTROLLER_USER)
        ]

    async def _calls(
        self, verb: str, resource: str, *, name: str = "", by: str, code: int = 0
    ) -> list[Object]:
        assert isinstance(self.cluster, ControlPlane)
        assert self.cluster.audit_log is not None
        log = self.cluster.audit_log
        # The log is written in batches: an own call shows when everything before it is there.
        mark = f"mark-{asyncio.get_running_loop().time()}".replace(".", "-")
        await self.find("ConfigMap", mark)

        async def missing() -> str:
            return "" if mark in _tail(log) else "the audit log is behind"

        await self.settle(missing, within=10.0)
        # Most lines are about something else: the log is of all tests before this one as well.
        written = f'"resource":"{resource}"'.encode()
        lines = (line for line in log.read_bytes().splitlines() if written in line)
        events = (orjson.loads(line) for line in lines if by.encode() in line)
        return [
            event
            for event in events
            if event["verb"] == verb
            and event["user"]["username"] == by
            and (ref := event.get("objectRef") or {}).get("resource") == resource
            and (ref.get("namespace") == self.namespace or resource == "updaterequests")
            and (not name or ref.get("name") == name)
            and code in (0, (event.get("responseStatus") or {}).get("code"))
        ]

    def _restart(self, names: Iterable[str]) -> None:
        for name in names:
            self.programs.restart(name, ready=False)
        for name in names:
            self.programs.wait_ready(name)

    def _place(self, namespace: str | None) -> str:
        return self.namespace if namespace is None else namespace

    async def _write(
        self, kind: Kind, verb: str, body: Any, namespace: str | None, **options: Any
    ) -> Object:
        if verb == "patch":
            options["content_type"] = MERGE_PATCH
        options["field_manager"] = options.pop("manager", MANAGER)
        write = getattr(self._client.resource(kind), verb)
        answer: Object = await write(body, namespace=namespace, repeat=False, **options)
        return answer


@contextlib.asynccontextmanager
async def open_rig(cluster: Cluster, programs: Programs, namespace: str) -> AsyncIterator[Rig]:
    """Give a rig with a namespace of its own; what the test made is removed afterwards."""
    async with contextlib.AsyncExitStack() as stack:
        client = await connect(str(cluster.kubeconfig))
        stack.push_async_callback(client.close)
        rig = Rig(cluster, programs, client, namespace)
        await asyncio.to_thread(rig.ensure)
        meta = {"name": namespace}
        await rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        stack.push_async_callback(rig.clean)
        yield rig


def _spoken_for(event: Object) -> str:
    """Return in whose name a call was made, empty where in no other."""
    return str((event.get("impersonatedUser") or {}).get("username", ""))


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 200_000))
        return file.read().decode(errors="replace")
