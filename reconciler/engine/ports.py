"""Interfaces between the engine and the policy languages: the parts of a rule in any language.

All implementations are pure. A part that needs data from outside raises `NeedsLoad`, and is
called again with the answer among the context's loads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from reconciler.api.rights import Need, ReadNeed, TargetNeed
from reconciler.engine.context import Context
from reconciler.engine.match import KindScope, Listing, MatchNeeds, Subject, Verdict
from reconciler.engine.outcome import ConditionResult, Convergence, Unmet
from reconciler.engine.patch import KeyTable
from reconciler.engine.targets import TargetQuery
from reconciler.errors import EvaluationError


class Match(Protocol):
    """The objects and requests that a rule applies to."""

    @property
    def namespace(self) -> str:
        """The namespace of a namespaced policy, which applies only within it; else empty."""

    @property
    def needs(self) -> MatchNeeds:
        """The data about a subject that the match needs beside the object."""

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """The only namespaces in which objects can match, None where they are not all literal."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The only names that objects can have to match, None where they are not all literal."""

    def evaluate(self, subject: Subject) -> Verdict:
        """Return whether the rule applies to a subject."""

    def kinds(self) -> tuple[KindScope, ...]:
        """Return the kinds that the match names, each with the operations of its filter."""

    def listings(self, *, requests: bool = False) -> tuple[Listing, ...]:
        """Return where to list existing objects; together the listings miss no matching object.

        Args:
            requests: Find the objects of matching requests; else those that match without one.
        """


class Condition(Protocol):
    """A condition on the data, beside the match."""

    @property
    def roots(self) -> frozenset[str]:
        """The names at the top of the context that the condition reads."""

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The paths in the context that the condition reads."""

    def evaluate(self, context: Context) -> ConditionResult:
        """Return whether the condition holds, with the message of what decided it.

        Raises:
            EvaluationError: It cannot be evaluated on this data.
        """


class Binding(Protocol):
    """The names that a rule adds to the data of its trigger."""

    @property
    def loads(self) -> bool:
        """Whether any of the names may need data from outside."""

    def bind(self, context: Context) -> Context:
        """Return a context with the names; each is evaluated when it is first read."""

    def read_rights(self) -> Iterable[Need | ReadNeed]:
        """Return the rights that are needed to read their data."""


class Targets(Protocol):
    """The objects that a rule changes."""

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        """Return the queries of the targets for a trigger, and the errors of those that fail."""

    def named_by_content(self, index: int) -> bool:
        """Return whether a target's name or namespace may contain more than names and labels.

        Such names are kept out of places that a user without access to the trigger may read.
        """

    def target_rights(self) -> Sequence[TargetNeed]:
        """Return the rights that each target needs, in the order of the policy."""


class Mutation(Protocol):
    """The change that a rule makes to an object."""

    @property
    def convergence(self) -> Convergence:
        """Whether the mutation changes nothing in its own result."""

    @property
    def merge_keys(self) -> bool:
        """Whether it matters which lists merge by key."""

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any] | Unmet:
        """Return the changed object, or why there is nothing to change.

        Args:
            index: Which target selected the object; None where it is the trigger itself.
            context: Of the trigger, with the rule's names bound; this method binds the target.
            obj: The current object, not changed by this call.
            keys: Which lists merge by key.

        Raises:
            EvaluationError: The mutation cannot be applied, not even in part.
            InvalidPolicy: A patch is invalid after variable substitution.
        """


class Refusal(Protocol):
    """The message of a rule that refuses a request."""

    @property
    def heading(self) -> str:
        """A heading, written once before the messages of all rules that share it; may be empty."""

    def message(self, context: Context) -> str:
        """Return the message: which rule refuses the request, and why.

        Args:
            context: Of the request, with the object as all rules left it.

        Raises:
            NeedsLoad: The message uses data that has not been loaded yet.
        """
