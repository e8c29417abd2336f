"""Finds the rules for a webhook call, and the data about its request that they need."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from admission.digests import Digests
from admission.facts import Facts
from reconciler.api.meta import is_own_group
from reconciler.clock import Deadline
from reconciler.engine.match import Subject
from reconciler.engine.match.scopes import Pair
from reconciler.engine.match.subject import labels_of
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.errors import Unavailable
from reconciler.requests.admission import subject_of
from reconciler.requests.draft import AdmissionRequest, TypeName
from reconciler.services.catalog.exceptions import at_once
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.protection import standing_namespaces
from reconciler.services.catalog.rule_index import CompiledRule, Known
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.ports.objects import Kinds
from reconciler.values import value_class

# For these subresources the admission request names the kind of the object itself.
_OWN_KIND = frozenset({"", "status", "ephemeralcontainers"})


@value_class(frozen=True, slots=True, kw_only=True)
class Address:
    """The parameters in the path of a webhook call.

    Attributes:
        failure_policy: ``Fail`` or ``Ignore``: selects the policies with this one.
        forced: The failure policy applies to all policies, whichever they set.
        policy: Key of a policy with a webhook of its own; empty for those that share one.
        digest: Digest of the policies of the registration; empty if the path has none.
        once: Selects the policies whose changes must be made only once.
        chained: Selects the rules in the tiers of this language.
    """

    failure_policy: str
    policy: str = ""
    digest: str = ""
    once: bool = False
    chained: str = ""
    forced: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class RequestedRules:
    """The rules that a webhook call requests.

    Attributes:
        request: Admission request, with the roles of its user if a rule needs them.
        kind: Kind by which rules name the object.
        rules: Rules that may apply to the object with its current labels.
        every: Returns the rules that may apply to it with any labels.
    """

    request: AdmissionRequest
    kind: TypeName
    rules: tuple[CompiledRule, ...] = ()
    every: Callable[[], tuple[CompiledRule, ...]] = tuple


def is_standing(request: AdmissionRequest, namespace: str) -> bool:
    """Return whether a request is about an object that no rule changes or refuses.

    Args:
        namespace: Namespace of the programs, which is excluded, as is `kube-system`.
    """
    is_namespace = request.kind.name == "Namespace" and not request.kind.group
    place = request.name if is_namespace else request.namespace
    return place in standing_namespaces(namespace) or is_own_group(request.kind.group)


@contextlib.asynccontextmanager
async def by(deadline: Deadline, what: str) -> AsyncIterator[None]:
    """Limit a read to a deadline."""
    try:
        async with asyncio.timeout(deadline.left):
            yield
    except TimeoutError:
        raise Unavailable(f"{what} could not be read within {deadline.seconds:g} s") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLookup:
    """Finds the rules for a call.

    Attributes:
        digests: Reads the policies if a registration is for others than the known ones.
        caught_up: Returns when the policies are the stored ones.
        is_caught_up: Returns whether `caught_up` would return at once.
    """

    index: PolicyStore
    facts: Facts
    digests: Digests
    kinds: Kinds
    settings: SettingsHolder
    caught_up: Callable[[], Awaitable[None]] = at_once
    is_caught_up: Callable[[], bool] = lambda: True

    def has_none(self, address: Address, phase: Phase) -> bool:
        """Return whether there is no rule of a phase; False if finding out requires waiting."""
        return self._knows_policies(address) and self.index.in_phase(phase).empty

    async def find(
        self, request: AdmissionRequest, address: Address, phase: Phase, deadline: Deadline
    ) -> RequestedRules:
        """Return the rules for a call.

        Raises:
            ClusterError: They cannot be determined now.
        """
        if not self._knows_policies(address):
            # A policy that was created while the watch was interrupted would not act.
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
            # Lazy, because the roles are hardly ever needed.
            yield from (item.program for item in every())

        held = self.facts.known_roles(request.user, self.settings.current.filters, programs())
        if held is None:
            async with by(deadline, "the role bindings"):
                held = await self.facts.roles_of(request.user)
        request = replace(request, roles=held.roles, cluster_roles=held.cluster_roles)
        return RequestedRules(request=request, kind=kind, rules=rules, every=every)

    async def subject(self, requested: RequestedRules, deadline: Deadline) -> Subject:
        """Return the subject that rules are matched against before the object is stored.

        The decision cannot be made again later, so labels of the namespace that are not known are
        read, if a rule needs them.

        Raises:
            ClusterError: The labels cannot be read.
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
        """Return the kind by which rules name a subresource, for example Pod for a Binding."""
        resource = request.resource
        found = await self.kinds.of_resource(resource.group, resource.version, resource.name)
        if found is None:
            return None
        return TypeName(group=found.group, version=found.version, name=found.kind)

    def looks_at_labels(self, requested: RequestedRules) -> bool:
        """Return whether some rules are looked up only for objects with certain labels."""
        return self.index.in_phase(Phase.ADMISSION).looks_at_labels(requested.kind.name)

    def further(self, requested: RequestedRules, pairs: Iterable[Pair]) -> list[Program]:
        """Return all rules of a call if some depend on such labels, else none."""
        if not self.index.in_phase(Phase.ADMISSION).turns_on(requested.kind.name, pairs):
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
    """Return the labels of a written object, or None if they are not reliable."""
    if not request.object or request.cut:
        return None
    return labels_of(request.object)


def _is_meant(rule: CompiledRule, address: Address, phase: Phase) -> bool:
    policy = rule.policy
    if phase is Phase.VERDICT:
        # Independent of the webhook: an object that one rule refuses must not be recorded.
        return True
    if not address.forced and policy.failure_policy != address.failure_policy:
        return False
    if phase is Phase.ADMISSION and not _is_of_route(policy, address):
        return False
    # A policy with match conditions has a webhook of its own.
    return policy.key == address.policy if address.policy else not policy.match_conditions


def _is_of_route(policy: CompiledPolicy, address: Address) -> bool:
    if policy.chained or address.chained:
        return policy.chained == address.chained
    return policy.acts_once is address.once
