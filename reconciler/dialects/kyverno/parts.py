"""A rule of this language, as the parts that the engine evaluates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.rights import Need, TargetNeed
from reconciler.dialects.kyverno.entries import Entry, GlobalEntry, VariableEntry, with_entries
from reconciler.dialects.kyverno.match import Matcher
from reconciler.dialects.kyverno.mutation import (
    Edit,
    ForeachEdit,
    JsonPatchEdit,
    StrategicEdit,
    apply_edits,
    with_nested,
)
from reconciler.dialects.kyverno.naming import is_named_by_content
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.readers import (
    Readers,
    of_conditions,
    of_edits,
    of_entries,
    of_target,
)
from reconciler.dialects.kyverno.rights import constant, entry_right, target_need
from reconciler.dialects.kyverno.targets import Target, resolve
from reconciler.engine.context import Context
from reconciler.engine.evaluate import why_unmet
from reconciler.engine.itself import Itself
from reconciler.engine.outcome import Convergence, Unmet
from reconciler.engine.patch import KeyTable
from reconciler.engine.program import Program
from reconciler.engine.targets import TargetQuery
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.images import find_images


@dataclass(frozen=True, slots=True, kw_only=True)
class KyvernoRule:
    """The parts of a mutate rule; the engine uses it as `Binding`, `Targets` and `Mutation`.

    Attributes:
        location: Of the rule, as ``spec.rules[0]``.
        namespace: Of a namespaced policy, the only namespace of its targets; else empty.
        entries: Context entries of the rule.
        target_entries: Those of them that may read a target, evaluated again for each.
        targets: Empty for a rule that changes its trigger itself.
    """

    location: str
    namespace: str
    matcher: Matcher
    entries: tuple[Entry, ...]
    target_entries: tuple[Entry, ...]
    preconditions: Conditions | None
    targets: tuple[Target, ...]
    edits: tuple[Edit, ...]
    convergence: Convergence

    @property
    def merge_keys(self) -> bool:
        """Return whether an edit is a strategic merge."""
        return any(isinstance(edit, StrategicEdit) for edit in with_nested(self.edits))

    @property
    def appends(self) -> bool:
        """Return whether an edit adds to a list by position, so that each run adds again."""
        patches = (edit for edit in with_nested(self.edits) if isinstance(edit, JsonPatchEdit))
        return any(edit.appends for edit in patches)

    @property
    def loads(self) -> bool:
        """Return whether any context entry is not a variable."""
        return any(not isinstance(entry, VariableEntry) for entry in self._entries())

    def bind(self, context: Context) -> Context:
        """Return a context with ``images`` and the entries of the rule."""
        return with_entries(with_images(context), self.entries)

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        """Return the queries of the targets for a trigger, and the errors of those that fail."""
        found: list[TargetQuery] = []
        errors: list[EvaluationError] = []
        for index, target in enumerate(self.targets):
            try:
                query = resolve(index, target, context, policy_namespace=self.namespace)
            except EvaluationError as error:
                errors.append(error)
            else:
                found.append(query)
        return found, errors

    def named_by_content(self, index: int) -> bool:
        """Return whether a target's name or namespace may contain more than names and labels."""
        return is_named_by_content(self.targets[index], self.entries)

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any] | Unmet:
        """Return the object after all edits, or why there is nothing to change."""
        if index is None:
            return apply_edits(self.edits, context, obj, keys)
        target = self.targets[index]
        entries = (*self.target_entries, *target.entries)
        bound = with_entries(context.bind(target=obj), entries)
        if target.preconditions is not None:
            reason = why_unmet(target.preconditions, bound)
            if reason:
                return Unmet(reason=reason)
        return apply_edits(self.edits, bound, obj, keys)

    def target_rights(self) -> tuple[TargetNeed, ...]:
        """Return the rights that each target needs."""
        return tuple(
            target_need(target, self.matcher, namespace=self.namespace) for target in self.targets
        )

    def read_rights(self) -> Iterator[Need]:
        """Yield the rights that the context entries of all parts of the rule need.

        A GlobalContextEntry needs none: its author made its data available to all rules.
        """
        for place, entries in self.entry_lists():
            for index, entry in enumerate(entries):
                right = entry_right(entry)
                if right is not None:
                    yield Need(location=f"{place}[{index}]", options=(right,))

    def global_entries(self) -> frozenset[str] | None:
        """Return the GlobalContextEntries that the rule reads, None where a variable names one."""
        entries = (entry for entry in self._entries() if isinstance(entry, GlobalEntry))
        found = frozenset(constant(entry.reference).partition(".")[0] for entry in entries)
        return None if "" in found else found

    def readers(self) -> Readers:
        """Yield the templates and expressions of all parts of the rule."""
        yield from of_entries(self.entries)
        yield from of_conditions(self.preconditions)
        for target in self.targets:
            yield from of_target(target)
        yield from of_edits(self.edits)

    def entry_lists(self) -> Iterator[tuple[str, tuple[Entry, ...]]]:
        """Yield all lists of context entries in the rule, each with its location."""
        yield f"{self.location}.context", self.entries
        for target in self.targets:
            yield f"{target.location}.context", target.entries
        for block in self.blocks():
            yield f"{block.location}.context", block.entries

    def _entries(self) -> Iterator[Entry]:
        return (entry for _, entries in self.entry_lists() for entry in entries)

    def blocks(self) -> Iterator[ForeachEdit]:
        """Return each foreach of the rule, before those nested in it."""
        return (edit for edit in with_nested(self.edits) if isinstance(edit, ForeachEdit))


def with_images(context: Context) -> Context:
    """Return a context that has ``images`` if the object runs containers.

    They are computed from ``request.object`` when they are read and not bound.
    """
    return context.derive("images", _images)


def _images(data: Mapping[str, Any]) -> Any:
    request = data.get("request")
    return find_images(request.get("object")) if isinstance(request, dict) else None


def parts_of(program: Program) -> KyvernoRule:
    """Return the parts of a rule of this language, in any phase.

    Raises:
        TypeError: The rule is of another language.
    """
    if isinstance(program.mutation, Itself):
        return parts_of(program.mutation.rule)
    if not isinstance(program.mutation, KyvernoRule):
        raise TypeError(f"{program.origin.dialect} is another language")
    return program.mutation
