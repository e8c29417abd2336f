"""What a policy language gives the engine: the parts of a rule, whatever it is written in.

All of them are pure. A part that needs something from outside raises `NeedsLoad`, and is asked
again with the answer among the context's loads.
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
    """Which objects and requests a rule is meant for."""

    @property
    def namespace(self) -> str:
        """The namespace of a namespaced policy, which concerns only objects in it; else empty."""
        ...

    @property
    def needs(self) -> MatchNeeds:
        """What has to be known about a subject beside the object."""
        ...

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """The literal namespaces of all that can match, None where one is open."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """The literal names of all that can match, None where one is open."""
        ...

    def evaluate(self, subject: Subject) -> Verdict:
        """Decide whether the rule concerns a subject."""
        ...

    def kinds(self) -> tuple[KindScope, ...]:
        """Return the kinds that it names, each with the operations it stands with."""
        ...

    def listings(self, *, requests: bool = False) -> tuple[Listing, ...]:
        """Return where to look for existing objects; together they miss none that matches.

        Args:
            requests: Whether requests for them are meant; else their mere existence.
        """
        ...


class Condition(Protocol):
    """What must hold of the data beside the match."""

    @property
    def roots(self) -> frozenset[str]:
        """The names at the top of the context that it reads."""
        ...

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The paths that it reads."""
        ...

    def evaluate(self, context: Context) -> ConditionResult:
        """Decide.

        Raises:
            EvaluationError: It cannot be evaluated on this data.
        """
        ...


class Binding(Protocol):
    """The names that a rule adds to the data of its trigger."""

    @property
    def loads(self) -> bool:
        """Whether some of them may be read from outside."""
        ...

    def bind(self, context: Context) -> Context:
        """Return a context with the names; each is evaluated when it is first read."""
        ...

    def read_rights(self) -> Iterable[Need | ReadNeed]:
        """Return what reading them needs to be granted."""
        ...


class Targets(Protocol):
    """Which objects a rule changes."""

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        """Return what the targets mean for a trigger, and the errors of those that fail."""
        ...

    def named_by_content(self, index: int) -> bool:
        """Return whether a target's name or namespace may be made of more than names and labels.

        Then neither is written where somebody may read it who may not read the trigger.
        """
        ...

    def target_rights(self) -> Sequence[TargetNeed]:
        """Return what each target needs to be granted, in the order of the policy."""
        ...


class Mutation(Protocol):
    """What a rule makes of an object."""

    @property
    def convergence(self) -> Convergence:
        """Whether the result, fed back, changes nothing."""
        ...

    @property
    def merge_keys(self) -> bool:
        """Whether it matters which lists merge by key."""
        ...

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any] | Unmet:
        """Return the object as it is to be, or why there is nothing to change.

        Args:
            index: Which target selected the object; None where it is the trigger itself.
            context: Of the trigger, with the rule's names bound; the target is bound here.
            obj: As it stands, not changed by this call.
            keys: Which lists merge by key.

        Raises:
            EvaluationError: It cannot be applied; then nothing is.
            InvalidPolicy: A patch with variables became something that is no patch.
        """
        ...


class Refusal(Protocol):
    """What a rule says where it refuses a request."""

    @property
    def heading(self) -> str:
        """What stands once before the messages of all rules with the same one; may be empty."""
        ...

    def message(self, context: Context) -> str:
        """Return which rule refuses, and why.

        Args:
            context: Of the request, with the object as all rules left it.

        Raises:
            NeedsLoad: The message names what has not been read yet.
        """
        ...
