"""Regular expressions, in the syntax and with the guarantees of RE2."""

import re
from collections.abc import Callable
from typing import Final

from reconciler.engine.values.regexes import (
    Match,
    Regex,
    compile_regex,
    is_found,
    matches,
    split_replacement,
)
from reconciler.languages.gotemplate.functions.runes import runes
from reconciler.languages.gotemplate.functions.strings import strings
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import (
    INT,
    STRING,
    Failure,
    Family,
    family,
    function,
    plain,
)
from reconciler.languages.gotemplate.values import Slice

_CALL: Final = 1024
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_NAMED: Final = re.compile(r"\(\?<")
"""A named group in a syntax that RE2 accepts and Go 1.19 does not."""
_LITERAL: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)", re.DOTALL)
"""What is no group: a quoted text, an escape, or a class of characters."""


def _compiled(run: Run, pattern: str) -> Regex:
    if _NAMED.search(_LITERAL.sub("", pattern)):
        raise Failure("a regular expression cannot be read")
    try:
        regex = compile_regex(pattern)
    except ValueError as error:
        raise Failure("a regular expression cannot be read") from error
    run.spend(_CALL + 8 * regex.programsize)
    return regex


def _must_match(run: Run, pattern: str, text: str) -> bool:
    return is_found(_compiled(run, pattern), runes(text), run.spend)


def _match(run: Run, pattern: str, text: str) -> bool:
    try:
        return _must_match(run, pattern, text)
    except Failure:
        return False


def _find(run: Run, pattern: str, text: str) -> str:
    found = next(matches(_compiled(run, pattern), runes(text), run.spend), None)
    return "" if found is None else text[found.start : found.end]


def _find_all(run: Run, pattern: str, text: str, count: int) -> Slice:
    regex = _compiled(run, pattern)
    found: list[str] = []
    if count:
        for match in matches(regex, runes(text), run.spend):
            found.append(text[match.start : match.end])
            if len(found) == count:
                break
    run.grow(len(found))
    return strings(found) if found else Slice(element=STRING, nil=True)


def _split(run: Run, pattern: str, text: str, count: int) -> Slice:
    regex = _compiled(run, pattern)
    if not count:
        return Slice(element=STRING, nil=True)
    if pattern and not text:
        return strings([""])
    parts: list[str] = []
    start = end = 0
    for match in matches(regex, runes(text), run.spend):
        if count > 0 and len(parts) == count - 1:
            break
        end = match.start
        if match.end:
            parts.append(text[start:end])
        start = match.end
    if end != len(text):
        parts.append(text[start:])
    run.grow(len(parts))
    return strings(parts)


def _replace_all(run: Run, pattern: str, text: str, replacement: str) -> str:
    regex = _compiled(run, pattern)
    pieces = split_replacement(runes(replacement), regex.groupindex, regex.groups)

    def expanded(match: Match) -> str:
        run.visit(len(pieces))
        return "".join(
            piece if isinstance(piece, str) else match.groups[piece] or "" for piece in pieces
        )

    return _replaced(run, regex, text, expanded)


def _replace_all_literal(run: Run, pattern: str, text: str, replacement: str) -> str:
    return _replaced(run, _compiled(run, pattern), text, lambda _match: replacement)


def _replaced(run: Run, regex: Regex, text: str, replacement: Callable[[Match], str]) -> str:
    pieces: list[str] = []
    position, length = 0, len(text)
    for match in matches(regex, runes(text), run.spend):
        new = replacement(match)
        length += len(new)
        run.write(length)
        pieces += [text[position : match.start], new]
        position = match.end
    return "".join([*pieces, text[position:]])


FUNCTIONS: Family = family(
    {
        "regexMatch": function(_match, STRING, STRING),
        "mustRegexMatch": function(_must_match, STRING, STRING),
        "regexFind": function(_find, STRING, STRING),
        "regexFindAll": function(_find_all, STRING, STRING, INT),
        "regexReplaceAll": function(_replace_all, STRING, STRING, STRING),
        "regexReplaceAllLiteral": function(_replace_all_literal, STRING, STRING, STRING),
        "regexSplit": function(_split, STRING, STRING, INT),
        "regexQuoteMeta": plain(lambda text: _SPECIAL.sub(r"\\\g<0>", text), STRING),
    },
    mustRegexFind="regexFind",
    mustRegexFindAll="regexFindAll",
    mustRegexReplaceAll="regexReplaceAll",
    mustRegexReplaceAllLiteral="regexReplaceAllLiteral",
    mustRegexSplit="regexSplit",
)
