"""Determines the rights that the rules of a policy need, and those that are missing.

They are those that the work of a rule uses: GET of each target, LIST if its name or namespace is
open, and PATCH or PUT, whichever is granted. A namespace or name with a variable depends on the
trigger, so the right is checked for all namespaces and any object.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from reconciler.api.meta import NAMESPACES, Kind
from reconciler.api.rights import ANY, Need, Right, TargetNeed
from reconciler.dialects.registry import CompiledEntry, source_rights
from reconciler.engine.match import KindScope, KindSelector
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.engine.values.wildcard import has_wildcard
from reconciler.requests.account import PLACE
from reconciler.requests.draft import READ_LATER
from reconciler.services.authoring.rights.asking import ANY_KIND, ask, missing
from reconciler.services.ports.access import Access
from reconciler.services.ports.objects import Kinds
from reconciler.services.rollout.webhook_rules import lookup

_ALL = ("",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """The rights and kinds that a policy lacks.

    Attributes:
        targets: Rights without which a target cannot be changed.
        triggers: Rights without which a trigger cannot be read.
        unserved_targets: Location and name of target kinds that the cluster does not serve.
        unserved_triggers: The same for the kinds in match.
    """

    targets: tuple[Need, ...] = ()
    triggers: tuple[Need, ...] = ()
    unserved_targets: tuple[tuple[str, str], ...] = ()
    unserved_triggers: tuple[tuple[str, str], ...] = ()

    @property
    def rights(self) -> tuple[Need, ...]:
        """Return all missing rights."""
        return (*self.triggers, *self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsCheck:
    """Checks the rights of the account that the access port stands for.

    Every method raises `ClusterError` if the API server does not answer a review.

    Attributes:
        whole: Check everything that the policy could do: also the reads of context entries, and
            all kinds where the kind depends on the trigger.
    """

    kinds: Kinds
    access: Access
    whole: bool = False

    async def check(self, policy: CompiledPolicy) -> Lack:
        """Return what a policy lacks now, after one concurrent review of each right."""
        targets: list[Need] = []
        triggers: list[Need] = []
        unserved: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
        if policy.account is not None:
            targets.append(Need(location=PLACE, options=(policy.account.impersonation,)))
        if self.whole:
            targets += await self._of_admission(policy)
        for program in policy.in_background:
            if self.whole:
                targets += await self._reads(program)
            elif policy.account is not None:
                # An account of a policy has only the rights granted to it, even for reads.
                targets += filter(_is_literal, await self._reads(program))
                triggers += _of_namespaces(program)
            for target in program.targets.target_rights() if program.targets else ():
                if self.whole and not _known_kind(target):
                    targets += _of_target(target, ANY_KIND)
                # For existing objects the kind is known to be served.
                away = [] if Phase.EXISTING in program.phases else unserved[True]
                async for kind in self._target_kinds(target, away):
                    targets += _of_target(target, kind)
            verbs = ("get", "list") if program.on_policy_change else ("get",)
            async for kind in self._trigger_kinds(program, unserved[False]):
                triggers += _of_trigger(program, kind, verbs)
        known = await ask(self.access, (*targets, *triggers))
        return Lack(
            targets=tuple(missing(targets, known)),
            triggers=tuple(missing(triggers, known)),
            unserved_targets=tuple(dict.fromkeys(unserved[True])),
            unserved_triggers=tuple(dict.fromkeys(unserved[False])),
        )

    async def unverified(self, policy: CompiledPolicy) -> tuple[Need, ...]:
        """Return the missing rights to read deleted and old objects that rules record."""
        needs: list[Need] = []
        for program in policy.in_phase(Phase.TRIGGERED):
            async for kind in self._trigger_kinds(program, [], _keeps_past):
                needs += _of_trigger(program, kind, ("get",))
        return tuple(missing(needs, await ask(self.access, needs)))

    async def unread(
        self, policy: CompiledPolicy, kept: Iterable[CompiledEntry] = ()
    ) -> tuple[Need, ...]:
        """Return the missing rights to read context entries before an object is stored.

        Args:
            policy: The policy whose rules read them.
            kept: The GlobalContextEntries among them.
        """
        needs = [need for need in await self._of_admission(policy) if _is_literal(need)]
        needs += _of_kept(kept)
        return tuple(missing(needs, await ask(self.access, needs)))

    async def unkept(self, entry: CompiledEntry) -> tuple[Need, ...]:
        """Return the missing rights to keep the data of a GlobalContextEntry."""
        needs = tuple(_of_kept([entry]))
        return tuple(missing(needs, await ask(self.access, needs)))

    async def _of_admission(self, policy: CompiledPolicy) -> list[Need]:
        programs = (*policy.in_phase(Phase.ADMISSION), *policy.in_phase(Phase.VERDICT))
        return [need for program in programs for need in await self._reads(program)]

    async def _reads(self, program: Program) -> list[Need]:
        """Return the rights for the reads that a rule names, except kinds that are not served."""
        found: list[Need] = []
        for need in program.binding.read_rights():
            if isinstance(need, Need):
                found.append(need)
                continue
            for kind in await self.kinds.find(need.api_version, need.kind):
                right = Right.of(need.verb, kind, namespace=need.namespace, name=need.name)
                found.append(Need(location=need.location, options=(right,)))
        return found

    async def _target_kinds(
        self, target: TargetNeed, unserved: list[tuple[str, str]]
    ) -> AsyncIterator[Kind]:
        if not _known_kind(target):
            return
        found = await self.kinds.find(target.api_version, target.kind)
        if not found:
            unserved.append((target.location, f"{target.api_version} {target.kind}"))
        for item in found:
            # A target with a namespace never means a cluster-scoped kind.
            if item.namespaced or target.anywhere:
                yield item

    async def _trigger_kinds(
        self,
        program: Program,
        unserved: list[tuple[str, str]],
        meant: Callable[[Program, KindScope], bool] = lambda _program, _scope: True,
    ) -> AsyncIterator[Kind]:
        place = program.origin.selection
        scopes = (item for item in program.match.kinds() if meant(program, item))
        for selector in dict.fromkeys(item.selector for item in scopes):
            if has_wildcard(selector.kind):
                if self.whole:
                    yield ANY_KIND
                continue
            found = await self.kinds.find(*lookup(selector))
            if not found:
                unserved.append((place, _shown(selector)))
            if selector.subresource in READ_LATER or has_wildcard(selector.subresource):
                for kind in found:
                    yield replace(kind, subresource="")


def _is_literal(need: Need) -> bool:
    """Return whether the policy names literally what is read."""
    return all(ANY not in (right.group, right.resource) for right in need.options)


def _of_namespaces(program: Program) -> Iterator[Need]:
    """Yield the rights to read Namespaces, if a rule selects them by labels."""
    if not program.match.needs.namespace_labels:
        return
    home = program.origin.namespace
    for name in (home,) if home else program.match.namespaces or _ALL:
        right = replace(Right.of("get", NAMESPACES, name=name), namespace=name)
        yield Need(location=program.origin.selection, options=(right,))


def _of_kept(entries: Iterable[CompiledEntry]) -> Iterator[Need]:
    for entry in entries:
        for right in source_rights(entry.source):
            yield Need(location=f"GlobalContextEntry {entry.name}", options=(right,))


def _known_kind(target: TargetNeed) -> bool:
    return bool(target.api_version and target.kind)


def _of_target(target: TargetNeed, kind: Kind) -> Iterator[Need]:
    parent = replace(kind, subresource="")
    for namespace in target.namespaces if kind.namespaced else _ALL:
        exact = not kind.namespaced or bool(namespace) or target.in_one
        if not (target.named and exact):
            yield _need(target, parent, "list", namespace=namespace)
        elif kind.subresource and target.looked_at:
            yield _need(target, parent, "get", namespace=namespace, name=target.name)
        for verbs in (("get",), ("update", "patch")):
            name = target.name if target.named else ""
            yield _need(target, kind, *verbs, namespace=namespace, name=name)


def _keeps_past(program: Program, scope: KindScope) -> bool:
    """Return whether a rule records data of a matched kind that cannot be read later."""
    changed = not scope.operations or "UPDATE" in scope.operations
    return "DELETE" in scope.operations or (changed and bool(program.projection.old_object))


def _of_trigger(program: Program, kind: Kind, verbs: Iterable[str]) -> Iterator[Need]:
    home = program.origin.namespace
    places = (home,) if home else program.match.namespaces or _ALL
    for verb in verbs:
        for namespace in places if kind.namespaced else _ALL:
            right = Right.of(verb, kind, namespace=namespace)
            yield Need(location=program.origin.selection, options=(right,))


def _need(target: TargetNeed, kind: Kind, *verbs: str, namespace: str, name: str = "") -> Need:
    options = (Right.of(verb, kind, namespace=namespace, name=name) for verb in verbs)
    return Need(location=target.location, options=tuple(options))


def _shown(selector: KindSelector) -> str:
    group = "" if selector.group in {"", "*"} else f"{selector.group}/"
    version = "" if selector.version == "*" else f"{selector.version} "
    return f"{group}{version}{selector.kind}" + (
        f"/{selector.subresource}" if selector.subresource else ""
    )
