"""Limit on how much larger an object becomes while rules change it."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

MOST_ADDED: Final = 1 << 20
"""Bytes of JSON by which an object may exceed its original size after a rule."""

_SMALL: Final = 1 << 13
"""Bytes of an object that is faster to serialise than to compare with its previous version."""
_ABSENT: Final = object()


class Growth:
    """Tracks the size of one object.

    A large object is not serialised after each rule. Its new and changed parts give an upper bound
    of its size, which nearly always is within the limit.
    """

    __slots__ = ("_allowed", "_most", "_newest", "_original", "_small")

    def __init__(
        self, original: Mapping[str, Any], *, allowed: int = MOST_ADDED, small: int = _SMALL
    ) -> None:
        self._allowed = allowed
        self._small = small
        self._newest = original
        self._most = self._original = _size(original)

    def fault(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
        """Return why an object is too large now or cannot be stored at all, else an empty text.

        An object that already was that large is not refused for its original size.
        """
        try:
            return self._fault(before, after)
        except orjson.JSONEncodeError as error:
            return f"the object would have no JSON form: {error}"

    def _fault(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
        if self._newest is not before or self._most <= self._small:
            self._most = _size(after)
        else:
            self._most += _added(before, after)
        self._newest = after
        if self._most - self._original > self._allowed:
            self._most = _size(after)
        if self._most - self._original > self._allowed:
            return (
                f"the object would grow from {self._original} to {self._most} bytes, and no rule"
                f" may add more than {self._allowed} before an object is stored"
            )
        return ""


def _added(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Return an upper bound of the bytes added: the size of all new and changed parts."""
    more = 0
    for name, value in after.items():
        old = before.get(name, _ABSENT)
        if old is value:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            more += _added(old, value)
        else:
            more += len(orjson.dumps({name: value}))
    return more


def _size(value: Mapping[str, Any]) -> int:
    return len(orjson.dumps(value))
