"""Which variables a part of a rule may use."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from reconciler.dialects.kyverno.entries import ElementEntry
from reconciler.dialects.kyverno.template import Template, compile_template
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.jmespath import Expression

_REQUEST = frozenset({"request", "serviceAccountName", "serviceAccountNamespace", "images"})
_TARGET = frozenset({"target", "@"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is known where an expression stands.

    Attributes:
        target: A target is bound.
        elements: How many foreach are around.
        entries: Context entries that were declared before.
        given: Names whose values somebody gives at the desk, in place of what would be read.
        given_elements: The same inside of a foreach.
        late: What can never be evaluated is no error of the policy, as in the reference: it fails
            when it is evaluated, and lint warns of it.
    """

    target: bool = False
    elements: int = 0
    entries: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    given_elements: tuple[ElementEntry, ...] = ()
    late: bool = False

    def with_target(self) -> "Scope":
        """Return the scope inside of a target."""
        return replace(self, target=True)

    def with_element(self) -> "Scope":
        """Return the scope inside of one more foreach."""
        names = {entry.name for entry in self.given_elements}
        return replace(self, elements=self.elements + 1, given=self.given | names)

    def with_entry(self, name: str) -> "Scope":
        """Return the scope after a context entry."""
        return replace(self, entries=self.entries | {name})

    @property
    def names(self) -> frozenset[str]:
        """Return all root names that have a value here."""
        found = _REQUEST | self.entries | self.given
        if self.target:
            found |= _TARGET
        if self.elements:
            found |= {"element", "elementIndex"}
            found |= {f"element{depth}" for depth in range(self.elements)}
            found |= {f"elementIndex{depth}" for depth in range(self.elements)}
        return found


TRIGGER = Scope()


def checked_template(
    document: Any, location: str, scope: Scope, *, mirrors: bool = False
) -> Template:
    """Return a compiled document that uses only what is known in its scope.

    Args:
        document: The JSON tree.
        location: Of the document in the policy.
        scope: What is known where it is rendered.
        mirrors: The document has the shape of the target, so that ``{{ @ }}`` means something.

    Raises:
        InvalidPolicy: An expression is wrong, or names something unknown.
    """
    check = partial(check_expression, scope=scope)
    return compile_template(document, location=location, at=() if mirrors else None, check=check)


def check_expression(expression: Expression, location: str, scope: Scope) -> None:
    """Refuse wrong calls, and names that will never have a value.

    An expression that calls a function may name what it likes, as in the reference: lint warns of
    it. Targets and elements have to be there all the same.

    Raises:
        InvalidPolicy: With the expression and what may be used instead.
    """
    with ErrorList() as errors:
        for fault in () if scope.late else expression.faults:
            errors.add(InvalidPolicy(location, fault))
        # Some write the empty field "" where they mean the empty text ''.
        for name in sorted(expression.roots - scope.names - {""}):
            if expression.functions and not (name in _TARGET or name.startswith("element")):
                continue
            errors.add(InvalidPolicy(location, _reason(name, expression.source, scope)))


def _reason(name: str, source: str, scope: Scope) -> str:
    if name in _TARGET:
        return (
            f"variable {{{{ {source} }}}} uses {name}, but no target is known yet here; target.*"
            " can be used in the patch and in a target's preconditions"
        )
    if name.startswith("element"):
        return f"variable {{{{ {source} }}}}: {name} is only present inside of foreach"
    known = ", ".join(sorted(scope.entries)) or "none here"
    return (
        f"variable {{{{ {source} }}}}: nothing is called {name}; use request.*, target.*, "
        f"serviceAccountName, serviceAccountNamespace, images or a context entry ({known})"
    )
