"""The parts of an API call that context entries and GlobalContextEntries have in common."""

from collections.abc import Mapping
from typing import Any

from reconciler.engine import reading
from reconciler.engine.values.addresses import check_header
from reconciler.errors import EvaluationError, InvalidPolicy

FIELDS = ("urlPath", "service", "method", "data")
_SERVICE_FIELDS = ("url", "headers", "caBundle")


def method(fields: Mapping[str, Any], place: str) -> str:
    """Return the method of a call; GET is the default."""
    found = fields.get("method") or "GET"
    if found not in ("GET", "POST"):
        raise InvalidPolicy(f"{place}.method", "the method is GET or POST")
    return str(found)


def service(raw: Any, place: str) -> Mapping[str, Any]:
    """Return the fields of a service."""
    return reading.mapping(raw, place, allowed=_SERVICE_FIELDS)


def headers(raw: Any, place: str) -> None:
    """Refuse headers that a policy must not set, and malformed headers."""
    for where, fields in pairs(raw, place):
        try:
            check_header(str(fields.get("key") or ""))
        except EvaluationError as error:
            raise InvalidPolicy(f"{where}.key", str(error)) from error


def pairs(raw: Any, place: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return headers or data, each with its location; unknown fields are refused.

    Kyverno reads a value from a Secret with ``valueFrom``, which must not be ignored silently.
    """
    named = [(f"{place}[{n}]", item) for n, item in enumerate(reading.sequence(raw, place))]
    return [(at, reading.mapping(item, at, allowed=("key", "value"))) for at, item in named]
