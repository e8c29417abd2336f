"""What the webhooks for the objects of users are made of."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from admission.beliefs import Beliefs
from admission.decide import Limits
from admission.lookup import RuleLookup
from admission.mutate import MutateWebhook
from admission.resources import ResourceWebhook
from reconciler.clock import Clock
from reconciler.config import AdmissionSettings
from reconciler.kube.client import Client
from reconciler.kube.loader import KubeLoader
from reconciler.kube.reader import KubeReader
from reconciler.kube.requests import KubeRequests
from reconciler.observe.metrics import Metrics
from reconciler.services.admitting.admit import Admit
from reconciler.services.admitting.told import MutationEvents
from reconciler.services.catalog.protection import Protection
from reconciler.services.ports.reporting import Events
from reconciler.services.recording.backlog import BacklogEstimate
from reconciler.services.recording.diversion import Diversion
from reconciler.services.recording.joining import SharedRequests
from reconciler.services.recording.recorder import Recorder
from reconciler.wiring.shared import success_events

_ENTRY_PATIENCE: Final = 1.0
"""Seconds for each thing that a rule reads before an object is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWebhooks:
    """What both are made of.

    Attributes:
        authenticated: Callers show a certificate.
        standing_by: Returns why nothing is to be done, empty where all is.
    """

    settings: AdmissionSettings
    client: Client
    clock: Clock
    metrics: Metrics
    lookup: RuleLookup
    authenticated: bool
    standing_by: Callable[[], str]
    events: Events

    def mutating(self, lost: Callable[[], None]) -> MutateWebhook:
        """Return what changes objects before they are stored."""
        settings = self.settings
        loader = KubeLoader(
            self.client,
            settings.callable_hosts,
            timeout=_ENTRY_PATIENCE,
            protection=Protection.of(settings),
        )
        return MutateWebhook(
            lookup=self.lookup,
            admit=Admit(loader=loader, clock=self.clock, below=secrets.randbelow),
            metrics=self.metrics,
            namespace=settings.namespace,
            told=MutationEvents(
                events=self.events,
                wants_success=success_events(settings, self.lookup.settings),
            ),
            standing_by=self.standing_by,
            lost=lost,
        )

    def recording(self, estimate: BacklogEstimate, lost: Callable[[], None]) -> ResourceWebhook:
        """Return what records triggers."""
        requests, index = KubeRequests(self.client, self.settings.namespace), self.lookup.index
        return ResourceWebhook(
            lookup=self.lookup,
            beliefs=Beliefs(
                kinds=self.lookup.kinds,
                reader=KubeReader(self.client),
                metrics=self.metrics,
                authenticated=self.authenticated,
            ),
            recorder=Recorder(
                index=index,
                requests=requests,
                estimate=estimate,
                diversion=Diversion(requests=requests, clock=self.clock),
                shared=SharedRequests(requests=requests, clock=self.clock),
            ),
            limits=Limits(
                controller_users=self.settings.controller_users,
                max_recorded=self.settings.max_recorded,
                filters=self.lookup.settings.current.filters,
            ),
            clock=self.clock,
            metrics=self.metrics,
            standing_by=self.standing_by,
            lost=lost,
        )
