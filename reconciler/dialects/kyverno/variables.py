"""The scopes of a rule: the variables that each of its parts may use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from reconciler.dialects.kyverno.entries import ElementEntry
from reconciler.dialects.kyverno.preconditions import Conditions, compile_conditions
from reconciler.dialects.kyverno.template import Template, compile_template
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.jmespath import Expression

REQUEST = frozenset({"request", "serviceAccountName", "serviceAccountNamespace", "images"})
"""The names that every rule knows."""

_TARGET = frozenset({"target", "@"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The names that are known where an expression is used.

    Attributes:
        target: A target is bound.
        elements: Number of enclosing foreach blocks.
        entries: Context entries that were declared before.
        targets: A target will be bound, and the path of a variable may read it already.
        of_target: Those of the entries that read the target; they are known where it is bound.
        given: Names whose values the desk provides in place of context entries.
        given_elements: The same inside of a foreach.
        late: As in Kyverno, an expression that can never be evaluated does not invalidate the
            policy: it fails when it is evaluated, and lint warns about it.
    """

    target: bool = False
    elements: int = 0
    entries: frozenset[str] = frozenset()
    targets: bool = False
    of_target: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    given_elements: tuple[ElementEntry, ...] = ()
    late: bool = False

    def with_target(self) -> "Scope":
        """Return the scope inside of a target."""
        return replace(self, target=True)

    def of_path(self) -> "Scope":
        """Return the scope of the path of a variable."""
        return self.with_target() if self.targets else self

    def with_element(self) -> "Scope":
        """Return the scope inside of one more foreach."""
        names = {entry.name for entry in self.given_elements}
        return replace(self, elements=self.elements + 1, given=self.given | names)

    def with_entry(self, name: str, *, of_target: bool = False) -> "Scope":
        """Return the scope after a context entry, which reads the target or does not."""
        found = self.of_target | {name} if of_target else self.of_target - {name}
        return replace(self, entries=self.entries | {name}, of_target=found)

    @property
    def names(self) -> frozenset[str]:
        """Return all root names that have a value here."""
        found = REQUEST | self.entries
        found = found | _TARGET if self.target else found - self.of_target
        found |= self.given
        if self.elements:
            found |= {"element", "elementIndex"}
            found |= {f"element{depth}" for depth in range(self.elements)}
            found |= {f"elementIndex{depth}" for depth in range(self.elements)}
        return found


def checked_template(
    document: Any,
    location: str,
    scope: Scope,
    *,
    mirrors: bool = False,
    within: Sequence[str] = (),
) -> Template:
    """Return a compiled document that uses only names in its scope.

    Args:
        scope: The names that are known where it is rendered.
        mirrors: The document has the shape of the target, so that it may use ``{{ @ }}``.
        within: As of `compile_template`.

    Raises:
        InvalidPolicy: An expression is wrong, or uses an unknown name.
    """
    check = partial(check_expression, scope=scope)
    at = () if mirrors else None
    return compile_template(document, location=location, at=at, within=within, check=check)


def checked_conditions(raw: Any, location: str, scope: Scope) -> Conditions | None:
    """Return compiled conditions, which use only names in their scope; None for null.

    Raises:
        InvalidPolicy: They are malformed, or use an unknown name.
    """
    if raw is None:
        return None
    check = partial(check_expression, scope=scope)
    return compile_conditions(raw, location=location, check=check)


def check_expression(expression: Expression, location: str, scope: Scope) -> None:
    """Refuse wrong calls, and names that will never have a value.

    As in Kyverno, an expression that calls a function may use unknown names, about which lint
    warns. Targets and elements must still be in scope.

    Raises:
        InvalidPolicy: With the expression and the names that may be used instead.
    """
    with ErrorList() as errors:
        for fault in () if scope.late else expression.faults:
            errors.add(InvalidPolicy(location, fault))
        # Some authors write the empty field "" where they mean the empty text ''.
        for name in sorted(expression.roots - scope.names - {""}):
            bound_later = name in _TARGET or name in scope.of_target or name.startswith("element")
            if expression.functions and not bound_later:
                continue
            errors.add(InvalidPolicy(location, _reason(name, expression.source, scope)))


def _reason(name: str, source: str, scope: Scope) -> str:
    if name in _TARGET or name in scope.of_target:
        what = name if name in _TARGET else f"{name}, which reads the target"
        return (
            f"variable {{{{ {source} }}}} uses {what}, but no target is known yet here; target.*"
            " can be used in the patch and in a target's preconditions"
        )
    if name.startswith("element"):
        return f"variable {{{{ {source} }}}}: {name} is only present inside of foreach"
    known = ", ".join(sorted(scope.entries)) or "none here"
    return (
        f"variable {{{{ {source} }}}}: {name} is not defined; use request.*, target.*, "
        f"serviceAccountName, serviceAccountNamespace, images or a context entry ({known})"
    )
