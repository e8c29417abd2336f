"""The data that a ModRule reads: the object, and KubeMod's synthetic references.

A reference is loaded when an expression or a template that names it is evaluated.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import NAMESPACES
from reconciler.api.rights import Need, Right
from reconciler.engine.context import Context
from reconciler.engine.loads import ApiLoad, LoadFailure, NeedsLoad
from reconciler.errors import EvaluationError

REFERENCES: Final = "syntheticRefs"
NODE_ANNOTATIONS: Final = ("ref.kubemod.io/nodename", "ref.kubemod.io/node")
"""On a Pod: the name of its node. The original documents both, but writes and reads the first."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_NAMED: Final = re.compile(rf'{REFERENCES}(?:\s*\.\s*|\s*\[\s*"|\s*")(namespace|node)\b')
_MENTIONED: Final = re.compile(rf"\b{REFERENCES}\b")
NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_REQUESTS: Final = frozenset({"CREATE", "UPDATE", "DELETE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The synthetic references that a rule names."""

    namespace: bool = False
    node: bool = False

    @classmethod
    def in_texts(cls, texts: Iterable[str]) -> "References":
        """Return the references that texts name; ``syntheticRefs`` by itself names all."""
        names: set[str] = set()
        for text in texts:
            named = _NAMED.findall(text)
            whole = len(_MENTIONED.findall(text)) > len(named)
            names |= {"namespace", "node"} if whole else set(named)
        return cls(namespace="namespace" in names, node="node" in names)

    def __bool__(self) -> bool:
        return self.namespace or self.node

    def needs(self, home: str) -> Iterator[Need]:
        """Yield the rights that reading the references requires.

        Args:
            home: The namespace to which the rule is confined; empty where it is not.
        """
        if self.namespace:
            # RBAC treats a Namespace as an object within itself.
            right = replace(Right.of("get", NAMESPACES, name=home), namespace=home)
            yield Need(location="spec", options=(right,))
        if self.node:
            right = Right(verb="get", group="", resource="nodes")
            yield Need(location="spec", options=(right,))


class View:
    """An object, with and without its synthetic references.

    Attributes:
        context: Of the request with the object.
        plain: The object without references and managed fields.
    """

    __slots__ = ("_full", "context", "obj", "plain", "references")

    def __init__(self, context: Context, obj: Mapping[str, Any], references: References) -> None:
        self.context = context
        self.obj = obj
        self.references = references
        self.plain = _without_managed_fields(obj)
        self._full: Mapping[str, Any] | None = None

    @property
    def namespace(self) -> str:
        """The namespace of the object; empty for a Namespace."""
        if self.obj.get("kind") == "Namespace" and self.obj.get("apiVersion") == "v1":
            return ""
        return str(self.context.data["request"].get("namespace") or "")

    @property
    def is_request(self) -> bool:
        """Whether the object is that of a request; otherwise it is an existing object."""
        return self.context.data["request"].get("operation") in _REQUESTS

    def full(self) -> Mapping[str, Any]:
        """Return the object with the references that the rule names.

        Raises:
            EvaluationError: A reference cannot be read.
            NeedsLoad: A reference has not been loaded yet.
        """
        if self._full is None:
            if self.references:
                found = dict(self._loaded())
                self._full = {**self.plain, REFERENCES: found}
            else:
                self._full = self.plain
        return self._full

    def _loaded(self) -> Iterator[tuple[str, Any]]:
        if self.references.namespace and (name := self.namespace):
            yield "namespace", _read(self.context, "namespaces", name)
        if self.references.node and (node := self._node()):
            yield "node", _read(self.context, "nodes", node)

    def _node(self) -> str:
        if self.obj.get("kind") != "Pod" or self.obj.get("apiVersion") != "v1":
            return ""
        meta = self.obj.get("metadata") or {}
        annotations = meta.get("annotations") or {}
        names = [annotations.get(name) for name in NODE_ANNOTATIONS]
        if not self.is_request:
            names.append((self.obj.get("spec") or {}).get("nodeName"))
        # The author of a Pod controls its annotations, and the name becomes part of a URL path.
        valid = (name for name in names if isinstance(name, str) and NODE_NAME.fullmatch(name))
        return next(valid, "")


def _read(context: Context, resource: str, name: str) -> Any:
    load = ApiLoad(method="GET", path=f"/api/v1/{resource}/{name}")
    if load not in context.loads:
        raise NeedsLoad(load)
    found = context.loads[load]
    if isinstance(found, LoadFailure):
        reason = f"syntheticRefs cannot be read: {found.message}"
        raise EvaluationError(reason).bare(f"syntheticRefs cannot be read: {found.bare}")
    return _without_last_applied(_without_managed_fields(found))


def _without_managed_fields(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj
    kept = {name: value for name, value in meta.items() if name != "managedFields"}
    return {**obj, "metadata": kept}


def _without_last_applied(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = obj.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    if LAST_APPLIED not in annotations:
        return obj
    kept = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    return {**obj, "metadata": {**meta, "annotations": kept}}
