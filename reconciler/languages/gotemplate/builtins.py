"""The built-in functions of text/template."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote as percent_encoded

from reconciler.languages.gotemplate.functions.runes import runes
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.printing import sprint, sprintf, sprintln
from reconciler.languages.gotemplate.signature import (
    ANY,
    STRING,
    VALUE,
    Failure,
    Family,
    Function,
    family,
    function,
    plain,
)
from reconciler.languages.gotemplate.values import (
    MISSING,
    Int,
    Map,
    Slice,
    Uint8,
    decode,
    deref,
    encode,
    is_nil,
    kind,
    length,
    loaded,
    truth,
    type_name,
)

_HTML: Final = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_JS: Final = {
    "\\": r"\\", "'": r"\'", '"': r"\"", "<": r"\u003C", ">": r"\u003E", "&": r"\u0026",
    "=": r"\u003D",
}  # fmt: skip
_THREE: Final = 3
_CONTROL: Final = 0x20
_ASCII: Final = 0x7F


def _index(run: Run, item: Any, *indexes: Any) -> Any:
    if item is None:
        raise Failure("it takes a list or a map, and there is no value")
    for index in indexes:
        run.visit(1)
        item = deref(item)
        if isinstance(item, dict):
            item = _entry(item, index)
        elif isinstance(item, str):
            content = encode(item)
            item = Uint8(content[_position(index, len(content), "the text has no such byte")])
        elif isinstance(item, list):
            item = loaded(item[_position(index, len(item), "the list has no such element")])
        else:
            raise Failure(f"it takes a list or a map, not {_named(item)}")
    return item


def _entry(item: dict[str, Any], key: Any) -> Any:
    if not isinstance(key, str):
        raise Failure(f"a key of a map is a string, not {_named(key)}")
    if key in item:
        return loaded(item[key])
    return "" if isinstance(item, Map) and item.element == STRING else None


def _position(index: Any, end: int, problem: str) -> int:
    position = _bound(index, end - 1)
    if position is None:
        raise Failure(f"{problem}: {int(index)}")
    return position


def _bound(index: Any, last: int) -> int | None:
    if not isinstance(index, Int):
        raise Failure(f"an index is an integer, not {_named(index)}")
    return int(index) if 0 <= index <= last else None


def _named(value: Any) -> str:
    return "null" if value is None or value is MISSING else type_name(value)


def _slice(_run: Run, item: Any, *indexes: Any) -> Any:
    item = deref(item)
    if not isinstance(item, str | list):
        raise Failure(f"it takes a string or a list, not {_named(item)}")
    if len(indexes) > _THREE or (isinstance(item, str) and len(indexes) == _THREE):
        raise Failure("it has too many indexes")
    content = encode(item) if isinstance(item, str) else item
    bounds = [0, len(content)]
    for place, index in enumerate(indexes):
        bound = _bound(index, len(content))
        if bound is None:
            raise Failure(f"an index is out of range: {int(index)}")
        bounds[place : place + 1] = [bound]
    if sorted(bounds) != bounds:
        raise Failure("an index is greater than the next one")
    part = content[bounds[0] : bounds[1]]
    if isinstance(part, bytes):
        return decode(part)
    return Slice(part, item.element) if isinstance(item, Slice) else part


def _len(item: Any) -> Int:
    item = deref(item)
    if isinstance(item, str):
        return Int(length(item))
    if isinstance(item, list | dict):
        return Int(len(item))
    raise Failure(f"{_named(item)} has no length")


def _call(_function: Any, *_arguments: Any) -> Any:
    raise Failure("it takes a function, but no value is a function")


def _basic(value: Any) -> str:
    """Return the basic kind of a value for comparisons; empty where it has none."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Int):
        return "int"
    if isinstance(value, float | int):
        return "float"
    return "string" if isinstance(value, str) else "complex" if isinstance(value, complex) else ""


def _eq(one: Any, *others: Any) -> bool:
    if not others:
        raise Failure("a value to compare with is missing")
    return any(_equal(one, other) for other in others)


def _equal(one: Any, other: Any) -> bool:
    kinds = _basic(one), _basic(other)
    if kinds[0] != kinds[1]:
        if one is None or other is None:
            return False
        raise _incomparable(one, other)
    if kinds[0]:
        return bool(one == other)
    if one is not None and other is not None and kind(one) != kind(other):
        raise _incomparable(one, other)
    if is_nil(one) or is_nil(other):
        return is_nil(one) == is_nil(other)
    if isinstance(one, list | dict):
        raise Failure(f"{type_name(one)} cannot be compared; use deepEqual")
    return one is other if kind(one) == "ptr" else bool(one == other)


def _incomparable(one: Any, other: Any) -> Failure:
    return Failure(f"{_named(one)} cannot be compared with {_named(other)}")


def _lt(one: Any, other: Any) -> bool:
    kinds = _basic(one), _basic(other)
    if not all(kinds) or kinds[0] != kinds[1] or kinds[0] in {"bool", "complex"}:
        raise _incomparable(one, other)
    return bool(encode(one) < encode(other) if kinds[0] == "string" else one < other)


def _le(one: Any, other: Any) -> bool:
    return _lt(one, other) or _equal(one, other)


def _text(run: Run, values: tuple[Any, ...]) -> str:
    """Print the arguments of an escaping function."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    shown = [deref(value) for value in values]
    return sprint(run, *("<no value>" if value is None else value for value in shown))


def _escaping(escape: Callable[[str], str]) -> Function:
    def escaped(run: Run, *values: Any) -> str:
        text = escape(_text(run, values))
        run.write(len(text))
        return text

    return function(escaped, rest=ANY)


def _js(text: str) -> str:
    return "".join(_js_character(character) for character in runes(text))


def _js_character(character: str) -> str:
    if character in _JS:
        return _JS[character]
    code = ord(character)
    if _CONTROL <= code < _ASCII or (code > _ASCII and character.isprintable()):
        return character
    return f"\\u{code:04X}"


def _urlquery(text: str) -> str:
    return percent_encoded(encode(text), safe="~").replace("%20", "+")


FUNCTIONS: Family = family(
    {
        "and": Function(call=_call, parameters=(VALUE,), rest=VALUE, decides=False),
        "or": Function(call=_call, parameters=(VALUE,), rest=VALUE, decides=True),
        "not": plain(lambda value: not truth(value), VALUE),
        "call": plain(_call, VALUE, rest=VALUE),
        "index": function(_index, VALUE, rest=VALUE),
        "slice": function(_slice, VALUE, rest=VALUE),
        "len": plain(_len, VALUE),
        "eq": plain(_eq, VALUE, rest=VALUE),
        "ne": plain(lambda one, other: not _equal(one, other), VALUE, VALUE),
        "lt": plain(_lt, VALUE, VALUE),
        "le": plain(_le, VALUE, VALUE),
        "gt": plain(lambda one, other: not _le(one, other), VALUE, VALUE),
        "ge": plain(lambda one, other: not _lt(one, other), VALUE, VALUE),
        "html": _escaping(lambda text: text.translate(_HTML)),
        "js": _escaping(_js),
        "urlquery": _escaping(_urlquery),
        "print": function(sprint, rest=ANY),
        "println": function(sprintln, rest=ANY),
        "printf": function(sprintf, STRING, rest=ANY),
    }
)
