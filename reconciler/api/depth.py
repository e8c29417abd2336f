"""JSON that is nested more deeply than its reader can follow, cut where it is too deep."""

import re
from hashlib import blake2b
from typing import Any, Final

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_CUT: Final = "\ue000cut\ue000"
"""No Kubernetes object has it: it is a text that is nobody's, of private characters."""


def brackets(body: bytes) -> int:
    """Return how many there are that open, in texts too: no JSON has more levels than that."""
    return body.count(b"[") + body.count(b"{")


def cut(body: bytes, levels: int) -> bytes | None:
    """Return the text with a mark for all that is too deep, None where nothing is.

    Marks of different things differ, so that cut objects still differ.
    Takes some tenths of a microsecond for each bracket and text.
    """
    pieces: list[bytes] = []
    depth = begun = start = 0
    for token in _TOKEN.finditer(body):
        sign = body[token.start()]
        if sign in b"[{":
            depth += 1
            if depth == levels + 1:
                start = token.start()
                pieces.append(body[begun:start])
        elif sign in b"]}":
            if depth == levels + 1:
                begun = token.end()
                pieces.append(_mark(body[start:begun]))
            depth -= 1
    return b"".join([*pieces, body[begun:]]) if pieces else None


def _mark(content: bytes) -> bytes:
    return f'"{_CUT}{blake2b(content, digest_size=16).hexdigest()}"'.encode()


def is_cut(value: Any) -> bool:
    """Return whether something was cut out of a decoded value."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)
        elif isinstance(current, str) and current.startswith(_CUT):
            return True
    return False
