"""A cluster that runs both programs, and a test's access to it as the administrator."""

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
from reconciler.api.account import ServiceAccount
from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind, Object
from reconciler.api.requestwire import parse_request
from reconciler.api.rights import parse_right
from reconciler.api.updaterequest import Source, State, UpdateRequest
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError, Conflict, NotFound
from reconciler.installation import REPLACING
from reconciler.kube.access import UserAccess
from reconciler.kube.client import Client, connect
from reconciler.kube.decoding import MERGE_PATCH
from reconciler.kube.discovery import KubeKinds
from reconciler.requests.limits import PAUSED

BACKGROUND = "system:serviceaccount:kyverno:kyverno-background-controller"
"""The user that the controller impersonates for policies; its own is `CONTROLLER_USER`."""
CONTROLLER_USER = "system:serviceaccount:kyverno:kube-retrofit-controller"
REACHES_THE_CONTROLLER = "rbac.kyverno.io/aggregate-to-background-controller"
ALL_VERBS = ("get", "list", "update", "patch")
FINAL = frozenset({State.COMPLETED, State.FAILED, State.SKIP})
# Another replica takes over from a killed leader after about 5 seconds instead of 15.
SHORT_LEASE = ("--lease-duration=5s", "--lease-renew=4s", "--lease-retry=1s")

_PAGE = 500
SHORT_WAR = ("--patch-war-window=15s",)
_WRONG_CLOCK = Path(__file__).with_name("wrong_clock")
MANAGER = "person"
"""The field manager of the tests' writes; the default is the client's, which the programs use."""


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
    """Return the file to which a program of these tests appends its audit log."""
    return cluster.directory / f"{program}.audit"


def clock_environment(clock: Path) -> dict[str, str]:
    """Return the environment variables that offset a program's wall clock by a file's content."""
    return {"PYTHONPATH": str(_WRONG_CLOCK), "RETROFIT_TEST_CLOCK": str(clock)}


def set_clock(clock: Path, ahead: float) -> None:
    """Set how many seconds a program's wall clock is ahead, before or after its start."""
    # The program reads the file at any time, so the file is replaced atomically.
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
    """Return a Pod that never runs: there are no nodes, and its image does not exist."""
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
    """Return a rule; a patch given as text is a JSON patch, any other a strategic merge patch."""
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
    """The results of triggers that were sent at a steady rate."""

    accepted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class Rig:
    """Everything that a test does to the cluster and reads from it.

    Attributes:
        cluster: The cluster in which the programs run.
        programs: The controller and the admission server.
        namespace: The namespace of this test alone; the test's policies have the same name.
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
        """Wait until the cluster serves a kind, and add it to the kinds that this rig can use."""

        async def missing() -> str:
            found = await KubeKinds(self._client, SystemClock()).find(api_version, kind)
            if found:
                self._kinds[kind] = found[0]
            return "" if found else f"{kind} is not served"

        await self.settle(missing, within=15.0)

    async def create(self, obj: Object) -> Object:
        """Create an object, without retries."""
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
        """Create objects concurrently."""
        gate = asyncio.Semaphore(16)

        async def one(obj: Object) -> None:
            async with gate:
                await self.create(obj)

        await asyncio.gather(*(one(obj) for obj in objects))

    async def burst(self, triggers: Iterable[Object], per_second: float) -> Burst:
        """Create triggers at a steady rate, without waiting for the answers."""
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
        """Return an object of a namespace, by default of the test's."""
        resource = self._client.resource(self._kinds[kind])
        found: Object = await resource.get(name, self._place(namespace))
        return found

    async def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return an object, or None if it does not exist."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def data(self, name: str) -> dict[str, str]:
        """Return the data of a ConfigMap of the test's namespace."""
        return dict((await self.get("ConfigMap", name)).get("data") or {})

    async def items(self, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """Return the objects of a namespace; an empty string means all namespaces."""
        resource, place = self._client.resource(self._kinds[kind]), self._place(namespace)
        found: list[Object] = []
        token = ""
        while True:
            # Read in pages: decoding holds the GIL, and until it ends the proxy's thread forwards
            # no calls.
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
        """Change an object with a merge patch."""
        changed = replace(self._kinds[kind], subresource=subresource)
        place = self._place(namespace)
        return await self._write(changed, "patch", patch, place, name=name)

    async def replace(self, obj: Object, manager: str = MANAGER) -> Object:
        """Write back an object that was read before, with a PUT."""
        kind, place = self._kinds[obj["kind"]], obj["metadata"].get("namespace")
        return await self._write(kind, "replace", obj, place, manager=manager)

    async def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object that exists."""
        resource = self._client.resource(self._kinds[kind])
        await resource.delete(name, self._place(namespace), repeat=False)

    async def delete_all(self, kind: str, *kept: str) -> None:
        """Delete a kind's objects in the test's namespace by one call, as deleting it would."""
        path = self._client.resource(self._kinds[kind]).path(namespace=self.namespace)
        # The control plane would create the first of these again at once.
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
        """Replace the spec of a policy, retrying because its status is written every second."""
        while True:
            try:
                await self.replace({**policy, "spec": spec})
            except Conflict:
                meta = policy["metadata"]
                policy = await self.get(policy["kind"], meta["name"], meta.get("namespace", ""))
            else:
                return

    async def ready(self, kind: str = "ClusterPolicy") -> None:
        """Wait until the newest generation of the test's policy is Ready."""
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
        """Return name, reason and message of the unfinished requests of a policy."""
        found = await self.requests(policy)
        return [
            f"{item.name} {item.status.reason} {item.status.message}"
            for item in found
            if item.status.state not in FINAL
        ]

    async def states(self, policy: str = "") -> Counter[str]:
        """Return how many requests of a policy are in each state."""
        return Counter(str(item.status.state) for item in await self.requests(policy))

    async def one_to_one(self, count: int) -> list[Object]:
        """Apply a rule by which each trigger changes its own target; return the triggers."""
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

    async def pause(self) -> None:
        """Pause the test's policy, and wait until the controller has noticed it."""
        await self._mark_paused("true")
        await self.held_back("paused")

    async def resume(self) -> None:
        """Resume the test's policy."""
        await self._mark_paused(None)

    async def held_back(self, part: str) -> None:
        """Wait until the policy's ``heldBack`` contains a text, or is empty if that is empty."""

        async def missing() -> Any:
            policy = await self.get("ClusterPolicy", self.namespace, "")
            said = policy["status"]["mutateExisting"].get("heldBack") or ""
            return "" if (part in said if part else not said) else said or "not held back"

        await self.settle(missing, within=15.0)

    async def _mark_paused(self, value: str | None) -> None:
        marks = {"metadata": {"annotations": {PAUSED: value}}}
        await self.merge("ClusterPolicy", self.namespace, marks, namespace="")

    async def completed(self, least: int, within: float) -> None:
        """Wait until at least ``least`` requests are completed."""

        async def missing() -> str:
            done = await self.states()
            return "" if done[State.COMPLETED] >= least else f"only {done} yet"

        await self.settle(missing, within=within)

    async def finish(self, count: int = 1, policy: str = "", within: float = 20.0) -> None:
        """Wait until a policy has at least ``count`` requests and all of them are final."""

        async def missing() -> Any:
            found = await self.requests(policy)
            open_ = [item for item in found if item.status.state not in FINAL]
            if len(found) >= count and not open_:
                return None
            return f"{len(found)} of {count} requests, {len(open_)} waiting: {open_[:2]}"

        await self.settle(missing, within=within)

    async def parked(self, reason: str, within: float = 20.0) -> UpdateRequest:
        """Wait until the only waiting request has the given reason, and return it.

        Catch-up requests are left out: catch-up may record a trigger again that is as young as its
        rule.
        """
        found: list[UpdateRequest] = []

        async def missing() -> Any:
            waiting = await self.requests(state=State.PENDING)
            found[:] = [item for item in waiting if item.spec.source is not Source.CATCH_UP]
            return [] if [item.status.reason for item in found] == [reason] else found or "none"

        await self.settle(missing, within=within)
        return found[0]

    async def settle(self, missing: Callable[[], Awaitable[Any]], within: float) -> None:
        """Wait until ``missing`` returns nothing; the failure contains what it returned last."""
        loop = asyncio.get_running_loop()
        begun = looked = loop.time()
        while left := await missing():
            now = loop.time()
            waited = now - begun
            assert waited < within, f"after {within:g} s there is still: {left}"
            # A check costs CPU, here and in the API server. So a slow check is repeated less often
            # than a fast one, and the longer the wait, the longer the pauses.
            await asyncio.sleep(max(0.1, 3 * (now - looked), min(waited / 10, 0.5)))
            looked = loop.time()

    async def lacking(self, expected: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """Return the data of the ConfigMaps that do not contain what is expected of them."""
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
        """Start programs again, in parallel, and wait until they are ready."""
        await asyncio.to_thread(self._restart, names)

    async def controller(self, *flags: str, name: str, ahead: float = 0.0) -> None:
        """Start another controller with flags of its own and wait until it is ready.

        Args:
            flags: Flags in addition to the shipped ones.
            name: The name of this replica.
            ahead: Seconds by which its wall clock is ahead.
        """
        clock = self.cluster.directory / f"clock-{name}"
        set_clock(clock, ahead)
        settings = ProgramSettings(flags=flags, env=clock_environment(clock))
        await asyncio.to_thread(self.programs.start, CONTROLLER, settings, name=name)

    def reinstall(self) -> None:
        """Install the manifests again, and write kubeconfigs with tokens of the new accounts."""
        install(self.cluster, "demo")
        for name in ("kyverno-admission-controller", "kube-retrofit-controller"):
            self.cluster.service_account_kubeconfig(NAMESPACE, name)

    def ensure(self) -> None:
        """Restart the programs that an earlier test left dead, and end the ones that it added."""
        exits = self.programs.supervision.exit_code
        for name in list(self.programs.supervision.pids):
            if name not in {ADMISSION, CONTROLLER} and exits(name) is None:
                # With SIGKILL it would not release its Lease, and the others would have to wait.
                self.programs.kill(name, signal.SIGTERM)
        self._restart([name for name in (ADMISSION, CONTROLLER) if exits(name) is not None])

    async def metric(self, program: str, name: str, **labels: str) -> float:
        """Return the sum of the samples of a program's metric that have the given labels."""

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
        """Return whether the account of policies has a right, as ``get pods in namespace a``."""
        wanted = parse_right(right)
        assert wanted is not None, right
        account = BACKGROUND.rpartition(":")[2]
        reviews = UserAccess.of_account(
            self._client, ServiceAccount(namespace=NAMESPACE, name=account)
        )
        return await reviews.may(wanted)

    @contextlib.asynccontextmanager
    async def granted(self, *resources: str) -> AsyncIterator[None]:
        """Grant rights by an aggregated ClusterRole, as users do, until the context ends."""
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
        """Remove the test's policies and objects, so that no later test waits for them.

        The namespace itself is deleted only where the cluster outlives the tests: deleting one
        takes a call per kind that the API server serves, more calls than most tests make.
        """
        for item in await self.items("ClusterPolicy", ""):
            if item["metadata"]["name"].startswith(self.namespace):
                await self.delete("ClusterPolicy", item["metadata"]["name"], "")
        if not isinstance(self.cluster, ControlPlane):
            with contextlib.suppress(NotFound):
                await self.delete("Namespace", self.namespace, "")
            return
        for kind in ("Policy", "ConfigMap", "Secret", "Pod", "Deployment"):
            # Refused if a test left a webhook for deletions without a server that answers it.
            with contextlib.suppress(ClusterError):
                await self.delete_all(kind)

    def running(self) -> bool:
        """Return whether both programs still run as they were started."""
        exits = self.programs.supervision.exit_code
        return exits(ADMISSION) is None and exits(CONTROLLER) is None

    def has_log(self, name: str) -> bool:
        """Return whether a program of that name has ever run."""
        return (self.programs.logs / f"{name}.log").exists()

    def log(self, name: str) -> list[Object]:
        """Return the log lines of a program; a line that is not JSON is under the key ``text``."""
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
        """Return the URIs of a program's calls in the test's namespace, from the audit log.

        Args:
            verb: The verb as in the audit log.
            resource: The plural without the group.
            name: The name of the object; empty for any.
            user: The impersonated user; empty for calls without impersonation, None for all calls.
            by: The program's user, by default the controller's.
            code: The status code of the answer; 0 for any.
        """
        found = await self._calls(verb, resource, name=name, by=by, code=code)
        return [
            event["requestURI"] for event in found if user is None or _spoken_for(event) == user
        ]

    async def asked(self, verb: str, resource: str) -> list[bool]:
        """Return for each call of the controller whether a mutating webhook was called for it."""
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
        # The log is written in batches: once it has this call, it has all calls before it.
        mark = f"mark-{asyncio.get_running_loop().time()}".replace(".", "-")
        await self.find("ConfigMap", mark)

        async def missing() -> str:
            return "" if mark in _tail(log) else "the audit log is behind"

        await self.settle(missing, within=10.0)
        # Filter before parsing: the log also holds the calls of all tests before this one.
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
    """Yield a rig with a namespace of its own, and remove what the test created afterwards."""
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
    """Return the impersonated user of a call, empty if it impersonated none."""
    return str((event.get("impersonatedUser") or {}).get("username", ""))


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 200_000))
        return file.read().decode(errors="replace")
