"""Names that nothing has, in expressions that may name what they like: a misspelt variable."""

from collections.abc import Iterator

from reconciler.dialects.finding import Finding, Level
from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.program import Program
from reconciler.languages.jmespath import Expression

_KNOWN = frozenset(
    {"", "@", "images", "request", "serviceAccountName", "serviceAccountNamespace", "target"}
)


def unknown_names(program: Program) -> Iterator[Finding]:
    """Yield the names that are neither variables nor context entries of a rule."""
    entries = {entry.name for _, found in parts_of(program).entry_lists() for entry in found}
    known = _KNOWN | entries
    for expression, place in _placed(program):
        for name in sorted(expression.roots - known):
            if not name.startswith("element"):
                yield Finding(
                    level=Level.WARNING,
                    code="unknown-name",
                    location=place,
                    text=f"variable {{{{ {expression.source} }}}}: nothing is called {name}, so it"
                    " never has a value",
                    cure=f"declare a context entry {name}, or correct the name",
                )


def _placed(program: Program) -> Iterator[tuple[Expression, str]]:
    for reader in parts_of(program).readers():
        if isinstance(reader, Template):
            yield from reader.placed()
        else:
            yield reader, program.origin.location
