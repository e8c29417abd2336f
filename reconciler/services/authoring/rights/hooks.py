"""Which rights a hook that is declared as an object needs, and which of them are missing."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import Kind
from reconciler.api.rights import Need, Right
from reconciler.hooks.bindings import KubernetesBinding
from reconciler.hooks.declared import DeclaredHook
from reconciler.hooks.operations import OBJECTS, OperationType
from reconciler.languages.jmespath import braces
from reconciler.services.ports.access import Access
from reconciler.services.ports.objects import Kinds

_ANY_KIND: Final = Kind(group="*", version="*", kind="*", plural="*", namespaced=True)
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
_EVERYTHING: Final = (("*",),)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLack:
    """What a hook lacks.

    Attributes:
        unserved: Place and name of kinds that the cluster does not serve.
    """

    rights: tuple[Need, ...] = ()
    unserved: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRights:
    """Asks about the rights of the account that the access port knows.

    Attributes:
        whole: What only a run tells, a kind or all operations, is asked for as everything: so that
            nobody has done by a hook what they may not do.
    """

    kinds: Kinds
    access: Access
    whole: bool = False

    async def check(self, hook: DeclaredHook) -> HookLack:
        """Return what a hook lacks now.

        Raises:
            ClusterError: The API server could not be asked.
        """
        needs: list[Need] = []
        unserved: list[tuple[str, str]] = []
        for index, binding in enumerate(hook.config.kubernetes):
            place = f"spec.kubernetes[{index}]"
            kind = await self.kinds.named(binding.api_version, binding.kind)
            if kind is None:
                unserved.append((f"{place}.kind", binding.kind))
            else:
                needs += _of_monitor(hook, binding, kind, place)
        for index, text in enumerate(hook.run.texts if hook.run is not None else ()):
            place = f"spec.run.operations[{index}]"
            found = await self._of_operation(hook, text, place)
            if found is None:
                unserved.append((place, str(_kind_of(text)[1])))
            else:
                needs += found
        if self.whole and hook.run is not None and hook.run.program:
            needs += _needs("spec.run.jq", _ANY_KIND, hook.confined_to, "", _EVERYTHING)
        asked = {right for need in needs for right in need.options}
        answers = await asyncio.gather(*(self.access.may(right) for right in asked))
        known = dict(zip(asked, answers, strict=True))
        lacking = (need for need in needs if not any(known[right] for right in need.options))
        return HookLack(rights=tuple(dict.fromkeys(lacking)), unserved=tuple(unserved))

    async def _of_operation(
        self, hook: DeclaredHook, text: Mapping[str, Any], place: str
    ) -> list[Need] | None:
        """Return what an operation needs; None where its kind is not served."""
        api_version, name = _kind_of(text)
        parts = (api_version, name, text.get("subresource") or "")
        if not all(map(_is_plain, parts)):
            if not self.whole:
                return []
            return list(_needs(place, _ANY_KIND, hook.confined_to, "", _EVERYTHING))
        kind = await self.kinds.named(str(api_version), str(name))
        if kind is None:
            return None
        subresource = text.get("subresource") or ""
        operation = OperationType(text["operation"])
        if operation not in OBJECTS:
            kind = replace(kind, subresource=str(subresource).strip("/"))
        namespace, named = _place_of(text)
        namespace = hook.confined_to or (namespace if _is_plain(namespace) else "")
        verbs = _VERBS[operation]
        named = named if _is_plain(named) and operation not in OBJECTS else ""
        return list(_needs(place, kind, str(namespace), str(named), verbs))


def _of_monitor(
    hook: DeclaredHook, binding: KubernetesBinding, kind: Kind, place: str
) -> Iterator[Need]:
    places = (hook.confined_to,) if hook.confined_to else binding.selection.namespaces or ("",)
    for namespace in places:
        yield from _needs(place, kind, namespace, "", (("list",), ("watch",)))


def _needs(
    place: str, kind: Kind, namespace: str, name: str, verbs: Iterable[tuple[str, ...]]
) -> Iterator[Need]:
    for options in verbs:
        rights = (Right.of(verb, kind, namespace=namespace, name=name) for verb in options)
        yield Need(location=place, options=tuple(rights))


def _kind_of(text: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return apiVersion and kind as they are written; of an object that is a text nothing."""
    obj = text.get("object")
    if text["operation"] not in OBJECTS:
        return text.get("apiVersion") or "", text.get("kind")
    if not isinstance(obj, Mapping):
        return None, None
    return obj.get("apiVersion"), obj.get("kind")


def _place_of(text: Mapping[str, Any]) -> tuple[Any, Any]:
    obj = text.get("object")
    if text["operation"] not in OBJECTS or not isinstance(obj, Mapping):
        return text.get("namespace") or "", text.get("name") or ""
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    return meta.get("namespace") or "", meta.get("name") or ""


def _is_plain(value: Any) -> bool:
    """Tell whether a part of a template says by itself what it is."""
    return isinstance(value, str) and not braces.contains(value)
