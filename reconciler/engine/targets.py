"""Which objects a rule changes for one trigger, as queries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from reconciler.api.meta import Object
from reconciler.engine.match.selectors import LabelSelector
from reconciler.engine.values.wildcard import compile_wildcard, has_wildcard


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePattern:
    """A namespace or name that is asked for; wildcards come from the policy's text only."""

    text: str
    exact: bool
    accepts: Callable[[str], bool]

    @override
    def __reduce__(self) -> tuple[Callable[..., "NamePattern"], tuple[str, bool]]:
        """Compile it again where it was pickled."""
        return name_pattern, (self.text, self.exact)


def name_pattern(text: str, exact: bool) -> NamePattern:  # noqa: FBT001 - a pickle's arguments
    """Return what accepts a name: exactly this one, or all that fit its wildcards."""
    accepts = text.__eq__ if exact else compile_wildcard(text)
    return NamePattern(text=text, exact=exact, accepts=accepts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetQuery:
    """Which objects a target means for one trigger.

    Attributes:
        index: Position in the rule's targets.
        kind: With the subresource, as ``Node/status``.
        namespace: None for all namespaces, and for what has none.
        read: The one object that is meant, where it was read already.
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
        """Return whether the kind is exact, and no pattern for several."""
        return not has_wildcard(self.kind) and not has_wildcard(self.api_version)

    @property
    def names_namespace(self) -> bool:
        """Return whether the namespace is exact, and no pattern for several."""
        return self.names_kind and self.namespace is not None and self.namespace.exact

    def names_one(self, *, namespaced: bool) -> bool:
        """Return whether exactly one object is meant, by name, so that it has to be there."""
        if self.name is None or not self.name.exact:
            return False
        return not namespaced or (self.namespace is not None and self.namespace.exact)

    def accepts(self, obj: Mapping[str, Any]) -> bool:
        """Return whether an object of the right kind is meant; every given part counts.

        What stands in no namespace is not in any that is asked for.
        """
        meta = obj.get("metadata") or {}
        return (
            (self.name is None or self.name.accepts(meta.get("name") or ""))
            and (self.namespace is None or self.namespace.accepts(meta.get("namespace") or ""))
            and (not self.uid or meta.get("uid") == self.uid)
            and (self.selector is None or self.selector.accepts(meta.get("labels") or {}))
        )
