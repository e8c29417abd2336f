"""Wildcards: ``*`` is any run of characters, ``?`` exactly one; nothing else is special.

Text that came out of an object is data. `escape` makes its ``*`` and ``?`` literal with lone
surrogates, which neither JSON nor YAML from an API server can carry, so nobody can type them.
"""

import re
from collections.abc import Callable, Iterable

Predicate = Callable[[str], bool]

_ESCAPED = {ord("*"): "\udc2a", ord("?"): "\udc3f"}
_LITERAL = {ord(escaped): chr(plain) for plain, escaped in _ESCAPED.items()}


def has_wildcard(text: str) -> bool:
    """Tell whether an unescaped ``*`` or ``?`` stands in the text."""
    return "*" in text or "?" in text


def escape(text: str) -> str:
    """Return the text so that a pattern which contains it takes it literally."""
    return text.translate(_ESCAPED) if has_wildcard(text) else text


def literal(text: str) -> str:
    """Return escaped text as it was; other text is returned unchanged."""
    return text if text.isascii() else text.translate(_LITERAL)


def matches(pattern: str, text: str) -> bool:
    """Match the whole text, case-sensitively; both may contain escaped parts."""
    if pattern == "*":
        return True
    if has_wildcard(pattern):
        return compile_wildcard(pattern)(literal(text))
    return literal(pattern) == literal(text)


def compile_wildcard(pattern: str) -> Predicate:
    """Turn a pattern into a predicate; its time grows linearly with the text per segment."""
    if not has_wildcard(pattern):
        wanted = literal(pattern)
        return lambda text: text == wanted
    if "?" in pattern:
        return _general(pattern)
    head, *middle, tail = (literal(part) for part in pattern.split("*"))
    inner = [part for part in middle if part]
    if not inner:
        return _affixes(head, tail)
    if len(inner) == 1 and not head and not tail:
        (part,) = inner
        return lambda text: part in text
    return _general(pattern)


def compile_any(patterns: Iterable[str]) -> Predicate:
    """Turn patterns into one predicate that holds when any of them matches."""
    exact: set[str] = set()
    wild: list[Predicate] = []
    for pattern in patterns:
        if has_wildcard(pattern):
            wild.append(compile_wildcard(pattern))
        else:
            exact.add(literal(pattern))
    names = frozenset(exact)
    if not wild:
        return names.__contains__
    if len(wild) == 1 and not names:
        return wild[0]
    predicates = tuple(wild)
    return lambda text: text in names or any(holds(text) for holds in predicates)


def _affixes(head: str, tail: str) -> Predicate:
    if not tail:
        if not head:
            return lambda _text: True
        return lambda text: text.startswith(head)
    shortest = len(head) + len(tail)
    return lambda text: len(text) >= shortest and text.startswith(head) and text.endswith(tail)


def _general(pattern: str) -> Predicate:
    # The first place where an inner segment fits is always good enough, so atomic groups
    # keep the search from trying others: no catastrophic backtracking.
    head, *rest = (_segment(part) for part in pattern.split("*"))
    if rest:
        *middle, tail = rest
        head += "".join(f"(?>.*?{part})" for part in middle if part) + f".*{tail}"
    found = re.compile(head, re.DOTALL).fullmatch
    return lambda text: found(text) is not None


def _segment(part: str) -> str:
    return ".".join(re.escape(literal(piece)) for piece in part.split("?"))
