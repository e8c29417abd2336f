"""Random values, from the random numbers of the environment."""

import base64
import string
from collections.abc import Callable
from typing import Final

from reconciler.languages.gotemplate.functions.runes import runes
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import (
    INT,
    STRING,
    Failure,
    Family,
    Function,
    family,
    function,
)
from reconciler.languages.gotemplate.values import Int

_PACE: Final = 32
"""Drawing a random character costs as much as copying this many characters."""
_ASCII: Final = "".join(map(chr, range(32, 127)))
_UUID_BYTES: Final = 16
_BYTE: Final = 256


def _randbelow(run: Run) -> Callable[[int], int]:
    randbelow = run.environment.randbelow
    if randbelow is None:
        raise Failure("random numbers are not available here")
    return randbelow


def _drawing(alphabet: str) -> Function:
    def drawn(run: Run, count: int) -> str:
        if count < 0:
            return ""
        run.write(count * _PACE)
        randbelow = _randbelow(run)
        return "".join(alphabet[randbelow(len(alphabet))] for _ in range(count))

    return function(drawn, INT, pure=False)


def _rand_int(run: Run, low: int, high: int) -> Int:
    if high <= low:
        raise Failure("the upper bound does not lie above the lower one")
    return Int(low + _randbelow(run)(high - low))


def _bytes(run: Run, count: int) -> bytes:
    if count < 0:
        raise Failure("a negative count")
    run.write(count * _PACE)
    randbelow = _randbelow(run)
    return bytes(randbelow(_BYTE) for _ in range(count))


def _rand_bytes(run: Run, count: int) -> str:
    return base64.b64encode(_bytes(run, count)).decode()


def _uuidv4(run: Run) -> str:
    digits = bytearray(_bytes(run, _UUID_BYTES))
    digits[6] = digits[6] & 0x0F | 0x40  # the version
    digits[8] = digits[8] & 0x3F | 0x80  # the variant
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _shuffle(run: Run, text: str) -> str:
    characters = list(runes(text))
    run.write(len(characters) * _PACE)
    randbelow = _randbelow(run)
    for index in range(len(characters) - 1, 0, -1):
        other = randbelow(index + 1)
        characters[index], characters[other] = characters[other], characters[index]
    return "".join(characters)


FUNCTIONS: Family = family(
    {
        "randAlpha": _drawing(string.ascii_letters),
        "randAlphaNum": _drawing(string.ascii_letters + string.digits),
        "randNumeric": _drawing(string.digits),
        "randAscii": _drawing(_ASCII),
        "randInt": function(_rand_int, INT, INT, pure=False),
        "randBytes": function(_rand_bytes, INT, pure=False),
        "uuidv4": function(_uuidv4, pure=False),
        "shuffle": function(_shuffle, STRING, pure=False),
    }
)
