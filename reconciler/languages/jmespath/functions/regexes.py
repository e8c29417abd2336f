"""Functions with regular expressions, in the syntax and with the guarantees of RE2.

Templates of replacements are those of Go: ``$1``, ``${1}``, ``${name}``, ``$$``.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from reconciler.engine.values.regexes import compile_regex, pace_of, split_replacement
from reconciler.languages.jmespath.functions.signature import (
    TEXT,
    TEXT_OR_NUMBER,
    Function,
    extension,
    refusal,
)
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import as_text

_CALL = 1024  # characters that a call counts as, in addition to those for each instruction
_SEARCH = 128  # characters that the start of a search counts as
_PIECE = 32  # characters that a part of a replacement counts as

_Match = Any
"""A match object of the library, which is untyped."""


def _regex_match(run: Run, pattern: str, subject: str | float) -> bool:
    name = "regex_match"
    found = next(_matches(run, _compile(run, pattern, name), as_text(subject, run), name), None)
    return found is not None


def _regex_replace_all(
    run: Run, pattern: str, subject: str | float, replacement: str | float
) -> str:
    name = "regex_replace_all"
    regex = _compile(run, pattern, name)
    pieces = split_replacement(as_text(replacement, run), regex.groupindex, regex.groups)

    def expand(match: _Match) -> str:
        run.read(len(pieces) * _PIECE)
        return "".join(
            piece if isinstance(piece, str) else match.group(piece) or "" for piece in pieces
        )

    return _replace(run, regex, as_text(subject, run), expand, name)


def _regex_replace_all_literal(
    run: Run, pattern: str, subject: str | float, replacement: str | float
) -> str:
    name = "regex_replace_all_literal"
    regex, text = _compile(run, pattern, name), as_text(replacement, run)
    return _replace(run, regex, as_text(subject, run), lambda _match: text, name)


def _compile(run: Run, pattern: str, name: str) -> Any:
    try:
        regex = compile_regex(pattern)
    except ValueError as error:
        raise refusal(name, f"argument #1 is {error}") from None
    run.read(_CALL + 8 * regex.programsize)
    return regex


def _matches(run: Run, regex: Any, text: str, name: str) -> Iterator[_Match]:
    """Yield the matches; each search may scan to the end of the text, whatever it finds."""
    pace = pace_of(regex)
    run.read(_SEARCH + len(text) * pace // 4)
    try:
        for match in regex.finditer(text):
            yield match
            run.read(_SEARCH + (len(text) - match.end()) * pace // 4)
    except UnicodeError:
        raise refusal(name, "argument #2 is not well-formed text") from None


def _replace(
    run: Run, regex: Any, text: str, replacement: Callable[[_Match], str], name: str
) -> str:
    pieces: list[str] = []
    position, length = 0, len(text)
    for match in _matches(run, regex, text, name):
        start, end = match.span()
        if start == end == position and start > 0:
            continue  # an empty match directly after another one does not count
        new = replacement(match)
        length += len(new) - (end - start)
        run.check_text(length - (len(text) - end))
        pieces += [text[position:start], new]
        position = end
    run.write(length)
    return "".join([*pieces, text[position:]])


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "regex_match": extension(_regex_match, TEXT, TEXT_OR_NUMBER),
        "regex_replace_all": extension(_regex_replace_all, TEXT, TEXT_OR_NUMBER, TEXT_OR_NUMBER),
        "regex_replace_all_literal": extension(
            _regex_replace_all_literal, TEXT, TEXT_OR_NUMBER, TEXT_OR_NUMBER
        ),
    }
)
