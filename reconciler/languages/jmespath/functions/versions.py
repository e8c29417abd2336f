"""Comparison of semantic versions with ranges.

A range consists of comparisons such as ``>=1.2.0``, which must all hold if spaces separate them,
and of alternatives separated by ``||``. An ``x`` is any number: ``1.x``, ``1.2.x``, ``1.x.x``.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from reconciler.engine.values.scalars import SemverKey, parse_semver
from reconciler.languages.jmespath.functions.signature import TEXT, Function, Refused, extension
from reconciler.languages.jmespath.limits import Run

_ALTERNATIVES = re.compile(r"\s*\|\|\s*")
# The reference drops a word of one character that is not a number, as in 1.0.0 - 2.0.0.
_COMPARISON = re.compile(r"(?:-\s+)?(==|=|!=|!|>=|>|<=|<|)\s*([0-9][^\s|]*)(?:\s+|\Z)")
_WILD = re.compile(r"(0|[1-9][0-9]{0,19})(?:\.(0|[1-9][0-9]{0,19}))?\.x(?:\.x)?")
_NONE: SemverKey = (0, 0, 0, 1, ())
_LONGEST = 4096
_PACE = 16  # a character of a range takes as long as copying this many

_Holds = Callable[[SemverKey], bool]


def _semver_compare(run: Run, version: str, wanted: str) -> bool:
    if max(len(version), len(wanted)) > _LONGEST:
        raise Refused(f"an argument is longer than {_LONGEST} characters")
    run.read(len(wanted) * _PACE)
    # A text that is not a version counts as the smallest one, as in the reference.
    found = parse_semver(version) or _NONE
    alternatives = [list(_comparisons(part)) for part in _ALTERNATIVES.split(wanted.strip(" "))]
    return any(all(holds(found) for holds in part) for part in alternatives)


def _comparisons(text: str) -> Iterator[_Holds]:
    position = 0
    while position < len(text) or not text:
        found = _COMPARISON.match(text, position)
        if found is None:
            raise Refused("argument #2 is not a range of versions, as >=1.2.0 <2.0.0 || 3.x")
        operator, version = found.groups()
        yield _comparison(operator, *_bounds(version))
        position = found.end()


def _bounds(version: str) -> tuple[SemverKey, SemverKey | None]:
    """Return the version; for one with an ``x``, the first that matches and the first beyond."""
    found = _WILD.fullmatch(version)
    if found is not None:
        major, minor = int(found[1]), found[2]
        if minor is None:
            return (major, 0, 0, 1, ()), (major + 1, 0, 0, 1, ())
        if not version.endswith(".x.x"):
            return (major, int(minor), 0, 1, ()), (major, int(minor) + 1, 0, 1, ())
    exact = parse_semver(version)
    if exact is None:
        raise Refused("argument #2 holds something that is not a version")
    return exact, None


def _comparison(operator: str, first: SemverKey, beyond: SemverKey | None) -> _Holds:
    match operator:
        case "" | "=" | "==":
            return lambda v: v == first if beyond is None else first <= v < beyond
        case "!" | "!=":
            return lambda v: v != first if beyond is None else not first <= v < beyond
        case ">":
            return lambda v: v > first if beyond is None else v >= beyond
        case ">=":
            return lambda v: v >= first
        case "<":
            return lambda v: v < first
        case _:
            return lambda v: v <= first if beyond is None else v < beyond


FUNCTIONS: Mapping[str, Function] = {"semver_compare": extension(_semver_compare, TEXT, TEXT)}
