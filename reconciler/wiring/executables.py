"""The hooks that `retrofit-hooks` runs: the executables of its image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from reconciler.api.meta import Object, PolicyRef, policy_ref
from reconciler.api.updaterequest import State
from reconciler.clock import Clock
from reconciler.hooks.ports import Runs
from reconciler.installation import Installation
from reconciler.isolation.jq import JqWorkers
from reconciler.kube.client import Client
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.reader import KubeReader
from reconciler.kube.requests import KubeRequests
from reconciler.kube.writer import KubeWriter
from reconciler.requests.lifecycle import Retention
from reconciler.services.hooks.service import Hooks
from reconciler.services.ports.reporting import Events
from reconciler.services.upkeep.retention import FinishedRequestCollector
from reconciler.services.upkeep.retries import Retries
from reconciler.wiring.answering import MOST_SNAPSHOTS
from reconciler.wiring.hooks import hooks_of
from reconciler.wiring.webhooks import CalledHooks

_KEPT: Final = {State.COMPLETED: 600.0, State.SKIP: 600.0, State.FAILED: 86400.0}
"""Retention of finished requests in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableHooks:
    """Hooks of one namespace, with the rights of the program's own account."""

    hooks: Hooks
    collector: FinishedRequestCollector

    @classmethod
    def of(
        cls,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        installation: Installation,
        specs: Mapping[PolicyRef, Mapping[str, Any] | None],
        runs: Runs,
        called: CalledHooks,
        jq: JqWorkers,
        events: Events,
        term: Callable[[], int],
        warn: Callable[[str], None],
    ) -> Self:
        """Return the executable hooks of a program.

        Args:
            namespace: Namespace of the program's Hooks and requests.
            specs: Specs of the program's Hooks; a stored Hook that differs is not run, nor one
                whose executable is refused, which has None.
            called: Registers hooks at the API server.
            term: Returns the number of the leader's term.
        """
        requests = KubeRequests(
            client,
            namespace,
            for_hooks=True,
            installation=installation,
            recorded_in=namespace,
        )
        collector = FinishedRequestCollector(
            requests=requests, clock=clock, retries=Retries(requests=requests, warn=warn)
        )

        def runs_here(obj: Object) -> bool | None:
            ref = policy_ref(obj)
            return specs[ref] == obj["spec"] if ref in specs else None

        hooks = hooks_of(
            client=client,
            worker=client,
            clock=clock,
            namespace=namespace,
            hooks_in=namespace,
            max_snapshots=MOST_SNAPSHOTS,
            requests=requests,
            collector=collector,
            kinds=KubeKinds(client, clock),
            reader=KubeReader(client),
            writer=KubeWriter(client, clock),
            jq=jq,
            retention=Retention(seconds=_KEPT),
            events=events,
            # The rights that an administrator grants to the account are the only limit.
            protection=None,
            runs_here=runs_here,
            runs_of=lambda _: runs,
            uncalled=called.uncalled,
            term=term,
            warn=warn,
        )
        called.notify(hooks.accounts)
        return cls(hooks=hooks, collector=collector)
