"""The policies in memory, of both servers: compiled once per generation, looked up by trigger."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from reconciler.api.account import NOBODY, ServiceAccount
from reconciler.api.meta import Object, own_namespaces, resource_version
from reconciler.dialects.registry import compile_policy
from reconciler.engine.match import KindSelector
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import InvalidPolicy
from reconciler.requests.account import parse_account
from reconciler.requests.limits import NO_LIMITS, Limits, parse_limits
from reconciler.requests.rebuild import why_not_rebuildable
from reconciler.services.catalog.protection import OWN_NAMESPACE


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule with the policy that it stands in."""

    policy: CompiledPolicy
    program: Program


# An admission request asks for every rule of its kind: the selectors are not computed anew.
_Indexed: TypeAlias = tuple[CompiledRule, tuple[KindSelector, ...]]


# Uid and generation, and what became of it.
_Prepared: TypeAlias = tuple[tuple[str, int], CompiledPolicy | InvalidPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidEntry:
    """A stored policy that cannot be compiled; it acts on nothing."""

    kind: str
    generation: int
    error: InvalidPolicy


def policy_key(policy: Object) -> str:
    """Return ``name`` of a ClusterPolicy, ``namespace/name`` of a Policy."""
    meta = policy.get("metadata") or {}
    namespace, name = meta.get("namespace", ""), meta.get("name", "")
    return f"{namespace}/{name}" if namespace else name


def digest_of(policies: Iterable[CompiledPolicy]) -> str:
    """Return a digest of which policies there are, in which generations.

    It stands in the address of the webhook, so that a replica which has not heard of a policy
    yet is told by the first call that the policy's own registration causes.
    """
    known = sorted(f"{item.key} {item.uid} {item.generation}" for item in policies)
    return blake2b("\n".join(known).encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class PolicyIndex:
    """Compiled policies by key, and their rules by the kind that triggers them.

    Attributes:
        namespace: Of the programs, whose accounts no policy works as.
    """

    namespace: str = OWN_NAMESPACE
    _policies: dict[str, CompiledPolicy] = field(default_factory=dict)
    _invalid: dict[str, InvalidEntry] = field(default_factory=dict)
    _by_kind: dict[str, tuple[_Indexed, ...]] = field(default_factory=dict)
    _anywhere: tuple[_Indexed, ...] = ()
    _digest: str = ""
    _limits: dict[str, Limits | InvalidPolicy] = field(default_factory=dict)
    _rebuildable: dict[str, dict[str, Program]] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _misnamed: dict[str, InvalidPolicy] = field(default_factory=dict)
    _prepared: dict[str, _Prepared] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def prepare(self, policy: Object) -> None:
        """Compile a policy that is about to be applied, where nothing else waits for it.

        One at a time: a second thread would only take the interpreter from this one.
        """
        if self._is_compiled(policy):
            return
        async with self._turn:
            # Many requests may have asked for it at once; one of them is enough.
            if not self._is_compiled(policy):
                compiled = await asyncio.to_thread(_compile, policy)
                self._prepared[policy_key(policy)] = _version(policy), compiled

    async def take_in(self, policy: Object) -> CompiledPolicy | InvalidPolicy:
        """Prepare a policy, and apply it."""
        await self.prepare(policy)
        return self.apply(policy)

    def apply(self, policy: Object) -> CompiledPolicy | InvalidPolicy:
        """Take in a policy as stored, unless a newer version of it is known already.

        Rules are compiled once for each generation. What annotations say counts without one.
        """
        key = policy_key(policy)
        known = self._policies.get(key)
        if not self._is_newest(key, policy):
            return known or self._invalid[key].error
        self._limits[key] = _limits(policy)
        account = self._account(key, policy)
        uid, generation = _version(policy)
        if known is not None and self._is_compiled(policy):
            return self._rebound(known, account)
        self._keep(known, uid)
        version, compiled = self._prepared.pop(key, (None, None))
        if compiled is None or version != (uid, generation):
            compiled = _compile(policy)
        if isinstance(compiled, InvalidPolicy):
            self._policies.pop(key, None)
            self._invalid[key] = InvalidEntry(
                kind=policy.get("kind", ""), generation=generation, error=compiled
            )
            self._rebuild()
            return compiled
        self._invalid.pop(key, None)
        self._policies[key] = compiled = compiled.acting_as(account)
        self._rebuild()
        return compiled

    def remove(self, key: str) -> None:
        """Forget a policy."""
        for table in (self._limits, self._invalid, self._versions, self._misnamed, self._prepared):
            table.pop(key, None)
        if (known := self._policies.get(key)) is not None:
            self._rebuildable.pop(known.uid, None)
        if self._policies.pop(key, None) is not None:
            self._rebuild()

    @property
    def digest(self) -> str:
        """Return what `digest_of` gives for the policies that can act."""
        return self._digest or digest_of(())

    def get(self, key: str) -> CompiledPolicy | None:
        """Return a policy that can act, None where it is unknown or invalid."""
        return self._policies.get(key)

    def as_it_was(self, uid: str, rule: str) -> Program | None:
        """Return a rule as it was when its triggers could be found by looking at the objects.

        Args:
            uid: Of its policy.
            rule: Its name.

        Returns:
            The last such generation before the present one, as far as this process has seen it.
            It works in the name that it had: rule and account were accepted together.
        """
        return self._rebuildable.get(uid, {}).get(rule)

    def account(self, key: str) -> ServiceAccount | None:
        """Return in whose name a policy works, None where it is the one that all share."""
        known = self._policies.get(key)
        return None if known is None else known.account

    def misnamed(self, key: str) -> InvalidPolicy | None:
        """Return why nobody can say in whose name a policy works, None where that is known."""
        return self._misnamed.get(key)

    def speaks_as(self, user: str) -> bool:
        """Tell whether some policy works in the name of a user."""
        return any(item.account and item.account.user == user for item in self._policies.values())

    def limits(self, key: str) -> Limits | InvalidPolicy:
        """Return how the work of a policy is rolled out, or why nobody can say."""
        return self._limits.get(key, NO_LIMITS)

    def version(self, key: str) -> tuple[CompiledPolicy | None, Limits | str]:
        """Return what is known of a policy, equal as long as nothing that counts has changed."""
        limits = self.limits(key)
        return self.get(key), str(limits) if isinstance(limits, InvalidPolicy) else limits

    def policies(self) -> tuple[CompiledPolicy, ...]:
        """Return all policies that can act, by key."""
        return tuple(self._policies[key] for key in sorted(self._policies))

    def invalid(self) -> dict[str, InvalidEntry]:
        """Return the stored policies that cannot be compiled, by key."""
        return dict(self._invalid)

    def rules(self, *, kind: str, subresource: str, namespace: str) -> Iterator[CompiledRule]:
        """Yield the rules that a trigger of this kind may fire; the matcher decides.

        Args:
            kind: As the admission request names it.
            subresource: Empty for the object itself.
            namespace: Of the trigger; a namespaced policy is left out elsewhere.
        """
        for rule, selectors in (*self._by_kind.get(kind, ()), *self._anywhere):
            own = rule.policy.namespace
            if own and own != namespace:
                continue
            if any(_may_match(selector, kind, subresource) for selector in selectors):
                yield rule

    def _is_compiled(self, policy: Object) -> bool:
        """Tell whether a policy is known in this generation or a newer one."""
        known, (uid, generation) = self._policies.get(policy_key(policy)), _version(policy)
        return known is not None and known.uid == uid and generation <= known.generation

    def _is_newest(self, key: str, policy: Object) -> bool:
        # Lists and watches bring versions in any order; an older one would bring back rights.
        version = resource_version(policy)
        if not version.isdecimal():
            return True
        newest = self._versions.get(key, 0)
        self._versions[key] = max(newest, int(version))
        return int(version) >= newest

    def _account(self, key: str, policy: Object) -> ServiceAccount | None:
        self._misnamed.pop(key, None)
        try:
            return parse_account(policy, own=own_namespaces(self.namespace))
        except InvalidPolicy as error:
            self._misnamed[key] = error
            return NOBODY

    def _rebound(self, known: CompiledPolicy, account: ServiceAccount | None) -> CompiledPolicy:
        """Return a policy that is known, working in the name that counts from now on."""
        if known.account == account:
            return known
        self._policies[known.key] = bound = known.acting_as(account)
        self._rebuild()
        return bound

    def _keep(self, known: CompiledPolicy | None, uid: str) -> None:
        """Keep the rules of a generation that is replaced; triggers may still wait for them."""
        if known is None:
            return
        if known.uid != uid:
            self._rebuildable.pop(known.uid, None)
            return
        kept = {item.rule: item for item in known.programs if not why_not_rebuildable(item)}
        self._rebuildable.setdefault(uid, {}).update(kept)

    def _rebuild(self) -> None:
        by_kind: dict[str, list[_Indexed]] = {}
        anywhere: list[_Indexed] = []
        for policy in self.policies():
            for program in policy.programs:
                selectors = tuple(item.selector for item in program.match.kinds())
                rule = CompiledRule(policy, program), selectors
                names = {item.kind for item in selectors}
                if any("*" in name or "?" in name for name in names):
                    anywhere.append(rule)
                    continue
                for name in names:
                    by_kind.setdefault(name, []).append(rule)
        self._by_kind = {name: tuple(rules) for name, rules in by_kind.items()}
        self._anywhere = tuple(anywhere)
        self._digest = digest_of(self.policies())


def _version(policy: Object) -> tuple[str, int]:
    meta = policy.get("metadata") or {}
    return meta.get("uid", ""), meta.get("generation", 0)


def _compile(policy: Object) -> CompiledPolicy | InvalidPolicy:
    try:
        return compile_policy(policy)
    except InvalidPolicy as error:
        return error


def _limits(policy: Object) -> Limits | InvalidPolicy:
    try:
        return parse_limits(policy)
    except InvalidPolicy as error:
        return error


def _may_match(selector: KindSelector, kind: str, subresource: str) -> bool:
    wild = "*" in selector.kind or "?" in selector.kind
    if not wild and selector.kind != kind:
        return False
    if subresource == "ephemeralcontainers" or "*" in selector.subresource:
        return True
    return selector.subresource == subresource
