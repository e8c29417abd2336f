"""JSON of the API server, some of which is nested deeper than any reader here can follow.

The server stores ten thousand levels. What is too deep is cut out where it stands, so that one
such object in a list hides none of the others, and can be named.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import orjson

from reconciler.errors import Invalid
from reconciler.kube.paths import Call

_LEVELS: Final = 500
"""Readers end at about a thousand; what is written ends at 254."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_CUT: Final = "\ue000cut\ue000"
"""No Kubernetes object has it: it is a text that is nobody's, of private characters."""


class TooDeep(Exception):
    """JSON is nested too deeply; ``value`` is what it is without what is too deep."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"nested deeper than {_LEVELS} levels")
        self.value = value


def decode(body: bytes) -> Any:
    """Return decoded JSON.

    Raises:
        TooDeep: It is JSON, but nested too deeply.
        orjson.JSONDecodeError: It is no JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if (shallow := _cut(body)) is None:
            raise
        value = orjson.loads(shallow)
    raise TooDeep(value)


def salvage(error: TooDeep, call: Call, left_out: Callable[[str], None]) -> Any:
    """Return a list without the items that are cut, which are told of by name.

    Raises:
        Invalid: The answer is one object.
    """
    answer = error.value
    if not isinstance(answer, dict) or "items" not in answer:
        raise Invalid(f"{call}: the object is {error}, so it cannot be read") from None
    kept: list[Any] = []
    names: list[str] = []
    for item in answer["items"]:
        if not is_cut(item):
            kept.append(item)
            continue
        meta = item["metadata"]
        names.append("/".join(meta[key] for key in ("namespace", "name") if meta.get(key)))
    left_out(f"{call}: left out, because {error}: {', '.join(names)}")
    return {**answer, "items": kept}


def cut_deep(body: bytes) -> bytes:
    """Return JSON that any reader can follow; most of it is returned as it is, without a look."""
    if body.count(b"[") + body.count(b"{") <= _LEVELS:
        return body
    return _cut(body) or body


def is_cut(value: Any) -> bool:
    """Tell whether something was cut out of a decoded value."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)
        elif current == _CUT:
            return True
    return False


def _cut(body: bytes) -> bytes | None:
    """Return the text with a mark for all that is too deep, None where nothing is."""
    pieces: list[bytes] = []
    depth = begun = 0
    for token in _TOKEN.finditer(body):
        sign = body[token.start()]
        if sign in b"[{":
            depth += 1
            if depth == _LEVELS + 1:
                pieces.append(body[begun : token.start()])
        elif sign in b"]}":
            if depth == _LEVELS + 1:
                pieces.append(orjson.dumps(_CUT))
                begun = token.end()
            depth -= 1
    return b"".join([*pieces, body[begun:]]) if pieces else None
