"""Answers to the webhook calls for triggers: decide, record, answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from admission.beliefs import Beliefs, rests_on_past
from admission.decide import AdmissionResponse, Intent, Limits, answer, decide, unknown
from admission.digests import Digests
from admission.facts import Facts
from admission.roles import Roles
from reconciler.clock import Clock, Deadline, SystemClock
from reconciler.engine.program import IGNORE, Origin, Program
from reconciler.errors import ClusterError, Unavailable
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import AdmissionRequest, Draft, TypeName
from reconciler.services.catalog.policy_store import CompiledRule, PolicyStore
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.ports.objects import Kinds
from reconciler.services.recording.recorder import OVERLOAD, Recorder, Unrecorded, fault

_log = logger("admission.resources")

# Of these the admission request names the object's own kind, not one of the subresource.
_OWN_KIND = frozenset({"", "status", "ephemeralcontainers"})


@dataclass(slots=True, kw_only=True)
class CostlyRules:
    """Rules that used up what evaluating them on one request may cost.

    Each is left alone for a while, so that a flood of its triggers costs the others nothing.
    """

    clock: Clock = field(default_factory=SystemClock)
    period: float = 60.0
    _until: dict[Origin, float] = field(default_factory=dict)

    def __contains__(self, program: Program) -> bool:
        until = self._until.get(program.origin)
        return until is not None and self.clock.monotonic() < until

    def add(self, program: Program) -> bool:
        """Leave a rule alone from now on; return whether it was not already."""
        known = program in self
        now = self.clock.monotonic()
        self._until = {rule: until for rule, until in self._until.items() if until > now}
        self._until[program.origin] = now + self.period
        return not known


async def _at_once() -> None:
    """Nothing has to be waited for."""


@contextlib.asynccontextmanager
async def _by(deadline: Deadline, what: str) -> AsyncIterator[None]:
    """Give up reading something at a deadline."""
    try:
        async with asyncio.timeout(deadline.left):
            yield
    except TimeoutError:
        raise Unavailable(f"{what} could not be read within {deadline.seconds:g} s") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceWebhook:
    """Records what triggers fire.

    Attributes:
        facts: Labels of namespaces, roles of users and exceptions.
        beliefs: About what reviews show of the past.
        settings: Their filters hold instead of those in ``limits``.
        digests: Reads the policies where a registration is for others than those that are known.
        lost: Told that something was admitted without a request.
        caught_up: Returns when the policies are those that are stored.
        standing_by: Returns why nothing is to be recorded, empty where all is.
        costly: Rules whose conditions are left to the controller for a while.
    """

    index: PolicyStore
    facts: Facts
    beliefs: Beliefs
    digests: Digests
    kinds: Kinds
    recorder: Recorder
    limits: Limits
    settings: SettingsHolder
    clock: Clock
    metrics: Metrics
    caught_up: Callable[[], Awaitable[None]] = _at_once
    lost: Callable[[], None] = lambda: None
    standing_by: Callable[[], str] = str
    costly: CostlyRules = field(default_factory=CostlyRules)

    async def review(
        self,
        request: AdmissionRequest,
        failure_policy: str,
        deadline: Deadline,
        *,
        policy: str = "",
        digest: str = "",
    ) -> AdmissionResponse:
        """Return the answer once everything that the request fires is stored.

        Args:
            request: What the API server asks about.
            failure_policy: ``Fail`` or ``Ignore``: the rules of policies with this one.
            deadline: Of the answer; what is not stored by then counts as failed.
            policy: The key of the one policy that is asked for; empty for those that share a
                webhook.
            digest: Of the policies that the webhook was registered for; empty where the address
                does not tell.
        """
        if self.standing_by():
            # The other program acts on it. The webhooks are still there while no controller leads.
            return AdmissionResponse()
        try:
            # A policy that came while the watch was interrupted would lose its triggers.
            async with _by(deadline, "the policies"):
                await self.caught_up()
                await self.digests.learn(digest, self.index.digest)
            parent = await self._parent(request, deadline)
            rules = self._rules(request, parent or request.kind, policy)
            if not rules:
                return AdmissionResponse()
            async with _by(deadline, "the role bindings"):
                held = await self._roles(request, rules)
        except ClusterError as error:
            return self._undecided(request, failure_policy, error)
        request = replace(request, roles=held.roles, cluster_roles=held.cluster_roles)
        intent = self._decide(request, rules, failure_policy, parent)
        if self.beliefs.questions(request, intent.drafts):
            try:
                async with _by(deadline, "the object"):
                    stored = await self.beliefs.stored(request)
            except ClusterError as error:
                return self._undecided(request, failure_policy, error)
            intent = self._of_stored(intent, stored, rules, failure_policy, parent)
        unrecorded = await self._record(intent.drafts, deadline)
        if failure_policy == IGNORE:
            self._count_lost(len(intent.refused), unrecorded)
        return answer(failure_policy, intent.refused, unrecorded)

    def _decide(
        self,
        request: AdmissionRequest,
        rules: Sequence[CompiledRule],
        failure_policy: str,
        parent: TypeName | None,
    ) -> Intent:
        intent = decide(
            request,
            rules,
            failure_policy=failure_policy,
            parent=parent,
            namespace_labels=self.facts.labels(request.namespace),
            limits=replace(self.limits, filters=self.settings.current.filters),
            exceptions=self.facts.exceptions.of,
            excepts=self.facts.excepts(),
            spared=self.costly.__contains__,
        )
        if intent.costly is not None:
            self._spare(intent.costly)
        return intent

    def _of_stored(
        self,
        intent: Intent,
        stored: AdmissionRequest | None,
        rules: Sequence[CompiledRule],
        failure_policy: str,
        parent: TypeName | None,
    ) -> Intent:
        """Return what a request leads to by the old object as it was read."""
        if stored is not None:
            return self._decide(stored, rules, failure_policy, parent)
        # Nothing of the past is believed; what an order reads live says by itself what it is.
        kept = tuple(item for item in intent.drafts if not rests_on_past(item))
        return replace(intent, drafts=kept, refused=())

    def _spare(self, program: Program) -> None:
        """Leave a rule that used up the allowance of a request to the controller for a while."""
        if self.costly.add(program):
            origin = program.origin
            _log.warning(
                "a rule costs too much to be decided here: all that it matches is recorded",
                policy=origin.policy.key,
                rule=origin.rule,
                seconds=self.costly.period,
            )

    async def _roles(self, request: AdmissionRequest, rules: Sequence[CompiledRule]) -> Roles:
        programs = [item.program for item in rules]
        return await self.facts.roles_of(request.user, self.settings.current.filters, programs)

    async def _parent(self, request: AdmissionRequest, deadline: Deadline) -> TypeName | None:
        """Return the kind that rules call a subresource by: the Pod of a Binding."""
        if request.subresource in _OWN_KIND:
            return None
        resource = request.resource
        async with _by(deadline, "the kinds that the cluster serves"):
            found = await self.kinds.of_resource(resource.group, resource.version, resource.name)
        if found is None:
            return None
        return TypeName(group=found.group, version=found.version, name=found.kind)

    def _undecided(
        self, request: AdmissionRequest, failure_policy: str, error: ClusterError
    ) -> AdmissionResponse:
        text = (
            f"which rules {request.resource.name}/{request.subresource} fires is not known, "
            f"because {error}"
        )
        _log.error("request not recorded", uid=request.uid, reason=text)
        if failure_policy == IGNORE:
            self.metrics.requests_lost.labels(reason=fault(error)).inc()
            self.lost()
        return unknown(failure_policy, text)

    def _rules(self, request: AdmissionRequest, kind: TypeName, policy: str) -> list[CompiledRule]:
        found = self.index.rules(
            kind=kind.name, subresource=request.subresource, namespace=request.namespace
        )
        return [
            rule
            for rule in found
            # A policy with conditions of its own has a webhook of its own.
            if (rule.policy.key == policy if policy else not rule.policy.match_conditions)
        ]

    async def _record(
        self, drafts: tuple[Draft, ...], deadline: Deadline
    ) -> tuple[Unrecorded, ...]:
        if not drafts:
            return ()
        started = self.clock.monotonic()
        recorded = await self.recorder.record(drafts, deadline)
        self.metrics.recording_duration.observe(self.clock.monotonic() - started)
        for item in recorded.stored:
            policy, rule = self.metrics.labels.rule(item.spec.policy.key, item.spec.rule)
            source = item.spec.source.value
            self.metrics.requests_recorded.labels(policy=policy, rule=rule, source=source).inc()
        for item in recorded.joined:
            policy, rule = self.metrics.labels.rule(item.spec.policy.key, item.spec.rule)
            self.metrics.triggers_joined.labels(policy=policy, rule=rule).inc()
        for item in recorded.diverted:
            policy, rule = self.metrics.labels.rule(item.spec.policy.key, item.spec.rule)
            self.metrics.triggers_diverted.labels(policy=policy, rule=rule).inc()
        for lost in recorded.failed:
            spec = lost.draft.spec
            _log.error(
                "request not recorded",
                request=lost.draft.name,
                policy=spec.policy.key,
                rule=spec.rule,
                reason=lost.message,
            )
        return recorded.failed

    def _count_lost(self, refused: int, unrecorded: tuple[Unrecorded, ...]) -> None:
        if refused:
            self.metrics.requests_lost.labels(reason="toolarge").inc(refused)
        for item in unrecorded:
            self.metrics.requests_lost.labels(reason=item.reason).inc()
        # At the hard limit those are lost that nobody can find again.
        if any(item.reason != OVERLOAD for item in unrecorded):
            self.lost()
