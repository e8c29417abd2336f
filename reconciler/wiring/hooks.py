"""The hooks of a program, wired to one cluster."""

from collections.abc import Callable
from dataclasses import replace
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


def hooks_of(
    *,
    client: Client,
    worker: Client,
    clock: Clock,
    namespace: str,
    hooks_in: str,
    max_snapshots: int,
    requests: Requests,
    collector: FinishedRequestCollector,
    kinds: Kinds,
    reader: Reader,
    writer: Writer,
    jq: Jq,
    retention: Retention,
    events: Events,
    protection: Protection | None,
    runs_here: RunsHere,
    runs_of: Callable[[DeclaredHook], Runs],
    uncalled: Callable[[HookRef, str], str],
    term: Callable[[], int],
    warn: Callable[[str], None],
) -> Hooks:
    """Return the hooks of a program.

    Args:
        client: Acts as the program's own account; `worker` as the account of hooks.
        namespace: Namespace of the requests.
        hooks_in: Namespace of the hooks; empty for all, and for cluster hooks.
        protection: Objects that no hook may change; None if only rights limit hooks.
        runs_here: As in `HookDeps`, like `runs_of` and `uncalled`.
        term: Returns the number of the leader's term.
    """
    objects = KubeHooks(client, kinds, clock, hooks_in, warn=warn)
    hook_requests = HookRequests(
        requests=requests,
        clock=clock,
        retention=retention,
        ended=collector.on_stored,
    )
    active: dict[HookRef, ActiveHook] = {}
    dispatcher = HookDispatcher(
        requests=hook_requests,
        hooks=active,
        clock=clock,
        find=objects.find,
        jitter=SystemRandom().random,
    )
    orders = Orders(term=term)
    runner = OperationRunner(
        kinds=kinds,
        reader=reader,
        writer=writer,
        operations=KubeOperations(worker),
        jq=jq,
        protection=protection,
    )
    deps = HookDeps(
        objects=objects,
        requests=hook_requests,
        recorder=RecorderDeps(
            requests=requests,
            clock=clock,
            namespace=namespace,
            order=orders.next,
            stored=dispatcher.add,
            warn=warn,
        ),
        informer=InformerDeps(
            kinds=kinds,
            reader=reader,
            watching=KubeWatching(worker),
            jq=jq,
            clock=clock,
            budget=SnapshotBudget(most=max_snapshots),
            events=events,
        ),
        operations=lambda confined_to: replace(runner, confined_to=confined_to),
        runs_here=runs_here,
        runs_of=runs_of,
        uncalled=uncalled,
        orders=orders,
        clock=clock,
        warn=warn,
    )
    accounts = HookAccounts(hooks=objects, clock=clock, warn=warn)
    return Hooks(deps=deps, accounts=accounts, dispatcher=dispatcher, active=active)
