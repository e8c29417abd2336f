"""The in-memory policy store of both servers: each policy is compiled once per generation.

Components that react to policy changes subscribe to the store instead of keeping a copy.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias

from reconciler.api.account import NOBODY, ServiceAccount
from reconciler.api.meta import Object, PolicyRef, own_namespaces, policy_ref, resource_version
from reconciler.dialects.registry import compile_policy, variant_of
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.errors import InvalidPolicy
from reconciler.recent import Recent
from reconciler.requests.account import parse_account
from reconciler.requests.limits import Limits, parse_limits
from reconciler.requests.rebuild import why_not_rebuildable
from reconciler.services.catalog.languages import Languages
from reconciler.services.catalog.protection import OWN_NAMESPACE
from reconciler.services.catalog.rule_index import CompiledRule, Known, RuleIndex

ASKING: Final = (Phase.TRIGGERED, Phase.ADMISSION, Phase.VERDICT)
"""The phases in which the API server calls a webhook, which looks up the rules for a request."""

_Result: TypeAlias = CompiledPolicy | InvalidPolicy

_Edition: TypeAlias = tuple[str, int, tuple[str, ...]]
"""The uid, the generation, and the annotation values that affect compilation."""
_Prepared: TypeAlias = tuple[_Edition, _Result]

_MOST_REPLACED: Final = 100
"""Rules of one policy, besides those of the generation before the stored one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """The newest known version of a policy, with the results of compiling and parsing it.

    Attributes:
        head: The object without its spec.
        result: The compiled policy, or the error; a policy with an error acts on nothing.
        limits: The rollout limits from its annotations, or the error in these annotations.
        misnamed: The error in the annotation that names its account, None if there is none.
    """

    ref: PolicyRef
    head: Object
    result: _Result
    limits: Limits | InvalidPolicy
    misnamed: InvalidPolicy | None

    @property
    def compiled(self) -> CompiledPolicy | None:
        """Return the compiled policy, None if it is invalid."""
        return None if isinstance(self.result, InvalidPolicy) else self.result

    @property
    def uid(self) -> str:
        """Return the uid of the object."""
        return _version(self.head)[0]

    @property
    def generation(self) -> int:
        """Return the generation of the object."""
        return _version(self.head)[1]

    @property
    def terms(self) -> tuple[CompiledPolicy | None, Limits | str]:
        """Return the compiled policy and its limits, for comparing two versions of a policy."""
        limits = self.limits
        return self.compiled, str(limits) if isinstance(limits, InvalidPolicy) else limits


OnChange: TypeAlias = Callable[[StoredPolicy | None, StoredPolicy | None], None]
"""Called with the old policy (None if new) and the current one (None if deleted)."""

_FORCED = "the controller runs with --force-failure-policy-ignore"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def digest_of(policies: Iterable[CompiledPolicy]) -> str:
    """Return a digest of the identities and generations of some policies.

    The digest is part of the webhook path. The first call that a new policy causes thus shows
    a replica that its watch has not delivered this policy yet.
    """
    known = sorted(
        " ".join((item.key, item.uid, str(item.generation), *item.variant)) for item in policies
    )
    return blake2b("\n".join(known).encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class PolicyStore:
    """All policies, and their rules by the kind that triggers them.

    Lists, watches and reads deliver policies in any order. A version that is older than the
    stored one, or than its deletion, is ignored, whatever its source.

    Attributes:
        namespace: The programs' namespace; no policy may use a ServiceAccount of it.
        forces_ignore: Every policy has failure policy ``Ignore``, whatever its author wrote.
        why_no_cue: Why a policy with a CUE program cannot act, empty if it can.
    """

    namespace: str = OWN_NAMESPACE
    forces_ignore: bool = False
    why_no_cue: str = ""
    languages: Languages = field(default_factory=Languages)
    _known: dict[PolicyRef, StoredPolicy] = field(default_factory=dict)
    _subscribers: list[OnChange] = field(default_factory=list)
    _acting: tuple[CompiledPolicy, ...] = ()
    _by_phase: dict[Phase, RuleIndex] = field(default_factory=dict, repr=False)
    _digest: str = ""
    _rebuildable: dict[str, dict[str, Program]] = field(default_factory=dict)
    _prepared: dict[PolicyRef, _Prepared] = field(default_factory=dict)
    _deleted: Recent[str, int] = field(default_factory=Recent)
    """The versions at which the last policies were deleted, by uid."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._rebuild()

    def subscribe(self, on_change: OnChange) -> None:
        """Subscribe to policy changes; the callback is first called for every stored policy."""
        self._subscribers.append(on_change)
        for policy in self._known.values():
            on_change(None, policy)

    async def prepare(self, policy: Object) -> None:
        """Compile a policy in a worker thread, before it is applied.

        One policy at a time: a second thread would only compete for the interpreter lock.
        """
        if self._is_compiled(policy):
            return
        async with self._turn:
            # Several requests may have asked for the same policy; compile it only once.
            if not self._is_compiled(policy):
                compiled = await asyncio.to_thread(_compile, policy)
                self._prepared[policy_ref(policy)] = _edition(policy), compiled

    async def take_in(self, policy: Object) -> CompiledPolicy | InvalidPolicy:
        """Prepare a policy and apply it."""
        await self.prepare(policy)
        return self.apply(policy)

    def apply(self, policy: Object) -> CompiledPolicy | InvalidPolicy:
        """Store a policy and return its compile result, or that of a newer stored version.

        Rules are compiled once per generation, and again if an annotation that affects
        compilation changes. Other annotations take effect without compiling.
        """
        ref, known = policy_ref(policy), self._known.get(policy_ref(policy))
        if known is not None and _is_older(policy, known.head):
            return known.result
        result = self._result(policy, known)
        if self._is_deleted(policy):
            return result
        account, misnamed = self._account(policy)
        if isinstance(result, CompiledPolicy):
            result = result.acting_as(account)
            result = result.ignoring(_FORCED) if self.forces_ignore else result
        stored = StoredPolicy(
            ref=ref, head=_head(policy), result=result, limits=_limits(policy), misnamed=misnamed
        )
        self._replace(known, stored)
        return result

    def on_deleted(self, policy: Object) -> None:
        """Forget a deleted policy, unless it has been created again since."""
        ref, (uid, _) = policy_ref(policy), _version(policy)
        self._prepared.pop(ref, None)
        if (version := resource_version(policy)).isdecimal():
            self._deleted.keep(uid, int(version))
        known = self._known.get(ref)
        if known is None or uid not in ("", known.uid):
            return
        del self._known[ref]
        self._rebuildable.pop(known.uid, None)
        if known.compiled is not None:
            self._rebuild()
        self._announce(known, None)

    def entry(self, ref: PolicyRef) -> StoredPolicy | None:
        """Return a stored policy, None if it is unknown."""
        return self._known.get(ref)

    def entries(self) -> tuple[StoredPolicy, ...]:
        """Return all stored policies."""
        return tuple(self._known.values())

    @property
    def digest(self) -> str:
        """Return the `digest_of` the policies that can act."""
        return self._digest

    def get(self, ref: PolicyRef) -> CompiledPolicy | None:
        """Return a compiled policy, None if it is unknown or invalid."""
        known = self._known.get(ref)
        return None if known is None else known.compiled

    def as_it_was(self, uid: str, rule: str) -> Program | None:
        """Return the last earlier version of a rule whose triggers a sweep can find again.

        Args:
            uid: The uid of its policy.
            rule: Its name.

        Returns:
            The rule of the last such generation that this process has seen, unless many rules
            with other names were replaced since. It keeps the account of that generation, because
            rule and account were accepted together.
        """
        return self._rebuildable.get(uid, {}).get(rule)

    def account(self, ref: PolicyRef) -> ServiceAccount | None:
        """Return the account of a policy, None for the account that policies share."""
        known = self.get(ref)
        return None if known is None else known.account

    def speaks_as(self, user: str) -> bool:
        """Return whether a user name is that of some policy's account."""
        return any(item.account and item.account.user == user for item in self._acting)

    def policies(self) -> tuple[CompiledPolicy, ...]:
        """Return all policies that can act, by key."""
        return self._acting

    def invalid(self) -> tuple[StoredPolicy, ...]:
        """Return the stored policies that cannot be compiled."""
        return tuple(item for item in self._known.values() if item.compiled is None)

    def rules(self, known: Known, phase: Phase = Phase.TRIGGERED) -> tuple[CompiledRule, ...]:
        """Return the rules of a phase that may match an object; the matcher decides."""
        return self.in_phase(phase).rules(known)

    def in_phase(self, phase: Phase) -> RuleIndex:
        """Return the index of the rules of a phase, one of `ASKING`."""
        return self._by_phase[phase]

    def _is_compiled(self, policy: Object) -> bool:
        """Return whether this edition of a policy, or a newer generation, is compiled."""
        known, edition = self._known.get(policy_ref(policy)), _edition(policy)
        if known is None or known.uid != edition[0]:
            return False
        return edition == _edition(known.head) or edition[1] < known.generation

    def _is_deleted(self, policy: Object) -> bool:
        """Return whether a policy has been deleted since it was read."""
        at, version = self._deleted.get(_version(policy)[0]), resource_version(policy)
        return at is not None and version.isdecimal() and int(version) < at

    def _result(self, policy: Object, known: StoredPolicy | None) -> _Result:
        if known is not None and self._is_compiled(policy):
            return known.result
        version, result = self._prepared.pop(policy_ref(policy), (None, None))
        if result is None or version != _edition(policy):
            result = _compile(policy)
        if self.why_no_cue and isinstance(result, CompiledPolicy) and result.cue:
            return InvalidPolicy(result.cue[0][0], self.why_no_cue)
        return result

    def _account(self, policy: Object) -> tuple[ServiceAccount | None, InvalidPolicy | None]:
        try:
            return parse_account(policy, reserved=own_namespaces(self.namespace)), None
        except InvalidPolicy as error:
            return NOBODY, error

    def _replace(self, known: StoredPolicy | None, stored: StoredPolicy) -> None:
        before = None if known is None else known.compiled
        self._known[stored.ref] = stored
        if known is not None and known.uid != stored.uid:
            self._rebuildable.pop(known.uid, None)
        elif before is not None and before.generation != stored.generation:
            # Triggers may still be waiting for the replaced rules.
            kept = {
                item.rule: item for item in before.in_background if not why_not_rebuildable(item)
            }
            earlier = self._rebuildable.get(stored.uid, {})
            older = [(name, item) for name, item in earlier.items() if name not in kept]
            self._rebuildable[stored.uid] = dict(older[-_MOST_REPLACED:]) | kept
        if before is not stored.compiled:
            self._rebuild()
        self._announce(known, stored)

    def _announce(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        for on_change in self._subscribers:
            on_change(before, after)

    def _rebuild(self) -> None:
        acting = filter(None, (item.compiled for item in self._known.values()))
        self._acting = tuple(sorted(acting, key=lambda item: (item.key, item.ref.kind)))
        self._by_phase = {phase: RuleIndex.of(self._acting, phase) for phase in ASKING}
        self._digest = digest_of(self._acting)


def _version(policy: Object) -> tuple[str, int]:
    meta = policy.get("metadata") or {}
    return meta.get("uid", ""), meta.get("generation", 0)


def _edition(policy: Object) -> _Edition:
    return (*_version(policy), variant_of(policy))


def _head(policy: Object) -> Object:
    meta = dict(policy.get("metadata") or {})
    if annotations := meta.get("annotations"):
        # kubectl's copy is as large as the spec, and nothing here reads it.
        meta["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
    kept = {key: policy.get(key) for key in ("apiVersion", "kind", "status")}
    return {**kept, "metadata": meta}


def _is_older(policy: Object, known: Object) -> bool:
    new, old = resource_version(policy), resource_version(known)
    if new.isdecimal() and old.isdecimal():
        return int(new) < int(old)
    (uid, generation), (known_uid, known_generation) = _version(policy), _version(known)
    return uid == known_uid and generation < known_generation


def _compile(policy: Object) -> CompiledPolicy | InvalidPolicy:
    try:
        return compile_policy(policy)
    except InvalidPolicy as error:
        return error
    except Exception as error:  # noqa: BLE001  (one stored object must not end both programs)
        (*_, frame) = traceback.extract_tb(error.__traceback__)
        place = f"{type(error).__name__} in {frame.name}, line {frame.lineno}"
        return InvalidPolicy(
            "", f"compiling it failed because of a bug in kube-retrofit ({place})"
        )


def _limits(policy: Object) -> Limits | InvalidPolicy:
    try:
        return parse_limits(policy)
    except InvalidPolicy as error:
        return error
