"""All services on an in-memory cluster, with a clock that only tests advance."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.api.account import ServiceAccount
from reconciler.api.kinds import policy_named
from reconciler.api.meta import FIELD_MANAGER, Kind, Object, policy_ref, ref_of
from reconciler.api.updaterequest import (
    RequestSpec,
    RequestStatus,
    Source,
    State,
    TriggerRecord,
    UpdateRequest,
)
from reconciler.errors import ClusterError
from reconciler.memory.loader import MemoryLoader
from reconciler.requests.lifecycle import Retention
from reconciler.requests.naming import labels
from reconciler.requests.schedule import Backoff
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.ports.objects import Page
from reconciler.services.processing.attempt import Attempt, Processor
from reconciler.services.processing.dispatch import Dispatcher
from reconciler.services.processing.known_requests import KnownRequests
from reconciler.services.processing.lanes import Lanes
from reconciler.services.processing.memory_budget import InFlight
from reconciler.services.processing.pacing import Pacer
from reconciler.services.processing.selection import TargetFinder
from reconciler.services.processing.trigger import TriggerReader
from reconciler.services.sweeping.sweeper import Sweeper
from tests.filters import parse_filters
from tests.rigged import RiggedCluster
from tests.stored import MemoryPolicies, MemoryRequests

NAMESPACE = "kyverno"
Change = Callable[[Object, Object], None]
START = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


@dataclass
class StandingClock:
    """A clock that only a test advances, and whose wall time `ahead` shifts."""

    moment: datetime = START
    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return self.moment + self.ahead

    def monotonic(self) -> float:
        return (self.moment - START).total_seconds() + 1000.0

    def tick(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@dataclass
class Wire:
    """Reader and writer of the cluster that counts calls and runs a test's hooks before them.

    `before_change` and `before_read` may raise, or change the cluster. An entry of `users` names
    the account and the call; the shared account of the policies is the empty name.
    """

    cluster: RiggedCluster
    calls: Counter[str] = field(default_factory=Counter)
    before_change: Callable[[Object, Object], Awaitable[Any] | None] = lambda *_: None
    before_read: Callable[[str, str], Awaitable[Any] | None] = lambda *_: None
    page_size: int = 0
    user: str = ""
    users: list[str] = field(default_factory=list)
    managers: list[str] = field(default_factory=list)

    def acting_as(self, account: ServiceAccount | None) -> "Wire":
        return self if account is None else replace(self, user=str(account))

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        self.users.append(f"{self.user} get {kind.kind}")
        self.calls["get"] += 1
        self.calls[f"get {kind.kind} {name}"] += 1
        await _step(self.before_read("get", kind.kind))
        return await self.cluster.get(kind, namespace, name)

    async def list_page(self, kind: Kind, **options: Any) -> Page:
        self.users.append(f"{self.user} list {kind.kind}")
        self.calls["list"] += 1
        await _step(self.before_read("list", kind.kind))
        page = await self.cluster.list_page(kind, **options)
        return replace(page, size=self.page_size)

    async def change(
        self, kind: Kind, before: Object, after: Object, *, manager: str = FIELD_MANAGER
    ) -> Object:
        self.users.append(f"{self.user} change {kind.kind}")
        self.calls["change"] += 1
        self.managers.append(manager)
        await _step(self.before_change(before, after))
        return await self.cluster.change(kind, before, after, manager=manager)


async def _step(interference: Awaitable[Any] | None) -> None:
    await asyncio.sleep(0)
    if interference is not None:
        await interference


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until a condition holds, which may depend on a child process."""
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("the condition never held")


class World:
    """All services joined to one in-memory cluster, with helpers that arrange its objects."""

    def __init__(
        self, *, controller_users: tuple[str, ...] = (), flight: InFlight | None = None
    ) -> None:
        self.controller_users = controller_users
        self.flight = flight or InFlight()
        self.clock = StandingClock()
        self.cluster = RiggedCluster(self.clock)
        self.wire = Wire(self.cluster)
        self.observed: list[tuple[UpdateRequest, RequestStatus, Attempt]] = []
        self.swept: list[tuple[RequestSpec, Attempt]] = []
        self.filters = parse_filters()
        self.restart()

    def restart(self) -> None:
        """Replace all services, which keeps only the state in the cluster."""
        clock, cluster, wire = self.clock, self.cluster, self.wire
        backoff = Backoff(spread=0.0)
        self.index = PolicyStore()
        self.policies = MemoryPolicies(cluster)
        self.requests = MemoryRequests(cluster, NAMESPACE)
        self.triggers = TriggerReader(
            kinds=cluster,
            reader=wire,
            requests=self.requests,
            clock=clock,
            randbelow=lambda limit: limit - 1,
        )
        self.pacer = Pacer(index=self.index, clock=clock)
        self.loader = MemoryLoader(cluster)
        known = KnownRequests()
        self.lanes = Lanes(
            reader=wire,
            writer=wire,
            keys=cluster,
            missing_pauses=(0.0, 0.0),
            flight=self.flight,
            unfinished=known.unfinished,
        )
        self.processor = Processor(
            index=self.index,
            policies=self.policies,
            finder=TargetFinder(kinds=cluster, reader=wire, flight=self.flight),
            triggers=self.triggers,
            lanes=self.lanes,
            loader=self.loader,
            backoff=backoff,
            pacer=self.pacer,
            controller_users=self.controller_users,
        )
        self.sweeper = Sweeper(
            processor=self.processor,
            each=lambda *facts: self.swept.append(facts),
        )
        self.dispatcher = Dispatcher(
            requests=self.requests,
            processor=self.processor,
            sweep=self.sweeper.run,
            clock=clock,
            jitter=lambda: 0.0,
            retention=Retention(seconds=dict.fromkeys(State, 600.0)),
            observe=lambda *facts: self.observed.append(facts),
            history=cluster,
            known=known,
        )

    def install(self, policy: Object) -> Object:
        """Store a policy and add it to the policy store."""
        stored = self.cluster.add(policy)
        compiled = self.index.apply(stored)
        assert not isinstance(compiled, Exception), compiled
        return stored

    def forget(self, key: str) -> None:
        """Report the deletion of a policy to the policy store."""
        ref = policy_named(key)
        meta = {"name": ref.name, "namespace": ref.namespace}
        self.index.on_deleted({"apiVersion": ref.api_version, "kind": ref.kind, "metadata": meta})

    async def read(self, obj: Object) -> Object:
        """Return an object as it is stored now."""
        meta = obj["metadata"]
        return await self.cluster.get(self.kind_of(obj), meta.get("namespace", ""), meta["name"])

    async def edit(self, obj: Object, **parts: Any) -> Object:
        """Change an object as a user; `labels` and `annotations` are added to the metadata."""
        stored = await self.read(obj)
        meta = dict(stored["metadata"])
        for name in ("labels", "annotations"):
            if name in parts:
                meta[name] = {**meta.get(name, {}), **parts.pop(name)}
        changed = {**stored, "metadata": meta, **parts}
        return await self.cluster.change(self.kind_of(obj), stored, changed)

    def remove(self, obj: Object) -> None:
        """Delete an object."""
        meta = obj["metadata"]
        self.cluster.delete(self.kind_of(obj), meta.get("namespace", ""), meta["name"])

    def kind_of(self, obj: Object) -> Kind:
        kind = self.cluster.exact(obj["apiVersion"], obj["kind"])
        assert kind is not None, f"no {obj['kind']} is served"
        return kind

    async def ask(
        self,
        policy: Object,
        trigger: Object,
        *,
        name: str = "ur-1",
        rule: str = "r",
        operation: str = "CREATE",
        record: TriggerRecord | None = None,
        **spec: Any,
    ) -> UpdateRequest:
        """Store a request of a rule for a trigger as an admission server does; return it."""
        meta = policy["metadata"]
        request_spec = RequestSpec(
            **{
                "policy": policy_ref(policy),
                "rule": rule,
                "resource": ref_of(trigger),
                "operation": operation,
                "policy_uid": meta["uid"],
                "policy_generation": meta["generation"],
                "trigger": record or TriggerRecord(),
                **spec,
            }
        )
        marks = labels(request_spec.policy.key, request_spec.resource.uid, Source.ADMISSION)
        await self.requests.create(name, marks, request_spec)
        return await self.requests.get(name)

    async def settle(self) -> None:
        """Run the dispatcher until no request is due at the current time."""
        queue = self.dispatcher.queue
        async with self.working():
            await until(
                lambda: not queue.working and (queue.next_due() or 1e12) > self.clock.monotonic()
            )

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run the dispatcher in the background."""
        work = asyncio.create_task(self.dispatcher.run())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def status(self, name: str = "ur-1") -> RequestStatus:
        """Return the stored status of a request."""
        return (await self.requests.get(name)).status


def make_policy(
    name: str = "p",
    *,
    targets: list[Object] | None = None,
    patch: Object | None = None,
    json: str | None = None,
    kinds: tuple[str, ...] = ("ConfigMap",),
    namespace: str = "",
    spec: Object | None = None,
    resources: Object | None = None,
    **rule: Any,
) -> Object:
    """Return a policy with the rule ``r``: by default it labels the Secret ``s`` of ``a``.

    With an empty list of targets the rule changes its trigger.
    """
    changes: Object = {}
    if targets != []:
        changes["targets"] = targets or [secret_target()]
    if json is None:
        changes["patchStrategicMerge"] = patch or {"metadata": {"labels": {"done": "yes"}}}
    else:
        changes["patchesJson6902"] = json
    if (flag := rule.pop("on_change", None)) is not None:
        changes["mutateExistingOnPolicyUpdate"] = flag
    match = {"any": [{"resources": {"kinds": list(kinds), **(resources or {})}}]}
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": meta,
        "spec": {
            **(spec or {}),
            "rules": [{"name": "r", "match": match, "mutate": changes, **rule}],
        },
    }


def secret_target(name: str = "s", **fields: Any) -> Object:
    """Return the entry of ``mutate.targets`` for one Secret of namespace ``a``."""
    return {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": name, **fields}


def make_object(
    kind: str = "ConfigMap", name: str = "c", namespace: str = "a", **content: Any
) -> Object:
    """Return an object; `labels` goes to the metadata."""
    meta: Object = {"name": name} | ({"namespace": namespace} if namespace else {})
    if "labels" in content:
        meta["labels"] = content.pop("labels")
    api_version = content.pop("apiVersion", "v1")
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **content}


class Make:
    """Builders: ``make.policy``, ``make.target``, ``make.object``."""

    policy = staticmethod(make_policy)
    target = staticmethod(secret_target)
    object = staticmethod(make_object)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make() -> type[Make]:
    return Make


@pytest.fixture
def refuse() -> Callable[[ClusterError, Callable[[Object], bool]], Change]:
    """Return a builder of hooks for `Wire.before_change` that raise an error for some contents."""

    def hook(error: ClusterError, wrong: Callable[[Object], bool]) -> Change:
        def check(_before: Object, after: Object) -> None:
            if wrong(after):
                raise error

        return check

    return hook
