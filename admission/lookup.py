"""Which rules a call of a webhook asks about, and what has to be known of its request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from admission.digests import Digests
from admission.facts import Facts
from reconciler.api.meta import is_own_group, own_namespaces
from reconciler.clock import Deadline
from reconciler.engine.match import Subject
from reconciler.engine.match.scopes import Pair
from reconciler.engine.match.subject import labels_of
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.errors import Unavailable
from reconciler.requests.admission import subject_of
from reconciler.requests.draft import AdmissionRequest, TypeName
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.protection import KUBE_SYSTEM
from reconciler.services.catalog.rule_index import CompiledRule, Known
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.ports.objects import Kinds
from reconciler.values import value_class

# Of these the admission request names the object's own kind, not one of the subresource.
_OWN_KIND = frozenset({"", "status", "ephemeralcontainers"})


@value_class(frozen=True, slots=True, kw_only=True)
class Address:
    """What the address of a call says.

    Attributes:
        failure_policy: ``Fail`` or ``Ignore``: the policies with this one.
        forced: It holds for all policies, whatever they say.
        policy: The key of the one policy that is asked for; empty for those that share a webhook.
        digest: Of the policies that the webhook was registered for; empty where it does not say.
        once: The policies whose changes may be made once only, and no others.
        chained: The rules in the tiers of this language, and no others.
    """

    failure_policy: str
    policy: str = ""
    digest: str = ""
    once: bool = False
    chained: str = ""
    forced: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class RequestedRules:
    """What a call asks.

    Attributes:
        request: With the roles of its user, as far as somebody wants to know them.
        kind: By which rules name the object.
        rules: That may be for it as it is.
        every: Returns those that may be for it whatever its labels are.
    """

    request: AdmissionRequest
    kind: TypeName
    rules: tuple[CompiledRule, ...] = ()
    every: Callable[[], tuple[CompiledRule, ...]] = tuple


def is_standing(request: AdmissionRequest, namespace: str) -> bool:
    """Return whether a request is about what no rule changes or refuses.

    Args:
        request: The admission request.
        namespace: Of the programs; nothing is changed there, nor in `kube-system`.
    """
    is_namespace = request.kind.name == "Namespace" and not request.kind.group
    place = request.name if is_namespace else request.namespace
    return place in own_namespaces(namespace) | {KUBE_SYSTEM} or is_own_group(request.kind.group)


async def _at_once() -> None:
    """Nothing has to be waited for."""


@contextlib.asynccontextmanager
async def by(deadline: Deadline, what: str) -> AsyncIterator[None]:
    """Give up reading something at a deadline."""
    try:
        async with asyncio.timeout(deadline.left):
            yield
    except TimeoutError:
        text = f"{what} could not be read within {deadline.seconds:g} s"
        raise Unavailable(text) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLookup:
    """Finds the rules.

    Attributes:
        facts: Roles of users.
        digests: Reads the policies where a registration is for others than those that are known.
        settings: Their filters may ask for roles.
        caught_up: Returns when the policies are those that are stored.
        is_caught_up: Tells whether that is at once.
    """

    index: PolicyStore
    facts: Facts
    digests: Digests
    kinds: Kinds
    settings: SettingsHolder
    caught_up: Callable[[], Awaitable[None]] = _at_once
    is_caught_up: Callable[[], bool] = lambda: True

    def has_none(self, address: Address, phase: Phase) -> bool:
        """Return whether there is no rule of a phase at all; False where that takes waiting."""
        return self._knows_policies(address) and not self.index.has_rules(phase)

    async def find(
        self, request: AdmissionRequest, address: Address, phase: Phase, deadline: Deadline
    ) -> RequestedRules:
        """Return what a call asks.

        Raises:
            ClusterError: It cannot be found out now.
        """
        if not self._knows_policies(address):
            # A policy that came while the watch was interrupted would not act.
            async with by(deadline, "the policies"):
                await self.caught_up()
                await self.digests.learn(address.digest, self.index.digest)
        kind = request.kind
        if request.subresource not in _OWN_KIND:
            async with by(deadline, "the kinds that the cluster serves"):
                kind = await self._parent(request) or kind
        known = self._known(request, kind)
        rules = self._rules(known, address, phase)
        if not rules:
            return RequestedRules(request=request, kind=kind)

        def every() -> tuple[CompiledRule, ...]:
            return self._rules(replace(known, labels=None), address, phase)

        def programs() -> Iterator[Program]:
            # Nearly always nobody asks.
            yield from (item.program for item in every())

        held = self.facts.known_roles(request.user, self.settings.current.filters, programs())
        if held is None:
            async with by(deadline, "the role bindings"):
                held = await self.facts.roles_of(request.user)
        request = replace(request, roles=held.roles, cluster_roles=held.cluster_roles)
        return RequestedRules(request=request, kind=kind, rules=rules, every=every)

    async def subject(self, requested: RequestedRules, deadline: Deadline) -> Subject:
        """Return what the rules of a call are matched against before its object is stored.

        There is no later moment at which anybody could look again: labels of the namespace that
        were not heard of are read, if a rule asks for them.

        Raises:
            ClusterError: They cannot be read.
        """
        namespace = requested.request.namespace
        labels = self.facts.labels(namespace)
        if (
            labels is None
            and namespace
            and any(self._asks_for_labels(item.program) for item in requested.every())
        ):
            async with by(deadline, f"the labels of namespace {namespace}"):
                labels = await self.facts.labels_of(namespace)
        return subject_of(requested.request, requested.kind, labels)

    def _knows_policies(self, address: Address) -> bool:
        return self.is_caught_up() and self.digests.knows(address.digest, self.index.digest)

    def _asks_for_labels(self, program: Program) -> bool:
        excepted = any(True for _ in self.facts.exceptions.of(program))
        return program.match.needs.namespace_labels or excepted

    async def _parent(self, request: AdmissionRequest) -> TypeName | None:
        """Return the kind that rules call a subresource by: the Pod of a Binding."""
        if request.subresource in _OWN_KIND:
            return None
        resource = request.resource
        found = await self.kinds.of_resource(resource.group, resource.version, resource.name)
        if found is None:
            return None
        return TypeName(group=found.group, version=found.version, name=found.kind)

    def looks_at_labels(self, requested: RequestedRules) -> bool:
        """Return whether some rules are looked up only for objects with certain labels."""
        return self.index.looks_at_labels(requested.kind.name, Phase.ADMISSION)

    def further(self, requested: RequestedRules, pairs: Iterable[Pair]) -> list[Program]:
        """Return all rules of a call if some are for objects with such labels, else none."""
        if not self.index.turns_on(requested.kind.name, pairs, Phase.ADMISSION):
            return []
        return [item.program for item in requested.every()]

    def _known(self, request: AdmissionRequest, kind: TypeName) -> Known:
        return Known(
            kind=kind.name,
            subresource=request.subresource,
            namespace=request.namespace,
            name=request.name,
            labels=_labels(request),
            namespace_labels=self.facts.labels(request.namespace) if request.namespace else {},
        )

    def _rules(self, known: Known, address: Address, phase: Phase) -> tuple[CompiledRule, ...]:
        found = self.index.rules(known, phase)
        return tuple(rule for rule in found if _is_meant(rule, address, phase))


def _labels(request: AdmissionRequest) -> Mapping[str, str] | None:
    """Return the labels of an object that is written, None where they are not believed."""
    if not request.object or request.cut:
        return None
    return labels_of(request.object)


def _is_meant(rule: CompiledRule, address: Address, phase: Phase) -> bool:
    policy = rule.policy
    if phase is Phase.VERDICT:
        # Whoever asks: what one rule refuses is not to be recorded for another.
        return True
    if not address.forced and policy.failure_policy != address.failure_policy:
        return False
    if phase is Phase.ADMISSION and not _is_of_route(policy, address):
        return False
    # A policy with conditions of its own has a webhook of its own.
    return policy.key == address.policy if address.policy else not policy.match_conditions


def _is_of_route(policy: CompiledPolicy, address: Address) -> bool:
    if policy.chained or address.chained:
        return policy.chained == address.chained
    return policy.acts_once is address.once
