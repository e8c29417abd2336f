"""JSON of values that also hold what files and command lines may hold."""

import json
import re
from typing import Any, Final

import orjson

_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def json_of(value: Any, *, compact: bool = False) -> str:
    """Return a value as JSON; a byte of a file name that is no character is written out."""
    try:
        indent = 0 if compact else orjson.OPT_INDENT_2
        return orjson.dumps(value, default=str, option=indent).decode()
    except TypeError:  # such a byte, or an integer beyond 64 bits
        text = json.dumps(value, default=str, ensure_ascii=False, indent=None if compact else 2)
        return _SURROGATE.sub(lambda found: rf"\\u{ord(found[0]):04x}", text)
