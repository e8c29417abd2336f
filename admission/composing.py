"""Composition of the webhooks for users' objects and for policies."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from admission.beliefs import Beliefs
from admission.checks import ValidationDeps
from admission.decide import Limits
from admission.failures import RuleFailures
from admission.global_entries import ENTRY_PATIENCE, NamedEntries
from admission.lookup import RuleLookup
from admission.mutate import MutateWebhook
from admission.policies import ASKED_AUTHORS, PolicyWebhook
from admission.resources import ResourceWebhook
from admission.verdicts import VerdictWebhook
from reconciler.api.account import ServiceAccount
from reconciler.clock import Clock
from reconciler.config import AdmissionSettings
from reconciler.isolation.cue import WithCue, cue_at
from reconciler.isolation.jq import BriefJq, JqLimits
from reconciler.kube.access import OwnAccess, PolicyAccess, UserAccess
from reconciler.kube.client import Client
from reconciler.kube.conditions import KubeConditions
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.loader import KubeLoader
from reconciler.kube.reader import KubeReader
from reconciler.kube.requests import KubeRequests
from reconciler.observe.audit import AuditLog
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.services.admitting.admit import Admit
from reconciler.services.admitting.mutation_events import MutationEvents
from reconciler.services.catalog.globalcontext import GlobalContext, WithEntries
from reconciler.services.catalog.protection import Protection
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.ports.reporting import Events
from reconciler.services.processing.memory_budget import Readings
from reconciler.services.recording.backlog import BacklogEstimate, thresholds_of
from reconciler.services.recording.diversion import Diversion
from reconciler.services.recording.joining import SharedRequests
from reconciler.services.recording.recorder import Recorder
from reconciler.wiring.shared import success_events

_log = logger("admission.composing")

_ROLE_PATIENCE: Final = 2.0
"""Seconds to wait for a role that is applied together with its policy."""
_JQ_LIMITS: Final = JqLimits(memory=64 << 20)
"""Programs are only compiled here, and the container has little memory to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWebhooks:
    """The dependencies of the webhooks for users' objects.

    Attributes:
        entries: GlobalContextEntries that rules read at admission.
        readings: What rules read at admission, those of all webhooks together.
    """

    settings: AdmissionSettings
    client: Client
    clock: Clock
    metrics: Metrics
    lookup: RuleLookup
    entries: GlobalContext
    readings: Readings
    authenticated: bool
    standing_by: Callable[[], str]
    events: Events
    audit: AuditLog

    def mutating(self, lost: Callable[[], None]) -> MutateWebhook:
        """Return the webhook that changes objects before they are stored."""
        settings = self.settings
        return MutateWebhook(
            lookup=self.lookup,
            admit=self._admit(),
            metrics=self.metrics,
            namespace=settings.namespace,
            events=MutationEvents(
                events=self.events,
                reporter=f"{settings.installation.reporter}-admission",
                wants_success=success_events(settings, self.lookup.settings),
            ),
            failures=RuleFailures(metrics=self.metrics, undone="not changed", lost=lost),
            standing_by=self.standing_by,
            audit=self.audit,
        )

    def judging(self, recording: ResourceWebhook) -> VerdictWebhook:
        """Return the webhook that refuses objects and passes accepted ones to the recorder."""
        return VerdictWebhook(
            lookup=self.lookup,
            admit=self._admit(),
            metrics=self.metrics,
            namespace=self.settings.namespace,
            failures=RuleFailures(metrics=self.metrics, undone="not checked"),
            recording=recording,
            standing_by=self.standing_by,
        )

    def _admit(self) -> Admit:
        settings = self.settings
        loader = KubeLoader(
            self.client,
            settings.callable_hosts,
            timeout=ENTRY_PATIENCE,
            protection=Protection.of(settings),
            kinds=self.lookup.kinds,
        )
        return Admit(
            loader=WithEntries(entries=self.entries, loader=WithCue(loader, cue_at(settings.cue))),
            clock=self.clock,
            randbelow=secrets.randbelow,
            readings=self.readings,
        )

    def recording(self, estimate: BacklogEstimate, lost: Callable[[], None]) -> ResourceWebhook:
        """Return the webhook that records triggers."""
        settings, index = self.settings, self.lookup.index
        requests = KubeRequests.recorded(self.client, settings)
        return ResourceWebhook(
            lookup=self.lookup,
            beliefs=Beliefs(
                kinds=self.lookup.kinds,
                reader=KubeReader(self.client),
                metrics=self.metrics,
                authenticated=self.authenticated,
                account=settings.installation.admission_account,
            ),
            recorder=Recorder(
                index=index,
                requests=requests,
                estimate=estimate,
                diversion=Diversion(requests=requests, clock=self.clock),
                shared=SharedRequests(requests=requests, clock=self.clock),
            ),
            limits=Limits(
                controller_users=settings.controller_users,
                max_recorded=settings.max_recorded,
                filters=self.lookup.settings.current.filters,
            ),
            clock=self.clock,
            metrics=self.metrics,
            lost=lost,
            audit=self.audit,
        )


def backlog_estimate(
    settings: AdmissionSettings, holder: SettingsHolder, metrics: Metrics
) -> BacklogEstimate:
    """Return the estimate of waiting requests, connected to log and metrics."""
    thresholds = thresholds_of(settings, holder)
    estimate = BacklogEstimate(thresholds=thresholds)

    def report(known: BacklogEstimate) -> None:
        metrics.diverting.set(1 if known.diverting else 0)
        say = _log.warning if known.diverting else _log.info
        what = "triggers are diverted" if known.diverting else "triggers are recorded again"
        say(what, waiting=known.waiting, limit=thresholds().limit, hard=thresholds().hard)

    estimate.turned.subscribe(report)
    metrics.waiting_seen.set_function(lambda: estimate.waiting)
    metrics.waiting_limit.labels("waiting").set_function(lambda: thresholds().limit)
    metrics.waiting_limit.labels("hard").set_function(lambda: thresholds().hard)
    return estimate


def policy_webhook(
    client: Client,
    settings: AdmissionSettings,
    kinds: KubeKinds,
    holder: SettingsHolder,
    *,
    entries: NamedEntries,
    authenticated: bool,
) -> PolicyWebhook:
    """Return the webhook that validates policies and their auxiliary kinds.

    Args:
        client: Client of this program's account.
        entries: Entries that rules read at admission.
    """
    own = partial(ServiceAccount, namespace=settings.namespace)
    shared = own(name=settings.background_service_account)
    controller = own(name=settings.controller_service_account)
    deps = ValidationDeps(
        kinds=kinds,
        forget=kinds.invalidate,
        scope=kinds.scope,
        access=PolicyAccess(client, shared=shared, controller=controller),
        conditions=KubeConditions(client),
        requests=KubeRequests.recorded(client, settings),
        installation=settings.installation,
        account=str(shared),
        controller=controller,
        filters=lambda: holder.current.filters,
        protection=Protection.of(settings),
        patience=min(_ROLE_PATIENCE, settings.webhook_timeout / 4),
        reader=OwnAccess(client),
        verifier=None if authenticated else OwnAccess(client),
        cue=cue_at(settings.cue),
        jq=BriefJq(_JQ_LIMITS).session,
        stored_entries=entries.context.stored,
        read_entries=lambda: entries.context.wanted,
    )
    return PolicyWebhook(
        deps,
        about=partial(UserAccess, client),
        asked=ASKED_AUTHORS[settings.ask_authors],
    )
