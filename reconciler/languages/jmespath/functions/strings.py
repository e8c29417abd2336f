"""Functions on strings."""

from collections.abc import Mapping

from reconciler.engine.values.gotext import lower, upper
from reconciler.engine.values.wildcard import matches
from reconciler.languages.jmespath.functions.signature import (
    NUMBER,
    TEXT,
    TEXT_OR_NUMBER,
    Function,
    Refused,
    extension,
)
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import as_text

_PACE = 16
"""Processing a character on its own takes as long as copying this many; and this many pairs of
characters are compared in the time of copying one."""
_SEGMENT = 96
"""A part of a pattern between two stars takes as long as copying this many characters."""

_BOOLEANS = {"true": True, "false": False}


def _starts_with(_run: Run, text: str, prefix: str) -> bool:
    return text.startswith(prefix)


def _ends_with(_run: Run, text: str, suffix: str) -> bool:
    return text.endswith(suffix)


def _join(run: Run, glue: str, texts: list[str]) -> str:
    run.spend(len(texts))
    run.write(sum(map(len, texts)) + len(glue) * len(texts))
    return glue.join(texts)


def _equal_fold(run: Run, left: str, right: str) -> bool:
    if left.isascii() and right.isascii():
        return left.lower() == right.lower()
    run.read(len(left) * _PACE)
    return len(left) == len(right) and all(
        one == other or _folded(one) == _folded(other)
        for one, other in zip(left, right, strict=True)
    )


def _folded(character: str) -> str:
    """Fold one character to one character; `casefold` expands some to two."""
    folded = character.casefold()
    return folded if len(folded) == 1 else character.lower()


def _to_upper(run: Run, text: str) -> str:
    if not text.isascii():
        run.read(len(text) * _PACE)
    return upper(text)


def _to_lower(run: Run, text: str) -> str:
    if not text.isascii():
        run.read(len(text) * _PACE)
    return lower(text)


def _replace(run: Run, text: str, old: str, new: str, count: float) -> str:
    # A fraction is truncated, also that of -0.5; a count that is too large means all.
    return _replaced(run, text, old, new, int(min(count, len(text) + 1)))


def _replace_all(run: Run, text: str, old: str, new: str) -> str:
    return _replaced(run, text, old, new, -1)


def _replaced(run: Run, text: str, old: str, new: str, times: int) -> str:
    found = text.count(old)
    count = found if times < 0 else min(times, found)
    run.write(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def _trim(run: Run, text: str, characters: str) -> str:
    run.read(len(text) * len(characters) // _PACE)
    return text.strip(characters)


def _split(run: Run, text: str, separator: str) -> list[str]:
    run.spend(text.count(separator) + 1)
    return text.split(separator) if separator else list(text)


def _truncate(_run: Run, text: str, length: float) -> str:
    return text[: max(0, int(min(length, len(text))))]


def _to_boolean(_run: Run, text: str) -> bool:
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise Refused("lowercase argument must be 'true' or 'false'")
    return found


def _pattern_match(run: Run, pattern: str, subject: str | float) -> bool:
    text = as_text(subject, run)
    run.read((1 + pattern.count("*")) * _SEGMENT + len(pattern) * (4 + len(text) // _PACE))
    return matches(pattern, text)


FUNCTIONS: Mapping[str, Function] = {
    "compare": extension(lambda _run, left, right: (left > right) - (left < right), TEXT, TEXT),
    "ends_with": Function(call=_ends_with, takes=(TEXT, TEXT)),
    "equal_fold": extension(_equal_fold, TEXT, TEXT),
    "join": Function(call=_join, takes=(TEXT, ("array[string]",))),
    "pattern_match": extension(_pattern_match, TEXT, TEXT_OR_NUMBER),
    "replace": extension(_replace, TEXT, TEXT, TEXT, NUMBER),
    "replace_all": extension(_replace_all, TEXT, TEXT, TEXT),
    "split": extension(_split, TEXT, TEXT),
    "starts_with": Function(call=_starts_with, takes=(TEXT, TEXT)),
    "to_boolean": extension(_to_boolean, TEXT),
    "to_lower": extension(_to_lower, TEXT),
    "to_upper": extension(_to_upper, TEXT),
    "trim": extension(_trim, TEXT, TEXT),
    "trim_prefix": extension(lambda _run, text, prefix: text.removeprefix(prefix), TEXT, TEXT),
    "truncate": extension(_truncate, TEXT, NUMBER),
}
