"""Checks that content which no schema has checked has the form of a Kubernetes object."""

from collections.abc import Mapping
from typing import Any

_TYPE_TEXTS = ("apiVersion", "kind")
_METADATA_TEXTS = ("name", "generateName", "namespace", "uid", "resourceVersion")
_METADATA_MAPS = ("labels", "annotations")
_TEXT = frozenset({str})


def object_fault(value: Any, place: str) -> str:
    """Return which part of an object has an unexpected JSON type, empty where none has.

    Only the fields that are matched and recorded are checked; expressions accept any type.
    """
    if (fault := type_fault(value, Mapping, place)) or value is None:
        return fault
    if fault := texts_fault(value, _TYPE_TEXTS, place):
        return fault
    meta, place = value.get("metadata"), f"{place}.metadata"
    if (fault := type_fault(meta, Mapping, place)) or meta is None:
        return fault
    if fault := texts_fault(meta, _METADATA_TEXTS, place):
        return fault
    for name in _METADATA_MAPS:
        if fault := _map_fault(meta.get(name), place, name):
            return fault
    return ""


def with_texts(obj: Any) -> Any:
    """Return an object with empty labels and annotations where they are null.

    The API server stores null as an empty text, so this is what a client reads back.
    """
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict):
        return obj
    filled = {
        name: {key: "" if text is None else text for key, text in texts.items()}
        for name in _METADATA_MAPS
        if isinstance(texts := meta.get(name), dict) and None in texts.values()
    }
    return {**obj, "metadata": {**meta, **filled}} if filled else obj


def texts_fault(value: Mapping[str, Any], fields: tuple[str, ...], place: str) -> str:
    """Return which of the fields is not a string, empty where each is one or is absent."""
    for name in fields:
        text = value.get(name)
        # This runs many times per request, so the place is only formatted for a fault.
        if text is not None and not isinstance(text, str):
            return mistyped(text, str, f"{place}.{name}")
    return ""


def type_fault(value: Any, expected: type, place: str) -> str:
    """Return the fault of a value with an unexpected type, empty where it fits or is null."""
    # Nearly every mapping is a dict, and isinstance of an abstract class takes ten times as long.
    if value is None or (expected is Mapping and isinstance(value, dict)):
        return ""
    if isinstance(value, expected):
        return ""
    return mistyped(value, expected, place)


def mistyped(value: Any, expected: type, place: str) -> str:
    """Return a message with the JSON type that a value has and the one that is expected."""
    return f"{place} is a JSON {json_type(value)}, expected {_EXPECTED[expected]}"


def json_type(value: Any) -> str:
    """Return the JSON name of a decoded value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case dict():
            return "object"
        case _:
            return "array"


def _map_fault(value: Any, place: str, field: str) -> str:
    # This runs on the result of each rule, which holds what all earlier rules added.
    if value is None or (type(value) is dict and _TEXT.issuperset(map(type, value.values()))):
        return ""
    place = f"{place}.{field}"
    if fault := type_fault(value, Mapping, place):
        return fault
    key = next((key for key, item in value.items() if not isinstance(item, str)), None)
    return "" if key is None else mistyped(value[key], str, f"{place}[{key!r}]")


_EXPECTED: Mapping[type, str] = {Mapping: "an object", str: "a string", list: "an array"}
