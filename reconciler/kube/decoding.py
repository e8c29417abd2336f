"""JSON to and from the API server, some of which is nested too deeply for the parsers used here.

The server stores up to ten thousand levels. Values that are too deep are cut out in place, so that
one such object in a list does not hide the others and can be named.
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
"""The parsers fail at about a thousand levels; the serializer fails at 254."""


class TooDeep(Exception):
    """JSON is nested too deeply; ``value`` holds it with the parts below the limit cut out."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"nested deeper than {_LEVELS} levels")
        self.value = value


def encode(value: Any) -> bytes:
    """Return a value encoded as JSON.

    Raises:
        Invalid: The value cannot be encoded: an integer beyond 64 bits, a lone surrogate, a
            nesting of hundreds of levels.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Invalid(f"the object cannot be written as JSON: {error}") from error


def decode(body: bytes) -> Any:
    """Return decoded JSON.

    Raises:
        TooDeep: The JSON is valid, but nested too deeply.
        orjson.JSONDecodeError: The JSON is invalid.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if (shallow := cut(body, _LEVELS)) is None:
            raise
        value = orjson.loads(shallow)
    raise TooDeep(value)


def salvage(error: TooDeep, call: Call, left_out: Callable[[str], None]) -> Any:
    """Return a list without the items that were cut, and report those by name.

    Raises:
        Unreadable: The answer is a single object.
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
        names.append(name_of(item))
    left_out(f"{call}: left out, because {error}: {', '.join(names)}")
    return {**answer, "items": kept}


def name_of(item: Any) -> str:
    """Return namespace and name of an object, parts of which may be cut out."""
    meta = item["metadata"]
    return "/".join(meta[key] for key in ("namespace", "name") if meta.get(key))


def cut_deep(body: bytes) -> bytes:
    """Return JSON within the depth limit; a body with few brackets is returned unparsed."""
    if brackets(body) <= _LEVELS:
        return body
    return cut(body, _LEVELS) or body
