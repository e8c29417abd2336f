"""Determines the rights that a declared hook needs, and those that are missing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import NAMESPACES, Kind
from reconciler.api.rights import Need, Right
from reconciler.hooks.bindings import KubernetesBinding
from reconciler.hooks.declared import DeclaredHook
from reconciler.hooks.operations import OBJECTS, OperationType, is_plain, written_target
from reconciler.services.authoring.rights.asking import ANY_KIND, ask, missing
from reconciler.services.ports.access import Access
from reconciler.services.ports.objects import Kinds

_CHANGES: Final = (("get",), ("patch", "update"))
_VERBS: Final[Mapping[OperationType, tuple[tuple[str, ...], ...]]] = {
    OperationType.CREATE: (("create",),),
    OperationType.CREATE_IF_NOT_EXISTS: (("create",),),
    OperationType.CREATE_OR_UPDATE: (("create",), *_CHANGES),
    OperationType.JQ_PATCH: _CHANGES,
    OperationType.MERGE_PATCH: (("patch",),),
    OperationType.JSON_PATCH: (("patch",),),
    OperationType.DELETE: (("get",), ("delete",)),
    OperationType.DELETE_IN_BACKGROUND: (("delete",),),
    OperationType.DELETE_NON_CASCADING: (("delete",),),
}
_FOLLOWS: Final = (("list",), ("watch",))
_EVERYTHING: Final = (("*",),)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLack:
    """The rights and kinds that a hook lacks.

    Attributes:
        unserved: Location and name of kinds that the cluster does not serve.
    """

    rights: tuple[Need, ...] = ()
    unserved: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRights:
    """Checks the rights of the account that the access port stands for.

    Attributes:
        whole: Check a kind or operations that only a run determines as all kinds and verbs: nobody
            may gain rights through a hook.
    """

    kinds: Kinds
    access: Access
    whole: bool = False

    async def check(self, hook: DeclaredHook) -> HookLack:
        """Return what a hook lacks now.

        Raises:
            ClusterError: The API server did not answer a review.
        """
        needs: list[Need] = []
        unserved: list[tuple[str, str]] = []
        for index, binding in enumerate(hook.config.kubernetes):
            place = f"spec.kubernetes[{index}]"
            kind = await self.kinds.named(binding.api_version, binding.kind)
            if kind is None:
                unserved.append((f"{place}.kind", binding.kind))
            else:
                needs += _of_monitor(binding, kind, place)
        for index, text in enumerate(hook.run.texts if hook.run is not None else ()):
            place = f"spec.run.operations[{index}]"
            found = await self._of_operation(hook, text, place)
            if found is None:
                unserved.append((place, str(written_target(text).kind)))
            else:
                needs += found
        if self.whole and hook.run is not None and hook.run.program:
            needs += _needs("spec.run.jq", ANY_KIND, hook.confined_to, "", _EVERYTHING)
        lacking = missing(needs, await ask(self.access, needs))
        return HookLack(rights=tuple(lacking), unserved=tuple(unserved))

    async def _of_operation(
        self, hook: DeclaredHook, text: Mapping[str, Any], place: str
    ) -> list[Need] | None:
        """Return the rights that an operation needs; None if its kind is not served."""
        target, subresource = written_target(text), text.get("subresource") or ""
        if not all(map(is_plain, (target.api_version, target.kind, subresource))):
            if not self.whole:
                return []
            return list(_needs(place, ANY_KIND, hook.confined_to, "", _EVERYTHING))
        kind = await self.kinds.named(target.api_version, target.kind)
        if kind is None:
            return None
        operation = OperationType(text["operation"])
        if operation not in OBJECTS:
            kind = replace(kind, subresource=str(subresource).strip("/"))
        namespace = hook.confined_to or (target.namespace if is_plain(target.namespace) else "")
        name = target.name if is_plain(target.name) and operation not in OBJECTS else ""
        return list(_needs(place, kind, namespace, name, _VERBS[operation]))


def _of_monitor(binding: KubernetesBinding, kind: Kind, place: str) -> Iterator[Need]:
    if binding.selection.namespace_labels is not None:
        yield from _needs(f"{place}.namespace", NAMESPACES, "", "", _FOLLOWS)
    for namespace in binding.selection.namespaces or ("",):
        yield from _needs(place, kind, namespace, "", _FOLLOWS)


def _needs(
    place: str, kind: Kind, namespace: str, name: str, verbs: Iterable[tuple[str, ...]]
) -> Iterator[Need]:
    for options in verbs:
        rights = (Right.of(verb, kind, namespace=namespace, name=name) for verb in options)
        yield Need(location=place, options=tuple(rights))
