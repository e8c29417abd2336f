"""The parts of a ModRule's program other than its scope and its patch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.api.rights import Need
from reconciler.dialects.kubemod.items import Item
from reconciler.dialects.kubemod.values import Message
from reconciler.dialects.kubemod.view import References, View
from reconciler.engine.context import Context
from reconciler.engine.outcome import ConditionResult
from reconciler.errors import EvaluationError

_HOLDS: Final = ConditionResult(passed=True)
_READS: Final = frozenset(
    {("request", "object"), ("request", "namespace"), ("request", "operation")}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """The items of a rule, all of which have to hold; see `reconciler.engine.ports.Condition`."""

    items: tuple[Item, ...]
    references: References
    roots: frozenset[str] = field(default=frozenset({"request"}), repr=False)
    reads: frozenset[tuple[str, ...]] = field(default=_READS, repr=False)

    def evaluate(self, context: Context) -> ConditionResult:
        """Return whether all items hold, with the reason of the first that does not."""
        view = self._view(context)
        for item in self.items:
            if reason := item.why_not(_seen_by(item, view), context.allowance):
                return ConditionResult(passed=False, message=reason)
        return _HOLDS

    def seen_by(self, item: Item, context: Context) -> Mapping[str, Any]:
        """Return the data that an item reads.

        Raises:
            EvaluationError: A reference cannot be read.
        """
        return _seen_by(item, self._view(context))

    def _view(self, context: Context) -> View:
        return View(context, context.data["request"]["object"] or {}, self.references)


def _seen_by(item: Item, view: View) -> Mapping[str, Any]:
    return view.full() if item.names_references else view.plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The binding of a ModRule, which adds no names; see `reconciler.engine.ports.Binding`.

    Attributes:
        home: The namespace to which the rule is confined; empty where it is not.
    """

    references: References
    home: str = ""

    @property
    def loads(self) -> bool:
        """Whether a synthetic reference may be read."""
        return bool(self.references)

    def bind(self, context: Context) -> Context:
        """Return the context as it is."""
        return context

    def read_rights(self) -> Iterator[Need]:
        """Return the rights that reading the references requires."""
        return self.references.needs(self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The message of a rule of type Reject; see `reconciler.engine.ports.Refusal`."""

    rule: str
    text: Message | None
    references: References
    heading: str = "operation rejected by the following ModRule(s):"

    def message(self, context: Context) -> str:
        """Return the name of the rule and its message, or only the name if the message fails."""
        if self.text is None:
            return self.rule
        view = View(context, context.data["request"]["object"] or {}, self.references)
        try:
            return f'{self.rule}: "{self.text.of(view)}"'
        except EvaluationError:
            return self.rule
