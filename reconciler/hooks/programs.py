"""Check of jq programs before they are compiled, and their adaptation from gojq to libjq.

The original evaluates with gojq, this project with libjq (`reconciler/isolation`). Where the two
differ, a program is refused here, adapted to behave as in gojq, or the design note lists the
difference. Refused are functions that could read anything but the input, functions that gojq does
not have, and patterns that RE2 does not support.
"""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import re2

from reconciler.errors import InvalidPolicy

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|\#[^\n]*)
    | (?P<quote>")
    | (?P<format>@[A-Za-z0-9_]+)
    | (?P<variable>\$\s*[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*|\$(?=\s*__))
    | (?P<field>\.[A-Za-z_][A-Za-z0-9_]*)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    | (?P<mark>\?//=?|[-+*/%]=|//=?|\|=|[=!<>]=|\.\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_MODULES: Final = frozenset({"import", "include", "modulemeta"})
_INPUTS: Final = frozenset({"input", "inputs"})
# gojq omits these on purpose, or has them in its command only.
_ABSENT: Final = frozenset(
    {
        "debug",
        "get_jq_origin",
        "get_prog_origin",
        "get_search_list",
        "have_decnum",
        "have_literal_numbers",
        "input_filename",
        "input_line_number",
        "keys_unsorted",
        "lgamma_r",
        "stderr",
    }
)
_FAILS: Final = "halt_error"
"""libjq treats it as a regular end, without an error."""
_ABSENT_VARIABLES: Final = frozenset({"$__loc__", "$__prog_args"})
_PATTERNS: Final = frozenset({"test", "match", "capture", "scan", "splits", "sub", "gsub"})
_NAMED_GROUP: Final = re.compile(r"\(\?<(?![=!])")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LONGEST: Final = 64 * 1024

# These can return numbers that JSON cannot hold. libjq writes them as null; gojq fails.
_NONFINITE: Final = frozenset(
    {
        *("nan", "infinite", "tonumber", "fromjson", "pow", "sqrt", "fmod", "ldexp"),
        *("acos", "acosh", "asin", "asinh", "atan2", "atanh", "tan", "y0", "y1", "scalb"),
        *("exp", "exp10", "exp2", "expm1", "log", "log10", "log1p", "log2", "logb"),
        *("gamma", "lgamma", "lgamma_r", "tgamma", "scalbln"),
    }
)
_GUARD: Final = (
    ' | if any(..; type == "number" and (isnan or isinfinite))'
    ' then error("the result has a number that JSON cannot hold") else . end'
)
# gojq keeps the keys of every object sorted. Here only the input is sorted, so the functions that
# list the keys of an object that the program made have to sort them.
_PRELUDE: Final = (
    'def _ordered: if type == "object"'
    " then . as $all | reduce keys[] as $key ({}; .[$key] = ($all[$key] | _ordered))"
    ' elif type == "array" then map(_ordered) else . end;'
    " def _tojson: tojson; def tojson: _ordered | _tojson;"
    ' def tostring: if type == "string" then . else tojson end;'
    " def to_entries: [keys[] as $key | {key: $key, value: .[$key]}];"
    " def with_entries(f): to_entries | map(f) | from_entries; "
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    key: bool = False


def check_program(text: str, *, location: str) -> None:
    """Refuse functions and patterns that no program may use; libjq checks the syntax.

    Raises:
        InvalidPolicy: Names what is refused, and what to do instead.
    """
    if len(text) > _LONGEST:
        raise InvalidPolicy(location, f"is longer than {_LONGEST} characters")
    tokens = list(_tokens(text, location))
    if not tokens:
        raise InvalidPolicy(location, "is an empty program, write . for the whole input")
    own = {
        following.text
        for token, following in pairwise(tokens)
        if token.text == "def" and following.kind == "name"
    } | set(_parameters(tokens))
    for index, token in enumerate(tokens):
        if token.kind == "variable":
            _check_variable(token.text, location)
        elif token.kind == "name" and not token.key:
            _check_name(token.text, own, location)
            if token.text in _PATTERNS:
                _check_pattern(tokens[index + 1 :], location)


def _check_variable(name: str, location: str) -> None:
    if "".join(name.split()) in _ABSENT_VARIABLES or name == "$":
        raise InvalidPolicy(location, f"{name} is not defined: a program can only read its input")


def _check_name(name: str, own: AbstractSet[str], location: str) -> None:
    if name in _MODULES:
        reason = f"{name}: modules are not supported: define the function with def"
        raise InvalidPolicy(location, reason)
    if name in own:
        return
    if name == _FAILS:
        raise InvalidPolicy(location, f"{name} is not allowed: use error")
    if name in _INPUTS:
        raise InvalidPolicy(
            location, f"{name} is not allowed: a program has one input, which is ."
        )
    if name in _ABSENT:
        raise InvalidPolicy(location, f"{name} is not defined: leave it out")


def _check_pattern(following: Sequence[_Token], location: str) -> None:
    """Check a literal pattern; computed patterns are not checked."""
    if len(following) < 3 or following[0].text != "(" or following[1].kind != "text":  # noqa: PLR2004
        return
    if following[2].text not in {")", ";"}:
        return
    pattern = following[1].text
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(_NAMED_GROUP.sub("(?P<", pattern), options)
    except re2.error as error:
        reason = (
            f"{pattern!r} is not a supported regular expression ({error}):"
            " RE2 has neither look-around nor backreferences"
        )
        raise InvalidPolicy(location, reason) from error


def _parameters(tokens: Sequence[_Token]) -> Iterator[str]:
    """Yield the names of the closure parameters of the program's functions."""
    for index, token in enumerate(tokens):
        if token.text != "def" or token.kind != "name":
            continue
        if index + 2 >= len(tokens) or tokens[index + 2].text != "(":
            continue
        for item in tokens[index + 3 :]:
            if item.text == ")":
                break
            if item.kind == "name":
                yield item.text


def _tokens(text: str, location: str) -> Iterator[_Token]:
    """Yield the tokens of a program, including those of interpolations in its strings.

    A string without interpolation is one token with its value; otherwise its texts are omitted.
    """
    place, last = 0, ""
    open_marks: list[str] = []
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or found.lastgroup is None:
            return
        kind, word, place = found.lastgroup, found[0], found.end()
        if kind == "space":
            continue
        if kind == "quote" or (word == ")" and open_marks and open_marks[-1] == '"'):
            if word == ")":
                open_marks.pop()
                yield _Token("mark", ")")
            value, place, ended = _text(text, place, location)
            if ended:
                yield _Token("text" if kind == "quote" else "end", value)
            else:
                open_marks.append('"')
                yield _Token("mark", "(")
            last = '"'
            continue
        if kind == "mark":
            _follow(word, open_marks)
        key = kind == "name" and bool(open_marks) and open_marks[-1] == "{" and last in {"{", ","}
        yield _Token(kind, word, key)
        last = word


def _follow(mark: str, open_marks: list[str]) -> None:
    if mark in {"{", "[", "("}:
        open_marks.append(mark)
    elif mark in {"}", "]", ")"} and open_marks:
        open_marks.pop()


def _text(text: str, place: int, location: str) -> tuple[str, int, bool]:
    """Scan a string; return its value, the position after it, and whether the string ended."""
    said: list[str] = []
    while place < len(text):
        character = text[place]
        place += 1
        if character == '"':
            return "".join(said), place, True
        if character != "\\":
            said.append(character)
            continue
        escaped, place = text[place : place + 1], place + 1
        if escaped == "(":
            return "".join(said), place, False
        if escaped == "u":
            digits, place = text[place : place + 4], place + 4
            said.append(_character(digits))
        else:
            said.append(_ESCAPES.get(escaped, escaped))
    raise InvalidPolicy(location, 'a string is not terminated: the closing " is missing')


def _character(digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except ValueError:
        return "\ufffd"


def compilable(text: str) -> str:
    """Return the adapted program that libjq compiles in place of a checked one."""
    names = {token.text for token in _tokens(text, "") if token.kind == "name"}
    guard = _GUARD if names & _NONFINITE else ""
    return f"{_PRELUDE}(\n{text}\n){guard}"
