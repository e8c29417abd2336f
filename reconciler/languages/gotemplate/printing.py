"""Values as Go's fmt prints them: Sprint, Sprintln and Sprintf."""

import re
from collections.abc import Sequence
from typing import Any, Final

from reconciler.engine.values.gonumbers import format_float
from reconciler.languages.gotemplate.formatting import Spec
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import Failure
from reconciler.languages.gotemplate.values import (
    MISSING,
    Int,
    Opaque,
    Pointer,
    Record,
    is_nil,
    type_name,
)

_NIL: Final = "<nil>"
_FLAGS: Final = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}
_LARGEST: Final = 1_000_000
_NUMBER: Final = re.compile(r"[0-9]+")


def sprint(run: Run, *values: Any) -> str:
    """Print values, with a space between two that are no strings."""
    pieces: list[str] = []
    previous = True
    for index, value in enumerate(values):
        is_text = type(value) is str
        if index and not is_text and not previous:
            pieces.append(" ")
        pieces.append(text_of(run, value))
        previous = is_text
    return "".join(pieces)


def sprintln(run: Run, *values: Any) -> str:
    """Print values with spaces between them and a line break at the end."""
    return " ".join(text_of(run, value) for value in values) + "\n"


def text_of(run: Run, value: Any) -> str:
    """Print a value with %v."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is float or kind is int:
        return format_float(float(value))
    return _Printer(run, Spec()).argument(value, "v")


class _Printer:
    """Prints values with the flags of one verb.

    Attributes:
        spec: The flags.
    """

    def __init__(self, run: Run, spec: Spec) -> None:
        self.spec = spec
        self._run = run
        self._length = 0

    def argument(self, value: Any, verb: str) -> str:
        if value is None or value is MISSING:
            return self.spec.pad(_NIL) if verb in "Tv" else f"%!{verb}({_NIL})"
        if verb == "T":
            return self.spec.pad(self.spec.truncated(type_name(value)))
        if verb == "w" and isinstance(value, list | dict):
            # %w is for errors only: a list or map is refused as a whole, not by element.
            return f"%!w({type_name(value)}={self._value(value, 'v', 0)})"
        return self._value(value, verb, 0)

    def _value(self, value: Any, verb: str, depth: int) -> str:
        self._run.visit(1)
        if depth > self._run.limits.depth:
            raise Failure(f"a value is nested deeper than {self._run.limits.depth} levels")
        if isinstance(value, str):
            self._run.spend(len(value))
        if isinstance(value, list):
            return self._list(value, verb, depth)
        if isinstance(value, dict):
            return self._map(value, verb, depth)
        if isinstance(value, Pointer | Record):
            return self._structured(value, verb, depth)
        text = self._scalar(value, verb)
        return self._counted(self._bad(value, verb) if text is None else text)

    def _counted(self, text: str) -> str:
        """Return a text after it was counted: each element of a list is padded to the width."""
        self._length += len(text)
        self._run.fit(self._length)
        self._run.spend(len(text))
        return text

    def _scalar(self, value: Any, verb: str) -> str | None:
        if isinstance(value, str):
            return self.spec.string(value, verb)
        if isinstance(value, bool):
            return self.spec.boolean(value, verb)
        if isinstance(value, Int):
            text = getattr(value, "text", None)
            if text is not None and verb in "vsxXq" and not self.spec.sharp_v:
                return self.spec.string(text(), verb)
            return self.spec.integer(value, verb)
        if isinstance(value, Opaque):
            if verb not in "vsxXq" or self.spec.sharp_v:
                verb = "#v" if self.spec.sharp_v else verb
                raise Failure(f"%{verb} shows what is inside of {type_name(value)}; use %v")
            return self.spec.string(value.text(), verb)
        if isinstance(value, complex):
            return self.spec.complex_number(value, verb)
        if isinstance(value, float | int):
            return self.spec.real(float(value), verb)
        return "interface {}(nil)" if self.spec.sharp_v else _NIL

    def _bad(self, value: Any, verb: str) -> str:
        # An integer with a String method is shown as a number.
        is_whole = isinstance(value, Int)
        text = self.spec.integer(value, "v") if is_whole else self._scalar(value, "v")
        return f"%!{verb}({type_name(value)}={text})"

    def _list(self, value: list[Any], verb: str, depth: int) -> str:
        if self.spec.sharp_v:
            if is_nil(value):
                return f"{type_name(value)}(nil)"
            items = ", ".join(self._value(item, verb, depth + 1) for item in value)
            return f"{type_name(value)}{{{items}}}"
        if verb == "p":
            raise Failure("an address has no stable text")
        return f"[{' '.join(self._value(item, verb, depth + 1) for item in value)}]"

    def _map(self, value: dict[str, Any], verb: str, depth: int) -> str:
        if verb == "p":
            raise Failure("an address has no stable text")
        entries = [
            f"{self._value(key, verb, depth + 1)}:{self._value(value[key], verb, depth + 1)}"
            for key in sorted(value)
        ]
        if not self.spec.sharp_v:
            return f"map[{' '.join(entries)}]"
        if is_nil(value):
            return f"{type_name(value)}(nil)"
        return f"{type_name(value)}{{{', '.join(entries)}}}"

    def _structured(self, value: Pointer | Record, verb: str, depth: int) -> str:
        if isinstance(value, Pointer) or depth:
            raise Failure("a pointer has no stable text; name a field of what it points to")
        fields = [self._value(item, verb, depth + 1) for item in value.fields.values()]
        return f"{{{' '.join(fields)}}}"


def sprintf(run: Run, form: str, *values: Any) -> str:
    """Print values in a format."""
    return _Form(run, form, values).written()


class _Form:
    """A format that is processed from left to right."""

    def __init__(self, run: Run, form: str, values: Sequence[Any]) -> None:
        self._run = run
        self._form = form
        self._values = values
        self._position = 0
        self._argument = 0
        self._good = True
        self._reordered = False
        self._indexed = False
        self._given: dict[str, Any] = {}
        self._pieces: list[str] = []

    def written(self) -> str:
        """Return the whole text."""
        form = self._form
        while True:
            percent = form.find("%", self._position)
            end = len(form) if percent < 0 else percent
            self._write(form[self._position : end])
            if percent < 0:
                break
            self._position = percent + 1
            if not self._verb():
                break
        if not self._reordered and self._argument < len(self._values):
            self._extra()
        return "".join(self._pieces)

    def _write(self, text: str) -> None:
        self._run.write(len(text))
        self._pieces.append(text)

    def _verb(self) -> bool:
        """Print an operand for the verb behind a %, and return whether the format continues."""
        self._run.visit(1)
        self._given, self._good, self._indexed = {}, True, False
        while (flag := self._at()) in _FLAGS:
            self._given[_FLAGS[flag]] = True
            self._position += 1
        self._index()
        self._width()
        self._precision()
        if not self._indexed:
            self._index()
        verb = self._at()
        if not verb:
            self._write("%!(NOVERB)")
            return False
        self._position += 1
        self._operand(verb)
        return True

    def _at(self) -> str:
        return self._form[self._position : self._position + 1]

    def _operand(self, verb: str) -> None:
        given = self._given
        if verb == "%":
            self._write("%")
        elif not self._good:
            self._write(f"%!{verb}(BADINDEX)")
        elif self._argument >= len(self._values):
            self._write(f"%!{verb}(MISSING)")
        else:
            value = self._values[self._argument]
            if given.get("minus"):
                given["zero"] = False  # zeros pad only on the left
            if verb == "v":
                given["sharp_v"] = given.pop("sharp", False)
                given["plus"] = False  # %+v requests field names, not signs
            self._run.write((given.get("width") or 0) + (given.get("precision") or 0))
            self._write(_Printer(self._run, Spec(**given)).argument(value, verb))
            self._argument += 1

    def _number(self) -> int | None:
        found = _NUMBER.match(self._form, self._position)
        if found is None:
            return None
        self._position = found.end()
        return int(found[0]) if len(found[0]) <= len(str(_LARGEST)) else _LARGEST + 1

    def _width(self) -> None:
        if self._at() == "*":
            self._position += 1
            width = self._from_argument()
            if width is None:
                self._write("%!(BADWIDTH)")
            elif width < 0:
                width = -width
                self._given["minus"] = True
            self._given["width"] = width
            self._indexed = False
            return
        width = self._number()
        self._good = self._good and not (self._indexed and width is not None)
        self._given["width"] = width if width is None or width <= _LARGEST else None

    def _precision(self) -> None:
        if self._at() != "." or self._position + 1 == len(self._form):
            return
        self._position += 1
        self._good = self._good and not self._indexed
        self._index()
        if self._at() == "*":
            self._position += 1
            precision = self._from_argument()
            if precision is None or precision < 0:
                precision = None
                self._write("%!(BADPREC)")
            self._given["precision"] = precision
            self._indexed = False
        else:
            self._given["precision"] = min(self._number() or 0, _LARGEST)

    def _from_argument(self) -> int | None:
        if self._argument >= len(self._values):
            return None
        value = self._values[self._argument]
        self._argument += 1
        return int(value) if isinstance(value, Int) and abs(value) <= _LARGEST else None

    def _index(self) -> None:
        """Parse an explicit argument index, as ``[2]``."""
        self._indexed = False
        if self._at() != "[":
            return
        self._reordered = True
        end = self._form.find("]", self._position)
        inner = self._form[self._position + 1 : end] if end > 0 else ""
        self._indexed = bool(_NUMBER.fullmatch(inner)) and len(inner) < len(str(_LARGEST))
        number = int(inner) if self._indexed else 0
        self._position = end + 1 if end > 0 else self._position + 1
        if 1 <= number <= len(self._values):
            self._argument = number - 1
        else:
            self._good = False

    def _extra(self) -> None:
        texts = [
            _NIL
            if value is None or value is MISSING
            else f"{type_name(value)}={_Printer(self._run, Spec()).argument(value, 'v')}"
            for value in self._values[self._argument :]
        ]
        self._write(f"%!(EXTRA {', '.join(texts)})")
