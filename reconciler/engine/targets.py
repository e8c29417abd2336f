"""Queries for the objects that a rule changes for one trigger."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from reconciler.api.meta import Object
from reconciler.engine.match.selectors import LabelSelector
from reconciler.engine.values.wildcard import compile_wildcard, has_wildcard


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePattern:
    """A namespace or name to select; wildcards come from the policy's text only."""

    text: str
    exact: bool
    accepts: Callable[[str], bool]

    @override
    def __reduce__(self) -> tuple[Callable[..., "NamePattern"], tuple[str, bool]]:
        """Return what unpickling calls: the pattern is compiled again."""
        return name_pattern, (self.text, self.exact)


def name_pattern(text: str, exact: bool) -> NamePattern:  # noqa: FBT001 - a pickle's arguments
    """Return a pattern that accepts exactly this name, or all that match its wildcards."""
    accepts = text.__eq__ if exact else compile_wildcard(text)
    return NamePattern(text=text, exact=exact, accepts=accepts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetQuery:
    """The objects that a target selects for one trigger.

    Attributes:
        index: Position in the rule's targets.
        kind: With the subresource, as ``Node/status``.
        namespace: None for all namespaces, and for cluster-scoped kinds.
        read: The only selected object, where it was read already.
    """

    index: int
    api_version: str
    kind: str
    namespace: NamePattern | None
    name: NamePattern | None
    uid: str
    selector: LabelSelector | None
    read: Object | None = field(default=None, repr=False, compare=False)

    @property
    def names_kind(self) -> bool:
        """Return whether kind and API version are exact, without wildcards."""
        return not has_wildcard(self.kind) and not has_wildcard(self.api_version)

    @property
    def names_namespace(self) -> bool:
        """Return whether kind and namespace are exact, without wildcards."""
        return self.names_kind and self.namespace is not None and self.namespace.exact

    def names_one(self, *, namespaced: bool) -> bool:
        """Return whether the query names exactly one object, which then must exist."""
        if self.name is None or not self.name.exact:
            return False
        return not namespaced or (self.namespace is not None and self.namespace.exact)

    def accepts(self, obj: Mapping[str, Any]) -> bool:
        """Return whether an object of the right kind is selected; every given part must match.

        A cluster-scoped object has the empty namespace, which no exact name matches.
        """
        meta = obj.get("metadata") or {}
        return (
            (self.name is None or self.name.accepts(meta.get("name") or ""))
            and (self.namespace is None or self.namespace.accepts(meta.get("namespace") or ""))
            and (not self.uid or meta.get("uid") == self.uid)
            and (self.selector is None or self.selector.accepts(meta.get("labels") or {}))
        )
