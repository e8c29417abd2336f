"""Parsing of the text of a JSON patch in JSON or YAML."""

from typing import Any

import orjson

from reconciler.engine.patch.paths import MAX_DEPTH
from reconciler.errors import InvalidPolicy
from reconciler.languages.jmespath.values import deeper_than
from reconciler.languages.jmespath.yamltext import decode_yaml


def parse_operations(text: str, *, location: str) -> list[Any]:
    """Parse the list of operations; text that begins with ``[`` is JSON, all other text YAML.

    YAML yields JSON values only: `yes` and `on` are true, dates stay text, 0644 is octal.

    Raises:
        InvalidPolicy: The text cannot be parsed, with line and column, or is not a list.
    """
    parse = _parse_json if text.startswith("[") else _parse_yaml
    decoded = parse(text, location)
    if not isinstance(decoded, list):
        raise InvalidPolicy(location, "must be a list of operations, each with op and path")
    return decoded


def _parse_json(text: str, location: str) -> Any:
    try:
        decoded = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidPolicy(
            location, f"is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    if deeper_than(decoded, MAX_DEPTH):
        raise InvalidPolicy(location, f"is nested deeper than {MAX_DEPTH} levels")
    return decoded


def _parse_yaml(text: str, location: str) -> Any:
    try:
        return decode_yaml(text, depth=MAX_DEPTH)
    except ValueError as error:
        raise InvalidPolicy(location, str(error)) from error
