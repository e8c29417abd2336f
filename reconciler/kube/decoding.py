"""JSON of and for the API server, some of which is nested deeper than any reader here can follow.

The server stores ten thousand levels. What is too deep is cut out where it stands, so that one
such object in a list hides none of the others, and can be named.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson

from reconciler.api.depth import brackets, cut, is_cut
from reconciler.errors import Invalid, Unreadable
from reconciler.kube.paths import Call

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_LEVELS: Final = 500
"""Readers end at about a thousand; what is written ends at 254."""


class TooDeep(Exception):
    """JSON is nested too deeply; ``value`` is what it is without what is too deep."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"nested deeper than {_LEVELS} levels")
        self.value = value


def encode(value: Any) -> bytes:
    """Return JSON.

    Raises:
        Invalid: The value cannot be written: an integer beyond 64 bits, half a character, a
            nesting of hundreds of levels.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Invalid(f"the object cannot be written as JSON: {error}") from error


def decode(body: bytes) -> Any:
    """Return decoded JSON.

    Raises:
        TooDeep: It is JSON, but nested too deeply.
        orjson.JSONDecodeError: It is no JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if (shallow := cut(body, _LEVELS)) is None:
            raise
        value = orjson.loads(shallow)
    raise TooDeep(value)


def salvage(error: TooDeep, call: Call, left_out: Callable[[str], None]) -> Any:
    """Return a list without the items that are cut, which are reported by name.

    Raises:
        Unreadable: The answer is one object.
    """
    answer = error.value
    if not isinstance(answer, dict) or "items" not in answer:
        raise Unreadable(f"{call}: the object is {error}, so it cannot be read") from None
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
    if brackets(body) <= _LEVELS:
        return body
    return cut(body, _LEVELS) or body
