"""Semantic versions and ranges of them, as in Masterminds/semver 3.1."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from typing_extensions import override

from reconciler.engine.values.gonumbers import parse_uint64
from reconciler.engine.values.regexes import compile_regex
from reconciler.languages.gotemplate.functions.runes import runes
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import (
    STRING,
    Failure,
    Family,
    Function,
    family,
    function,
    plain,
)
from reconciler.languages.gotemplate.values import Int, Opaque, Uint

_LONGEST: Final = 4096
_PACE: Final = 64
"""Parsing a character of a range costs as much as copying this many characters."""
_PRE: Final = r"(-([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?"
_META: Final = r"(\+([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?"
_VERSION: Final = re.compile(rf"v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?{_PRE}{_META}")
_PART: Final = r"[0-9|xX*]+"
_RANGE_VERSION: Final = rf"v?({_PART})(\.{_PART})?(\.{_PART})?{_PRE}{_META}"
_OPERATOR: Final = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^"
# RE2, because digits can be cut into versions in exponentially many ways.
_CONSTRAINT: Final = compile_regex(rf"\s*({_OPERATOR})\s*({_RANGE_VERSION})\s*")
_HYPHEN: Final = compile_regex(rf"\s*({_RANGE_VERSION})\s+-\s+({_RANGE_VERSION})\s*")
_FOUND: Final = compile_regex(rf"({_OPERATOR})\s*({_RANGE_VERSION})")
_VALID: Final = compile_regex(rf"(?:\s*(?:{_OPERATOR})\s*(?:{_RANGE_VERSION})\s*,?)+")
_IDENTIFIERS: Final = re.compile(r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
_POINTER: Final = "*semver.Version"
_WILD: Final = frozenset({"x", "X", "*", ""})


@dataclass(frozen=True, slots=True)
class Version(Opaque):
    """A version: a pointer where it was parsed, a struct where it was derived from another."""

    major: int
    minor: int
    patch: int
    pre: str = ""
    metadata: str = ""
    original: str = ""
    is_pointer: bool = True

    @property
    @override
    def type_name(self) -> str:
        return _POINTER if self.is_pointer else _POINTER[1:]

    @property
    @override
    def kind(self) -> str:
        return "ptr" if self.is_pointer else "struct"

    @override
    def text(self) -> str:
        pre = f"-{self.pre}" if self.pre else ""
        metadata = f"+{self.metadata}" if self.metadata else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{metadata}"

    @override
    def json(self) -> str:
        return self.text()

    @classmethod
    @override
    def methods(cls) -> Mapping[str, Function]:
        return _METHODS

    def compare(self, other: "Version") -> int:
        """Return -1, 0 or 1; metadata does not count."""
        one = (self.major, self.minor, self.patch)
        another = (other.major, other.minor, other.patch)
        if one != another:
            return 1 if one > another else -1
        if not self.pre or not other.pre:
            return bool(other.pre) - bool(self.pre)
        return _compare_pre(self.pre, other.pre)


def _compare_pre(one: str, other: str) -> int:
    left, right = one.split("."), other.split(".")
    for index in range(max(len(left), len(right))):
        parts = ["" if index >= len(each) else each[index] for each in (left, right)]
        if parts[0] != parts[1]:
            return _compare_part(parts[0], parts[1])
    return 0


def _compare_part(one: str, other: str) -> int:
    """Compare identifiers that differ: a missing one is first, numbers precede texts."""
    if not one or not other:
        return 1 if one else -1
    numbers = parse_uint64(one, 10), parse_uint64(other, 10)
    if numbers[0] is None and numbers[1] is None:
        return 1 if one > other else -1
    if numbers[0] is None or numbers[1] is None:
        return 1 if numbers[0] is None else -1
    return 1 if numbers[0] > numbers[1] else -1


def parse_version(text: str) -> Version:
    """Read a version; minor and patch may be missing.

    Raises:
        Failure: The text is no version.
    """
    found = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise Failure("a version cannot be read")
    numbers = [parse_uint64((part or ".0").lstrip("."), 10) for part in found.groups()[:3]]
    pre, metadata = found[5] or "", found[7] or ""
    major, minor, patch = numbers
    if _has_leading_zero(pre) or major is None or minor is None or patch is None:
        raise Failure("a version cannot be read")
    return Version(major, minor, patch, pre, metadata, text)


def _has_leading_zero(pre: str) -> bool:
    return any(len(part) > 1 and part[0] == "0" and part.isdigit() for part in pre.split("."))


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A comparison with a version whose parts may be wildcards."""

    version: Version
    operator: str
    open_minor: bool
    open_patch: bool
    is_open: bool

    def holds(self, version: Version) -> bool:
        if version.pre and not self.version.pre and self.operator != "!=":
            return False
        return _OPERATORS[self.operator](version, self)


def _constraint(text: str) -> _Constraint:
    found = _CONSTRAINT.fullmatch(text)
    if found is None:
        raise Failure("a range of versions cannot be read")
    operator, version = found[1], found[2]
    major, minor, patch = found[3], (found[4] or "").lstrip("."), (found[5] or "").lstrip(".")
    pre = found[6] or ""
    open_minor = open_patch = False
    is_open = True
    if major in _WILD:
        version = "0.0.0"
    elif minor in _WILD:
        open_minor, version = True, f"{major}.0.0{pre}"
    elif patch in _WILD:
        open_patch, version = True, f"{major}.{minor}.0{pre}"
    else:
        is_open = False
    return _Constraint(parse_version(version), operator, open_minor, open_patch, is_open)


def _not_equal(version: Version, range_: _Constraint) -> bool:
    wanted = range_.version
    if not range_.is_open:
        return version.compare(wanted) != 0
    if version.pre and not wanted.pre:
        return False
    if wanted.major != version.major:
        return True
    if range_.open_minor:
        return False
    if wanted.minor != version.minor:
        return True
    if wanted.patch != version.patch and not range_.open_patch:
        return True
    if range_.open_patch:
        return version.pre != wanted.pre
    return version.compare(wanted) != 0


def _greater(version: Version, range_: _Constraint) -> bool:
    wanted = range_.version
    if not range_.is_open or version.major != wanted.major:
        return version.compare(wanted) > 0
    if range_.open_minor:
        return False
    if range_.open_patch:
        return version.minor > wanted.minor
    return version.compare(wanted) > 0


def _less(version: Version, range_: _Constraint) -> bool:
    return version.compare(range_.version) < 0


def _at_least(version: Version, range_: _Constraint) -> bool:
    return version.compare(range_.version) >= 0


def _at_most(version: Version, range_: _Constraint) -> bool:
    wanted = range_.version
    if not range_.is_open:
        return version.compare(wanted) <= 0
    if version.major != wanted.major:
        return version.major < wanted.major
    return version.minor <= wanted.minor or range_.open_minor


def _tilde(version: Version, range_: _Constraint) -> bool:
    wanted = range_.version
    if version.compare(wanted) < 0:
        return False
    zero = not (wanted.major or wanted.minor or wanted.patch)
    if zero and not range_.open_minor and not range_.open_patch:
        return True
    same_minor = version.minor == wanted.minor or range_.open_minor
    return version.major == wanted.major and same_minor


def _equal(version: Version, range_: _Constraint) -> bool:
    return _tilde(version, range_) if range_.is_open else version.compare(range_.version) == 0


def _caret(version: Version, range_: _Constraint) -> bool:
    wanted = range_.version
    if version.compare(wanted) < 0:
        return False
    if wanted.major > 0 or range_.open_minor:
        return version.major == wanted.major
    if version.major > 0:
        return False
    if wanted.minor > 0 or range_.open_patch:
        return version.minor == wanted.minor
    return version.patch == wanted.patch


_OPERATORS: Final[Mapping[str, Callable[[Version, _Constraint], bool]]] = {
    **dict.fromkeys(("", "="), _equal),
    "!=": _not_equal,
    ">": _greater,
    "<": _less,
    **dict.fromkeys((">=", "=>"), _at_least),
    **dict.fromkeys(("<=", "=<"), _at_most),
    **dict.fromkeys(("~", "~>"), _tilde),
    "^": _caret,
}


def _semver_compare(run: Run, range_: str, version: str) -> bool:
    if len(range_) > _LONGEST:
        raise Failure(f"a range of versions is longer than {_LONGEST} characters")
    run.spend(len(range_) * _PACE)
    alternatives = [_constraints(part) for part in _ranges(runes(range_)).split("||")]
    found = parse_version(version)
    return any(all(each.holds(found) for each in part) for part in alternatives)


def _ranges(text: str) -> str:
    for found in _HYPHEN.finditer(text):
        text = text.replace(found[0], f">= {found[1]}, <= {found[9]}", 1)
    return text


def _constraints(text: str) -> list[_Constraint]:
    if not _VALID.fullmatch(text):
        raise Failure("a range of versions cannot be read")
    return [_constraint(found[0]) for found in _FOUND.finditer(text)]


def _changed(version: Version, **parts: Any) -> Version:
    changed = replace(version, is_pointer=False, **parts)
    prefix = "v" if version.original.startswith("v") else ""
    return replace(changed, original=prefix + changed.text())


def _next_patch(version: Version) -> Version:
    return _changed(version, pre="", metadata="", patch=version.patch + (not version.pre))


def _next_minor(version: Version) -> Version:
    return _changed(version, pre="", metadata="", patch=0, minor=version.minor + 1)


def _next_major(version: Version) -> Version:
    return _changed(version, pre="", metadata="", patch=0, minor=0, major=version.major + 1)


def _with_pre(version: Version, pre: str) -> Version:
    if pre and (not _IDENTIFIERS.fullmatch(pre) or _has_leading_zero(pre)):
        raise Failure("a prerelease cannot be read")
    return _changed(version, pre=pre)


def _with_metadata(version: Version, metadata: str) -> Version:
    if metadata and not _IDENTIFIERS.fullmatch(metadata):
        raise Failure("metadata of a version cannot be read")
    return _changed(version, metadata=metadata)


def _of_pointer(call: Callable[..., Any], *parameters: str) -> Function:
    def called(version: Version, *given: Any) -> Any:
        if not version.is_pointer:
            raise Failure("a version that was derived from another has no such method")
        return call(version, *given)

    return plain(called, *parameters)


def _comparing(holds: Callable[[int], Any]) -> Function:
    return _of_pointer(lambda one, other: holds(one.compare(other)), _POINTER)


_METHODS: Final[Mapping[str, Function]] = {
    "String": plain(Version.text),
    "Original": _of_pointer(lambda version: version.original),
    "Major": plain(lambda version: Uint(version.major)),
    "Minor": plain(lambda version: Uint(version.minor)),
    "Patch": plain(lambda version: Uint(version.patch)),
    "Prerelease": plain(lambda version: version.pre),
    "Metadata": plain(lambda version: version.metadata),
    "IncPatch": plain(_next_patch),
    "IncMinor": plain(_next_minor),
    "IncMajor": plain(_next_major),
    "SetPrerelease": plain(_with_pre, STRING),
    "SetMetadata": plain(_with_metadata, STRING),
    "Compare": _comparing(Int),
    "LessThan": _comparing(lambda order: order < 0),
    "GreaterThan": _comparing(lambda order: order > 0),
    "Equal": _comparing(lambda order: order == 0),
}

FUNCTIONS: Family = family(
    {
        "semver": plain(parse_version, STRING),
        "semverCompare": function(_semver_compare, STRING, STRING),
    }
)
