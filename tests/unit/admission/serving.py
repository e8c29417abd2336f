"""The webhook server on real HTTP connections, with an in-memory cluster behind it."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Self

import aiohttp
import orjson
from typing_extensions import override

from admission.beliefs import Beliefs
from admission.decide import Limits
from admission.digests import Digests
from admission.exceptions import ExceptionWebhook
from admission.facts import Facts
from admission.failures import RuleFailures
from admission.lookup import RuleLookup
from admission.mutate import MutateWebhook
from admission.policies import PolicyWebhook
from admission.resources import ResourceWebhook
from admission.roles import RoleIndex
from admission.server import WebhookServer
from admission.verdicts import VerdictWebhook
from reconciler.api.updaterequest import RequestSpec, UpdateRequest
from reconciler.clock import Clock, SystemClock
from reconciler.errors import Unavailable
from reconciler.memory.loader import MemoryLoader
from reconciler.observe.listening import bind
from reconciler.observe.metrics import Metrics
from reconciler.requests.overload import Thresholds
from reconciler.services.admitting.admit import Admit
from reconciler.services.admitting.mutation_events import MutationEvents
from reconciler.services.catalog.exceptions import ExceptionSettings
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.settings import ClusterSettings, Filters, SettingsHolder
from reconciler.services.ports.objects import Loader
from reconciler.services.ports.reporting import Event
from reconciler.services.processing.memory_budget import Readings
from reconciler.services.recording.backlog import BacklogEstimate
from reconciler.services.recording.diversion import Diversion
from reconciler.services.recording.joining import SharedRequests
from reconciler.services.recording.recorder import Recorder
from reconciler.serving.bodies import Bodies
from reconciler.serving.callers import Callers
from reconciler.serving.connections import ConnectionLimits
from reconciler.serving.http import Transport
from tests.filters import parse_filters
from tests.rigged import RiggedCluster
from tests.stored import MemoryRequests
from tests.unit.admission.conftest import make_deps

MAX_BODY = 64 * 1024
RECORDED = {"policy": "set-team", "rule": "copy", "source": "admission"}
THRESHOLDS = Thresholds(limit=10_000, hard=100_000)
JSON = {"Content-Type": "application/json"}


class Stuck(MemoryRequests):
    """Requests whose creation blocks until the test sets `go_on`."""

    def __init__(self, cluster: RiggedCluster, namespace: str) -> None:
        super().__init__(cluster, namespace)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    @override
    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        self.begun.set()
        await self.go_on.wait()
        return await super().create(name, labels, spec)


class Broken(dict[str, Any]):
    """A namespace cache whose lookups raise an unexpected error."""

    @override
    def get(self, *_: Any) -> Any:
        raise ZeroDivisionError("boom")


class Away(RiggedCluster):
    """A cluster whose discovery is unavailable."""

    @override
    async def of_resource(self, *_: str) -> NoReturn:
        raise Unavailable("gone for lunch")


class Slow(RiggedCluster):
    """A cluster whose discovery never answers; `asked` is set when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    @override
    async def of_resource(self, *_: str) -> None:
        self.asked.set()
        await asyncio.Event().wait()


class RecordedEvents:
    """The `Events` port: keeps the emitted events in a list."""

    def __init__(self) -> None:
        self.kept: list[Event] = []

    def emit(self, event: Event) -> None:
        self.kept.append(event)


async def at_once() -> None:
    """Return at once, in the place of a read that is not necessary."""


class World:
    """A webhook server, its cluster and an HTTP client."""

    def __init__(
        self,
        index: PolicyStore,
        *,
        requests: type[MemoryRequests] = MemoryRequests,
        namespaces: dict[str, Any] | None = None,
        cluster: type[RiggedCluster] = RiggedCluster,
        thresholds: Thresholds = THRESHOLDS,
        farewell: float = 0.0,
        limits: ConnectionLimits | None = None,
        together: int = 1024 * 1024,
        body_timeout: float = 5.0,
        callers: Callers | None = None,
        context: ssl.SSLContext | None = None,
        largest: int = MAX_BODY,
        read_policies: Callable[[], Awaitable[None]] | None = None,
        budget: float = 0.5,
        clock: Clock | None = None,
        loader: Loader | None = None,
        readings: Readings | None = None,
        caught_up: Callable[[], Awaitable[None]] = at_once,
        standing_by: Callable[[], str] = str,
        tells_success: bool = False,
        filters: Filters | None = None,
        **callbacks: Any,
    ) -> None:
        self.cluster = cluster()
        self.requests = requests(self.cluster, "kyverno")
        self.metrics = Metrics()
        self.events = RecordedEvents()
        self.listener = bind("127.0.0.1", 0, flag="--port")
        clock = clock or SystemClock()
        self.estimate = BacklogEstimate(thresholds=lambda: thresholds)
        filters = filters or parse_filters()
        lookup = RuleLookup(
            index=index,
            facts=Facts(
                namespaces={"a": {}} if namespaces is None else namespaces,
                roles=RoleIndex(),
                reader=self.cluster,
                clock=clock,
            ),
            digests=Digests(read_policies=read_policies or at_once, clock=clock),
            kinds=self.cluster,
            settings=SettingsHolder("kyverno", ClusterSettings(filters=filters)),
            caught_up=caught_up,
            is_caught_up=lambda: caught_up is at_once,
        )
        limits_of_rules = Limits(controller_users=("own",), max_recorded=1000, filters=filters)
        admit = Admit(
            loader=loader or MemoryLoader(self.cluster),
            clock=clock,
            randbelow=lambda _: 0,
            readings=readings or Readings(),
        )
        self.mutations = mutations = MutateWebhook(
            lookup=lookup,
            admit=admit,
            metrics=self.metrics,
            namespace="kyverno",
            events=MutationEvents(events=self.events, wants_success=lambda _: tells_success),
            failures=RuleFailures(
                metrics=self.metrics,
                undone="not changed",
                lost=callbacks.get("lost", lambda: None),
            ),
            standing_by=standing_by,
        )
        resources = ResourceWebhook(
            lookup=lookup,
            beliefs=Beliefs(
                kinds=self.cluster,
                reader=self.cluster,
                metrics=self.metrics,
                authenticated=callers is not None,
            ),
            recorder=Recorder(
                index=index,
                requests=self.requests,
                estimate=self.estimate,
                diversion=Diversion(requests=self.requests, clock=clock),
                shared=SharedRequests(requests=self.requests, clock=clock),
            ),
            limits=limits_of_rules,
            clock=clock,
            metrics=self.metrics,
            **callbacks,
        )
        verdicts = VerdictWebhook(
            lookup=lookup,
            admit=admit,
            metrics=self.metrics,
            namespace="kyverno",
            failures=RuleFailures(metrics=self.metrics, undone="not checked"),
            recording=resources,
            standing_by=standing_by,
        )
        self.bodies = Bodies(largest=largest, together=together, timeout=body_timeout)
        transport = Transport(
            bodies=self.bodies,
            limits=limits or ConnectionLimits(),
            callers=callers or Callers(),
            drain_timeout=2.0,
            farewell=farewell,
            clock=clock,
            metrics=self.metrics,
        )
        self.server = WebhookServer(
            transport,
            verdicts,
            mutations,
            PolicyWebhook(make_deps()).review,
            ExceptionWebhook(ExceptionSettings(enabled=True, namespaces="ok")).review,
            metrics=self.metrics,
            budget=budget,
            lost=callbacks.get("lost", lambda: None),
        )
        self.context = context
        self.port = port = self.listener.getsockname()[1]
        self.session = aiohttp.ClientSession(f"http://127.0.0.1:{port}")

    async def __aenter__(self) -> Self:
        await self.server.start(self.listener, lambda: self.context)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.server.close()

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] = JSON
    ) -> tuple[int, Any]:
        async with self.session.post(path, data=body, headers=headers) as response:
            return response.status, orjson.loads(await response.read())

    async def stored(self) -> list[UpdateRequest]:
        return [item async for item in self.requests.waiting()]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"retrofit_{name}", labels) or 0
