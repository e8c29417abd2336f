"""The hooks of a program, wired to one cluster."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from secrets import SystemRandom

from reconciler.clock import Clock
from reconciler.hooks.declared import DeclaredHook
from reconciler.hooks.ports import HookRef, Runs
from reconciler.kube.client import Client
from reconciler.kube.hooks import KubeHooks, KubeWatching
from reconciler.kube.operations import KubeOperations
from reconciler.requests.lifecycle import Retention
from reconciler.services.catalog.protection import Protection
from reconciler.services.hooks.accounts import HookAccounts
from reconciler.services.hooks.active import ActiveHook
from reconciler.services.hooks.dispatch import HookDispatcher
from reconciler.services.hooks.following import InformerDeps, SnapshotBudget
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.hooks.recorder import RecorderDeps
from reconciler.services.hooks.requests import HookRequests
from reconciler.services.hooks.service import HookDeps, Hooks, Orders, RunsHere
from reconciler.services.ports.jq import Jq
from reconciler.services.ports.objects import Kinds, Reader, Writer
from reconciler.services.ports.reporting import Events
from reconciler.services.ports.requests import Requests
from reconciler.services.upkeep.retention import FinishedRequestCollector


@dataclass(frozen=True, slots=True, kw_only=True)
class HookParts:
    """The dependencies of a program that runs hooks.

    Attributes:
        client: Acts as the program's own account; `worker` as the account of hooks.
        namespace: Namespace of the requests.
        hooks_in: Namespace of the hooks; empty for all, and for cluster hooks.
        protection: Objects that no hook may change; None if only rights limit hooks.
        runs_here: As in `HookDeps`, like `runs_of` and `uncalled`.
        term: Returns the number of the leader's term.
    """

    client: Client
    worker: Client
    clock: Clock
    namespace: str
    hooks_in: str
    max_snapshots: int
    requests: Requests
    collector: FinishedRequestCollector
    kinds: Kinds
    reader: Reader
    writer: Writer
    jq: Jq
    retention: Retention
    events: Events
    protection: Protection | None
    runs_here: RunsHere
    runs_of: Callable[[DeclaredHook], Runs]
    uncalled: Callable[[HookRef, str], str]
    term: Callable[[], int]
    warn: Callable[[str], None]


def hooks_of(parts: HookParts) -> Hooks:
    """Return the hooks of a program."""
    objects = KubeHooks(parts.client, parts.kinds, parts.clock, parts.hooks_in, warn=parts.warn)
    requests = HookRequests(
        requests=parts.requests,
        clock=parts.clock,
        retention=parts.retention,
        ended=parts.collector.on_stored,
    )
    active: dict[HookRef, ActiveHook] = {}
    dispatcher = HookDispatcher(
        requests=requests,
        hooks=active,
        clock=parts.clock,
        find=objects.find,
        jitter=SystemRandom().random,
    )
    orders = Orders(term=parts.term)
    runner = OperationRunner(
        kinds=parts.kinds,
        reader=parts.reader,
        writer=parts.writer,
        operations=KubeOperations(parts.worker),
        jq=parts.jq,
        protection=parts.protection,
    )
    deps = HookDeps(
        objects=objects,
        requests=requests,
        recorder=RecorderDeps(
            requests=parts.requests,
            clock=parts.clock,
            namespace=parts.namespace,
            order=orders.next,
            stored=dispatcher.add,
            warn=parts.warn,
        ),
        informer=InformerDeps(
            kinds=parts.kinds,
            reader=parts.reader,
            watching=KubeWatching(parts.worker),
            jq=parts.jq,
            clock=parts.clock,
            budget=SnapshotBudget(most=parts.max_snapshots),
            events=parts.events,
        ),
        operations=lambda namespace: replace(runner, confined_to=namespace),
        runs_here=parts.runs_here,
        runs_of=parts.runs_of,
        uncalled=parts.uncalled,
        orders=orders,
        clock=parts.clock,
        warn=parts.warn,
    )
    accounts = HookAccounts(hooks=objects, clock=parts.clock, warn=parts.warn)
    return Hooks(deps=deps, accounts=accounts, dispatcher=dispatcher, active=active)
