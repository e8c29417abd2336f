"""Findings on variables that are misspelt, not closed, or have a call that cannot work."""

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.dialects.finding import Finding, warning
from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.kyverno.template import Template, find_unclosed
from reconciler.dialects.kyverno.variables import REQUEST
from reconciler.engine.program import Program
from reconciler.languages.jmespath import Expression

_WITH_VARIABLES = ("context", "preconditions", "mutate")


def unclosed_variables(rule: Mapping[str, Any], location: str) -> Iterator[Finding]:
    """Yield the texts of a rule with a variable that is not closed."""
    for path in find_unclosed({field: rule.get(field) for field in _WITH_VARIABLES}):
        yield warning(
            "unclosed-variable",
            f"{location}.{path}",
            "{{ has no closing }}, so it is plain text",
            r"close it with }}, or write \{{ for plain braces",
        )


def unknown_names(program: Program) -> Iterator[Finding]:
    """Yield the names in expressions that are neither variables nor context entries."""
    entries = {entry.name for _, found in parts_of(program).entry_lists() for entry in found}
    known = REQUEST | {"", "@", "target"} | entries
    for expression, place in _placed(program):
        for name in sorted(expression.roots - known):
            if not name.startswith("element"):
                yield warning(
                    "unknown-name",
                    place,
                    f"variable {{{{ {expression.source} }}}}: {name} is not defined, so it"
                    " never has a value",
                    f"declare a context entry {name}, or correct the name",
                )


def wrong_calls(program: Program) -> Iterator[Finding]:
    """Yield the calls in expressions that always fail, but do not invalidate the policy."""
    for expression, place in _placed(program):
        for fault in expression.faults:
            yield warning(
                "wrong-call",
                place,
                f"{fault}; every request for which this is evaluated will fail",
                "correct the call",
            )


def _placed(program: Program) -> Iterator[tuple[Expression, str]]:
    parts = parts_of(program)
    lists = {id(edit.elements): edit.location for edit in parts.blocks()}
    for reader in parts.readers():
        if isinstance(reader, Template):
            yield from reader.placed()
        elif id(reader) in lists:
            yield reader, f"{lists[id(reader)]}.list"
        else:
            yield reader, program.origin.location
