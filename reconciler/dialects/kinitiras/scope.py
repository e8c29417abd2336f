"""The objects and requests that a policy applies to; see `reconciler.engine.ports.Match`."""

from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.dialects.kinitiras.rule import CONNECT
from reconciler.dialects.kinitiras.selectors import Selector
from reconciler.engine.match import (
    Decision,
    KindScope,
    KindSelector,
    Listing,
    MatchNeeds,
    Subject,
    Verdict,
)

ALL: Final = KindSelector(group="*", version="*", kind="*", subresource="")
ALL_SUBRESOURCES: Final = replace(ALL, subresource="*")
_NAMESPACE: Final = "Namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The objects that any of the selectors selects, in requests of the operations.

    Attributes:
        namespace: Of a namespaced policy, which is confined to it; else empty.
        selectors: Without selectors, everything is selected.
        operations: The operations of the rule.
    """

    namespace: str
    selectors: tuple[Selector, ...]
    operations: tuple[str, ...]
    needs: MatchNeeds = field(default=MatchNeeds(operations=True), repr=False)

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """The only namespaces of matching objects, None where a selector does not name one."""
        if self.namespace:
            return (self.namespace,)
        return self._each([selector.namespace for selector in self.selectors])

    @property
    def names(self) -> tuple[str, ...] | None:
        """The only names of matching objects, None where a selector does not name one."""
        return self._each([selector.name for selector in self.selectors])

    def _each(self, values: list[str]) -> tuple[str, ...] | None:
        return tuple(dict.fromkeys(values)) if values and all(values) else None

    def kinds(self) -> tuple[KindScope, ...]:
        """Return the kinds, each with the operations of the rule that the kind supports."""
        selectors = dict.fromkeys(selector.kind_selector for selector in self.selectors)
        found = (
            KindScope(selector=selector, operations=self._operations(selector))
            for selector in selectors or (ALL, ALL_SUBRESOURCES)
        )
        return tuple(item for item in found if item.operations)

    def _operations(self, selector: KindSelector) -> tuple[str, ...]:
        """Return the operations for a kind: CONNECT for subresources, all others for objects."""
        connects = bool(selector.subresource)
        return tuple(name for name in self.operations if (name == CONNECT) is connects)

    def listings(self, *, requests: bool = False) -> tuple[Listing, ...]:
        """Return where to list the existing objects, one listing for each selector."""
        del requests
        return tuple(
            Listing(
                kinds=(selector.kind_selector,),
                namespaces=(space,) if (space := self.namespace or selector.namespace) else None,
                names=(selector.name,) if selector.name else None,
                labels=selector.required_labels,
            )
            for selector in self.selectors
            if not selector.kind_selector.subresource
        )

    def evaluate(self, subject: Subject) -> Verdict:
        """Return whether the rule applies to a subject."""
        reason = self._why_not(subject)
        if reason:
            return Verdict(decision=Decision.NO_MATCH, reasons=(reason,))
        return Verdict(decision=Decision.MATCH)

    def _why_not(self, subject: Subject) -> str:
        if subject.operation and subject.operation not in self.operations:
            return f"the rule is for {', '.join(self.operations)}, not for {subject.operation}"
        if subject.subresource and subject.operation != CONNECT:
            return "policies are for objects, not for their subresources"
        # A request for a Namespace has its name as the namespace, too; the object is in none.
        is_namespace = subject.kind == _NAMESPACE and not subject.group
        place = "" if is_namespace else subject.namespace
        if self.namespace and place != self.namespace:
            return f"it is not in namespace {self.namespace}"
        if not self.selectors:
            return ""
        selected = any(
            selector.matches(subject.obj, name=subject.name, namespace=place)
            for selector in self.selectors
        )
        return "" if selected else "none of resourceSelectors selects it"
