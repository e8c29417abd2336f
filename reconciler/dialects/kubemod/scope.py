"""The objects and requests that a ModRule applies to, before its expressions are evaluated."""

from dataclasses import dataclass, field
from typing import Final

from reconciler.dialects.kubemod.items import matches
from reconciler.engine.match import (
    Decision,
    KindScope,
    KindSelector,
    Listing,
    MatchNeeds,
    Subject,
    Verdict,
)
from reconciler.engine.match.kinds import KindTable
from reconciler.engine.values.regexes import Regex

IGNORE_LABEL: Final = "admission.kubemod.io/ignore"
"""On a Namespace, with the value ``true``: no ModRule applies to it or to objects in it."""

_EXISTING: Final = frozenset({"CREATE", "UPDATE"})
"""A rule for any of these operations also applies to existing objects."""
_MATCH: Final = Verdict(decision=Decision.MATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The objects of some kinds in some namespaces.

    Attributes:
        namespace: That of the rule, to which it is confined; empty for a rule of the system
            namespace.
        pattern: Of the namespaces, for a rule of the system namespace; None selects cluster-scoped
            objects.
        operations: The operations of the rule.
        selectors: The kinds of the objects.
        subresource: The subresource of the requests; empty for all but bindings of Pods.
    """

    namespace: str
    pattern: Regex | None = field(default=None, compare=False)
    operations: tuple[str, ...]
    selectors: tuple[KindSelector, ...]
    table: KindTable = field(compare=False, repr=False)
    subresource: str = ""
    needs: MatchNeeds = field(
        default=MatchNeeds(operations=True, namespace_labels=True), repr=False
    )

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """That namespace in a tuple, None where the rule is not confined."""
        return (self.namespace,) if self.namespace else None

    @property
    def names(self) -> None:
        """None, because only the expressions restrict names."""
        return

    def may_be(self, kind: str) -> bool:
        """Return whether the rule may apply to objects of a kind."""
        return self.table.names is None or kind in self.table.names

    def kinds(self) -> tuple[KindScope, ...]:
        """Return the kinds, each with the operations of the rule."""
        return tuple(
            KindScope(selector=item, operations=self.operations) for item in self.selectors
        )

    def listings(self, *, requests: bool = False) -> tuple[Listing, ...]:
        """Return where to list the existing objects."""
        del requests
        return (Listing(kinds=self.selectors, namespaces=self.namespaces, names=None),)

    def evaluate(self, subject: Subject) -> Verdict:
        """Return whether the rule applies to a subject."""
        is_namespace = subject.kind == "Namespace" and not subject.group
        # The API server sends the name of a Namespace as its namespace, too.
        namespace = "" if is_namespace else subject.namespace
        if reason := self._why_not(subject, namespace):
            return Verdict(decision=Decision.NO_MATCH, reasons=(reason,))
        labels = subject.labels if is_namespace else subject.namespace_labels
        if labels is None:
            reason = f"the labels of namespace {subject.namespace} are not known"
            return Verdict(decision=Decision.UNDECIDED, reasons=(reason,))
        if labels.get(IGNORE_LABEL) == "true":
            reason = f"its namespace has the label {IGNORE_LABEL}"
            return Verdict(decision=Decision.NO_MATCH, reasons=(reason,))
        return _MATCH

    def _why_not(self, subject: Subject, namespace: str) -> str:
        if subject.subresource != self.subresource:
            return "ModRules are for objects, not for their subresources"
        if not self.table.accepts(subject):
            return f"the rule does not apply to kind {subject.kind}"
        operation, operations = subject.operation, self.operations
        if operation not in operations and (operation or _EXISTING.isdisjoint(operations)):
            asked = operation or "existing objects"
            return f"the rule is for {', '.join(operations)}, not for {asked}"
        if self.namespace:
            inside = namespace == self.namespace
            return "" if inside else f"it is not in namespace {self.namespace}"
        if self.pattern is None:
            return (
                "without targetNamespaceRegex the rule is for cluster-scoped objects only"
                if namespace
                else ""
            )
        if matches(self.pattern, namespace, subject.allowance):
            return ""
        return "targetNamespaceRegex does not match its namespace"
