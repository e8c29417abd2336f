"""Functions that encode, decode, parse and hash texts."""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from reconciler.languages import goyaml
from reconciler.languages.jmespath.functions.signature import TEXT, Function, Refused, extension
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.syntax import decode_json
from reconciler.languages.jmespath.values import deeper_than, plain

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_LINE_ENDS = str.maketrans("", "", "\r\n")
_DEPTH = 200  # of parsed values; orjson writes no more than 254 levels
_TOO_DEEP = f"argument #1 is nested deeper than {_DEPTH} levels"
# Parsing a character takes as long as copying this many.
_JSON_PACE = 16
_YAML_PACE = 32
_YAML_CALL = 512


def _base64_encode(run: Run, text: str) -> str:
    raw = _as_bytes(text)
    run.write(-(-len(raw) // 3) * 4)
    return base64.b64encode(raw).decode()


def _base64_decode(_run: Run, text: str) -> str:
    text = text.translate(_LINE_ENDS)
    if not _BASE64.fullmatch(text):
        raise Refused("argument #1 is not base64 with padding")
    try:
        return base64.b64decode(text).decode()
    except UnicodeError:
        raise Refused("the decoded bytes are not UTF-8 text") from None


def _parse_json(run: Run, text: str) -> Any:
    run.read(len(text) * _JSON_PACE)
    try:
        value = decode_json(text)
    except ValueError:
        raise Refused("argument #1 is not JSON") from None
    except RecursionError:
        raise Refused(_TOO_DEEP) from None
    # What is nested too deeply cannot be written.
    if deeper_than(value, _DEPTH):
        raise Refused(_TOO_DEEP)
    return value


def _parse_yaml(run: Run, text: str) -> Any:
    run.read(_YAML_CALL + len(text) * _YAML_PACE)
    try:
        value = goyaml.parse(text, run.read)
        # Aliases can make a large value out of a small text.
        run.measure(value)
        return plain(value)
    except ValueError as error:
        raise Refused(f"argument #1 {error}") from None


def _hash(name: str) -> Function:
    def hashed(_run: Run, text: str) -> str:
        return hashlib.new(name, _as_bytes(text), usedforsecurity=False).hexdigest()

    return extension(hashed, TEXT)


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeError:
        raise Refused("argument #1 is not well-formed text") from None


FUNCTIONS: Mapping[str, Function] = {
    "base64_decode": extension(_base64_decode, TEXT),
    "base64_encode": extension(_base64_encode, TEXT),
    "md5": _hash("md5"),
    "parse_json": extension(_parse_json, TEXT),
    "parse_yaml": extension(_parse_yaml, TEXT),
    "sha1": _hash("sha1"),
    "sha256": _hash("sha256"),
}
