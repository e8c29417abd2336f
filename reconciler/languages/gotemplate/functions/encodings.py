"""Base64, base32 and checksums."""

import base64
import hashlib
import string
import zlib
from collections.abc import Callable
from typing import Final

from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import STRING, Family, Function, family, function
from reconciler.languages.gotemplate.values import decode, encode

_PAD: Final = ord("=")
_BASE64: Final = frozenset((string.ascii_letters + string.digits + "+/").encode())
_BASE32: Final = frozenset((string.ascii_uppercase + "234567").encode())
_UNEVEN: Final = frozenset({1, 3, 6})
"""Numbers of digits in a last group that encode no whole number of bytes."""


def _of_bytes(work: Callable[[bytes], str]) -> Function:
    def worked(run: Run, text: str) -> str:
        content = encode(text)
        run.write(2 * len(content))
        return work(content)

    return function(worked, STRING)


def _b64dec(content: bytes) -> str:
    fault = _base64_fault(content)
    if fault is not None:
        return _illegal("base64", fault)
    return decode(base64.b64decode(_bare(content)))


def _b32dec(content: bytes) -> str:
    bare = _bare(content)
    fault = _base32_fault(bare)
    if fault is not None:
        return _illegal("base32", fault)
    end = bare.find(b"=")
    digits = bare if end < 0 else bare[:end]
    return decode(base64.b32decode(digits + b"=" * (-len(digits) % 8)))


def _bare(content: bytes) -> bytes:
    return content.replace(b"\n", b"").replace(b"\r", b"")


def _illegal(name: str, position: int) -> str:
    # Invalid input results in the text of an error, as in the original.
    return f"illegal {name} data at input byte {position}"


def _base64_fault(content: bytes) -> int | None:
    """Return the position of the byte at which Go's decoder stops, or None."""
    kept = [(at, byte) for at, byte in enumerate(content) if byte not in b"\r\n"]
    first = next((index for index, (_, byte) in enumerate(kept) if byte not in _BASE64), None)
    if first is None:
        rest = len(kept) % 4
        return len(content) - rest if rest else None
    at, byte = kept[first]
    in_group, padding = first % 4, [each for _, each in kept[first:]]
    if byte != _PAD or in_group < 2:  # noqa: PLR2004
        return at
    wanted = 4 - in_group
    if wanted == 2 and len(padding) < wanted:  # noqa: PLR2004
        return len(content)
    if wanted == 2 and padding[1] != _PAD:  # noqa: PLR2004
        return kept[first + 1][0] - 1
    return kept[first + wanted][0] if len(padding) > wanted else None


def _base32_fault(content: bytes) -> int | None:
    """Return the position of the byte at which Go's decoder stops, or None."""
    first = next((index for index, byte in enumerate(content) if byte not in _BASE32), None)
    if first is None:
        rest = len(content) % 8
        return len(content) - rest if rest else None
    in_group, padding = first % 8, content[first:]
    if padding[0] != _PAD or in_group < 2 or len(padding) > 8:  # noqa: PLR2004
        return first
    if len(padding) < 8 - in_group:
        return len(content)
    wrong = next((at for at, byte in enumerate(padding[: 8 - in_group]) if byte != _PAD), None)
    if wrong is not None:
        return first + wrong - 1
    return first if in_group in _UNEVEN else None


FUNCTIONS: Family = family(
    {
        "b64enc": _of_bytes(lambda content: base64.b64encode(content).decode()),
        "b64dec": _of_bytes(_b64dec),
        "b32enc": _of_bytes(lambda content: base64.b32encode(content).decode()),
        "b32dec": _of_bytes(_b32dec),
        "sha1sum": _of_bytes(lambda content: hashlib.sha1(content).hexdigest()),  # noqa: S324
        "sha256sum": _of_bytes(lambda content: hashlib.sha256(content).hexdigest()),
        "adler32sum": _of_bytes(lambda content: str(zlib.adler32(content))),
    }
)
