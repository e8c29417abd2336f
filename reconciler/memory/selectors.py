"""Label and field selectors in the API's text form."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.errors import Invalid

Labels = Mapping[str, str]

_LABEL = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<gone>[\w./-]+)
      | (?P<key>[\w./-]+)\s*(?:
            (?P<set>in|notin)\s*\((?P<values>[^)]*)\)
          | (?P<sign>==|!=|=)\s*(?P<value>[\w.-]*)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_FIELD = re.compile(r"((?:[^,=!\\]|\\.)+?)(==|!=|=)((?:[^,=\\]|\\.)*)(?:,|$)")


def compile_labels(text: str) -> Callable[[Labels], bool]:
    """Return the predicate of a label selector.

    Raises:
        Invalid: The text is not a label selector.
    """
    tests = []
    place = 0
    while place < len(text):
        found = _LABEL.match(text, place)
        if found is None or found.end() == place:
            raise Invalid(f"{text!r} is not a label selector", status=400)
        tests.append(_label_test(found))
        place = found.end()
    return lambda labels: all(test(labels) for test in tests)


def _label_test(found: re.Match[str]) -> Callable[[Labels], bool]:
    part = found.groupdict()
    if part["absent"]:
        return lambda labels: part["gone"] not in labels
    key = part["key"]
    if part["set"]:
        values = {value.strip() for value in part["values"].split(",")}
    elif part["sign"]:
        values = {part["value"]}
    else:
        return lambda labels: key in labels
    if part["set"] == "notin" or part["sign"] == "!=":
        return lambda labels: labels.get(key) not in values
    return lambda labels: labels.get(key) in values


def compile_fields(text: str, known: frozenset[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Return the predicate of a field selector.

    Raises:
        Invalid: The text is not a field selector, or names a field that is not selectable.
    """
    tests = []
    place = 0
    while place < len(text):
        found = _FIELD.match(text, place)
        if found is None:
            raise Invalid(f"{text!r} is not a field selector", status=400)
        field, sign, value = found.groups()
        if field not in known:
            raise Invalid(f'field label not supported: "{field}"', status=400)
        tests.append((field.split("."), sign != "!=", re.sub(r"\\(.)", r"\1", value)))
        place = found.end()
    return lambda obj: all((_at(obj, path) == value) is same for path, same, value in tests)


def _at(obj: Any, path: list[str]) -> str:
    for part in path:
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)
