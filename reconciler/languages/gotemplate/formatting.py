"""Formatting of numbers and texts by the width, precision and flags of a verb of Go's fmt."""

import math
from dataclasses import dataclass, replace
from typing import Final

from reconciler.engine.values.gonumbers import UINT64_MAX, format_float
from reconciler.languages.gotemplate.quoting import can_backquote, quote, quote_character, valid
from reconciler.languages.gotemplate.values import Uint, encode

_BASES: Final = {"b": (2, "b"), "o": (8, "o"), "O": (8, "o"), "x": (16, "x"), "X": (16, "X")}
_MANTISSA: Final = 53
_DENORMAL: Final = -1074
_HEX_DIGITS: Final = 13
_CODE_DIGITS: Final = 4
_GENERAL: Final = 6


@dataclass(slots=True)
class Spec:
    """The flags, width and precision between the % and the verb.

    Attributes:
        width: The minimum number of characters, or None.
        precision: The number behind the point, or None.
        sharp_v: ``%#v``
    """

    sharp: bool = False
    zero: bool = False
    plus: bool = False
    minus: bool = False
    space: bool = False
    width: int | None = None
    precision: int | None = None
    sharp_v: bool = False

    def pad(self, text: str, *, zeros: bool = True) -> str:
        """Return a text padded to the width."""
        if not self.width or len(text) >= self.width:
            return text
        filling = ("0" if self.zero and zeros else " ") * (self.width - len(text))
        return text + filling if self.minus else filling + text

    def truncated(self, text: str) -> str:
        """Return a text, cut to as many characters as the precision allows."""
        return text if self.precision is None else text[: self.precision]

    def string(self, text: str, verb: str) -> str | None:
        """Return the formatted text, or None if the verb does not apply to texts."""
        match verb:
            case "v" if self.sharp_v:
                return self.quoted(text)
            case "v" | "s":
                return self.pad(self.truncated(text))
            case "x" | "X":
                return self._bytes(encode(text), verb)
            case "q":
                return self.quoted(text)
            case _:
                return None

    def quoted(self, text: str) -> str:
        """Return the formatted text in quotes."""
        text = self.truncated(text)
        if self.sharp and not self.sharp_v and can_backquote(text):
            return self.pad(f"`{text}`")
        return self.pad(quote(text, ascii_only=self.plus))

    def _bytes(self, content: bytes, verb: str) -> str:
        if self.precision is not None:
            content = content[: self.precision]
        pairs = [f"{byte:02{verb}}" for byte in content]
        prefix = f"0{verb}" if self.sharp else ""
        if self.space:
            text = " ".join(prefix + pair for pair in pairs)
        else:
            text = (prefix if pairs else "") + "".join(pairs)
        if not pairs:
            return ("0" if self.zero else " ") * (self.width or 0)
        return self.pad(text)

    def boolean(self, value: bool, verb: str) -> str | None:  # noqa: FBT001
        """Return the formatted boolean, or None if the verb does not apply to booleans."""
        return self.pad("true" if value else "false") if verb in "tv" else None

    def integer(self, value: int, verb: str) -> str | None:
        """Return the formatted integer, or None if the verb does not apply to integers."""
        match verb:
            case "v" if self.sharp_v and isinstance(value, Uint):
                return replace(self, sharp=True).integer(value, "x")
            case "v" | "d":
                return self._digits(value, 10, "")
            case "b" | "o" | "O" | "x" | "X":
                base, letter = _BASES[verb]
                return self._digits(value, base, letter, octal=verb == "O")
            case "c":
                return self.pad(chr(valid(value)))
            case "q":
                return self.pad(quote_character(value, ascii_only=self.plus))
            case "U":
                return self._code_point(value)
            case _:
                return None

    def _digits(self, value: int, base: int, letter: str, *, octal: bool = False) -> str:
        size, negative = abs(int(value)), value < 0
        digits = {2: f"{size:b}", 8: f"{size:o}", 10: str(size), 16: f"{size:x}"}[base]
        digits = digits.upper() if letter == "X" else digits
        sign = "-" if negative else "+" if self.plus else " " if self.space else ""
        least = 0
        if self.precision is not None:
            least = self.precision
            if not least and not size:
                return " " * (self.width or 0)
        elif self.zero and self.width is not None and not self.minus:
            least = self.width - bool(sign)
        digits = digits.rjust(least, "0")
        if self.sharp and base in {2, 16}:
            digits = f"0{letter}{digits}"
        elif self.sharp and base == 8 and digits[0] != "0":  # noqa: PLR2004
            digits = f"0{digits}"
        return self.pad(sign + (f"0o{digits}" if octal else digits), zeros=False)

    def _code_point(self, value: int) -> str:
        code = int(value) & UINT64_MAX
        text = f"U+{code:0{max(_CODE_DIGITS, self.precision or 0)}X}"
        if self.sharp and valid(code) == code and chr(code).isprintable():
            text += f" '{chr(code)}'"
        return self.pad(text, zeros=False)

    def real(self, value: float, verb: str) -> str | None:
        """Return the formatted float, or None if the verb does not apply to floats."""
        form = "g" if verb == "v" else "f" if verb == "F" else verb
        if form not in set("beEfgGxX"):
            return None
        precision = self.precision
        if precision is None:
            precision = 6 if form in "eEf" else -1
        number = _written(value, form, precision)
        number = number if number[0] in "+-" else f"+{number}"
        if self.space and number[0] == "+" and not self.plus:
            number = f" {number[1:]}"
        if number[1] in "IN":
            shown = number[1:] if number[1] == "N" and not (self.space or self.plus) else number
            shown = shown if self.plus or shown[0] != "+" else shown[1:]
            kept = "+Inf" if value == math.inf and not self.space else shown
            return self.pad(kept, zeros=False)
        if self.sharp and form != "b":
            number = _pointed(number, form, precision)
        if not self.plus and number[0] == "+":
            return self.pad(number[1:])
        if self.zero and not self.minus and self.width and self.width > len(number):
            return number[0] + number[1:].rjust(self.width - 1, "0")
        return self.pad(number)

    def complex_number(self, value: complex, verb: str) -> str | None:
        """Return the formatted complex number, or None if the verb does not apply to it."""
        first = self.real(value.real, verb)
        second = replace(self, plus=True).real(value.imag, verb)
        return None if first is None or second is None else f"({first}{second}i)"


def _written(value: float, form: str, precision: int) -> str:
    if not math.isfinite(value):
        return format_float(value)
    if form == "b":
        return _binary(value)
    if form in "xX":
        text = _hexadecimal(value, precision)
        return text.upper() if form == "X" else text
    text = format_float(value, form.lower(), precision)
    return text.upper() if form in "EG" else text


def _binary(value: float) -> str:
    mantissa, exponent = math.frexp(value)
    whole = int(math.ldexp(mantissa, _MANTISSA))
    exponent -= _MANTISSA
    if not whole:
        exponent = _DENORMAL
    elif exponent < _DENORMAL:
        whole, exponent = whole >> (_DENORMAL - exponent), _DENORMAL
    sign = "-" if math.copysign(1, value) < 0 else ""
    return f"{sign}{abs(whole)}p{exponent:+d}"


def _hexadecimal(value: float, precision: int) -> str:
    sign = "-" if math.copysign(1, value) < 0 else ""
    mantissa, exponent = math.frexp(abs(value))
    whole = int(math.ldexp(mantissa, _MANTISSA))  # 53 bits, the first one set
    exponent = exponent - 1 if whole else 0
    bits = whole  # one digit before the point, 13 behind it
    if 0 <= precision < _HEX_DIGITS and whole:
        shift = 4 * (_HEX_DIGITS - precision)
        half, rest = 1 << (shift - 1), bits & ((1 << shift) - 1)
        bits >>= shift
        bits += rest > half or (rest == half and bits & 1)
        bits <<= shift
        if bits >> _MANTISSA:
            bits, exponent = bits >> 1, exponent + 1
    digits = f"{bits & ((1 << 52) - 1):013x}"
    digits = digits.rstrip("0") if precision < 0 else digits[:precision].ljust(precision, "0")
    point = "." if digits else ""
    return f"{sign}0x{bits >> 52}{point}{digits}p{exponent:+03d}"


def _pointed(number: str, form: str, precision: int) -> str:
    """Return a number with its point and, in a general form, the zeros that %g omits."""
    # Not for X: with a capital letter the original adds no zeros.
    digits = (_GENERAL if precision < 0 else precision) if form in "gGx" else 0
    ends = [
        at for at in (number.find(mark) for mark in ("pP" if form in "xX" else "eEpP")) if at > 0
    ]
    cut = min(ends, default=len(number))
    number, tail = number[:cut], number[cut:]
    figures = number[1:].replace(".", "")
    significant = len(figures.lstrip("0"))
    digits -= significant
    if "." not in number:
        digits -= number[1:] == "0"
        number += "."
    return number + "0" * max(digits, 0) + tail
