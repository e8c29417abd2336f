r"""References ``$(path)`` to another place of the same document; ``\$(`` for plain text.

They are resolved when the document is compiled: the text at that place replaces the reference,
including any variables in it.
"""

import re
from collections.abc import Callable
from typing import Any

from reconciler.errors import InvalidPolicy

_REFERENCE = re.compile(r"(?<!\\)\$\(((?:\([^()\s]*\)|[^()\s])+)\)")
_ESCAPED = re.compile(r"\\(\$\([^\s)]+\))")
_OPERATORS = (">=", "<=", "!", ">", "<")
_ANCHORED = re.compile(r"[+<=X^]?\((.*)\)", re.DOTALL)


def contains(text: str) -> bool:
    """Return whether `text` contains a reference."""
    return _REFERENCE.search(text) is not None


def absolute_path(reference: str, at: str) -> str:
    """Return the absolute path of a `reference` that is written at the path `at`.

    Both are slash-separated; a leading slash stands for the root of the document.
    """
    if reference.startswith("/"):
        return reference
    steps: list[str] = []
    for step in f"{at}/{reference}".split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in {"", "."}:
            steps.append(step)
    return "/" + "/".join(steps)


def resolve(text: str, document: Any, at: str, *, location: str) -> str:
    """Replace the references in a text at the path `at`.

    Raises:
        InvalidPolicy: A reference leads nowhere, or to a value that is not text.
    """
    if "$(" not in text:
        return text
    resolved = _REFERENCE.sub(_replacement(document, at, location), text)
    return _ESCAPED.sub(r"\1", resolved)


def step(name: str) -> str:
    """Return a key escaped as a step of a path."""
    return name.replace("~", "~0").replace("/", "~1")


def is_anchored(key: str) -> bool:
    """Return whether a key of a patch is an anchor, as ``+(image)``."""
    return _ANCHORED.fullmatch(key) is not None


def _replacement(document: Any, at: str, location: str) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        operator = next((sign for sign in _OPERATORS if match[1].startswith(sign)), "")
        path = match[1].removeprefix(operator)
        value = _look_up(document, absolute_path(path, at))
        if isinstance(value, str):
            return operator + value
        if operator and isinstance(value, int | float) and not isinstance(value, bool):
            return f"{operator}{value}"
        reason = "leads to no value" if value is None else "leads to a value that is not text"
        raise InvalidPolicy(
            location,
            f"reference {match[0]} not resolved at path {at}: it {reason};"
            f" write \\{match[0]} for plain text",
        )

    return replace


def _look_up(document: Any, path: str) -> Any:
    value = document
    for name in path.split("/")[1:]:
        value = _child(value, _without_anchor(name.replace("~1", "/").replace("~0", "~")))
    return value


def _child(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return value[int(name)] if name.isdecimal() and int(name) < len(value) else None
    if not isinstance(value, dict):
        return None
    return next((item for key, item in value.items() if _without_anchor(key) == name), None)


def _without_anchor(key: str) -> str:
    match = _ANCHORED.fullmatch(key) if key.endswith(")") else None
    return match[1] if match else key
