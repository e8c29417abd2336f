"""Functions with regular expressions, in the syntax and with the guarantees of RE2.

Templates of replacements are those of Go: ``$1``, ``${1}``, ``${name}``, ``$$``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from reconciler.engine.values.regexes import (
    Match,
    compile_regex,
    is_found,
    matches,
    split_replacement,
)
from reconciler.languages.jmespath.functions.signature import (
    TEXT,
    TEXT_OR_NUMBER,
    Function,
    Refused,
    extension,
)
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import as_text

_CALL = 1024  # characters that a call counts as, in addition to those for each instruction
_PIECE = 32  # characters that a part of a replacement counts as
_NOT_TEXT = "argument #2 is not well-formed text"


def _regex_match(run: Run, pattern: str, subject: str | float) -> bool:
    regex, text = _compile(run, pattern), as_text(subject, run)
    try:
        return is_found(regex, text, run.read)
    except UnicodeError:
        raise Refused(_NOT_TEXT) from None


def _regex_replace_all(
    run: Run, pattern: str, subject: str | float, replacement: str | float
) -> str:
    regex = _compile(run, pattern)
    pieces = split_replacement(as_text(replacement, run), regex.groupindex, regex.groups)

    def expand(match: Match) -> str:
        run.read(len(pieces) * _PIECE)
        return "".join(
            piece if isinstance(piece, str) else match.groups[piece] or "" for piece in pieces
        )

    return _replace(run, regex, as_text(subject, run), expand)


def _regex_replace_all_literal(
    run: Run, pattern: str, subject: str | float, replacement: str | float
) -> str:
    regex, text = _compile(run, pattern), as_text(replacement, run)
    return _replace(run, regex, as_text(subject, run), lambda _match: text)


def _compile(run: Run, pattern: str) -> Any:
    try:
        regex = compile_regex(pattern)
    except ValueError as error:
        raise Refused(f"argument #1 is {error}") from None
    run.read(_CALL + 8 * regex.programsize)
    return regex


def _replace(run: Run, regex: Any, text: str, replacement: Callable[[Match], str]) -> str:
    pieces: list[str] = []
    position, length = 0, len(text)
    try:
        for match in matches(regex, text, run.read):
            new = replacement(match)
            length += len(new) - (match.end - match.start)
            run.check_text(length - (len(text) - match.end))
            pieces += [text[position : match.start], new]
            position = match.end
    except UnicodeError:
        raise Refused(_NOT_TEXT) from None
    run.write(length)
    return "".join([*pieces, text[position:]])


FUNCTIONS: Mapping[str, Function] = {
    "regex_match": extension(_regex_match, TEXT, TEXT_OR_NUMBER),
    "regex_replace_all": extension(_regex_replace_all, TEXT, TEXT_OR_NUMBER, TEXT_OR_NUMBER),
    "regex_replace_all_literal": extension(
        _regex_replace_all_literal, TEXT, TEXT_OR_NUMBER, TEXT_OR_NUMBER
    ),
}
