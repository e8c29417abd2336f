"""Lists."""

from typing import Any

from reconciler.languages.gotemplate.functions.defaults import is_empty
from reconciler.languages.gotemplate.functions.numbers import to_int
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.signature import (
    ANY,
    INT,
    Failure,
    Family,
    Function,
    family,
    function,
)
from reconciler.languages.gotemplate.values import ANY as ELEMENT
from reconciler.languages.gotemplate.values import Slice, deep_equal, kind, loaded


def _items(run: Run, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Failure(f"it takes a list, not {'null' if value is None else kind(value)}")
    run.grow(len(value))
    return [loaded(item) for item in value]


def _list(run: Run, *values: Any) -> list[Any]:
    run.grow(len(values))
    return list(values) if values else Slice()


def _prepend(run: Run, value: Any, item: Any) -> list[Any]:
    return [item, *_items(run, value)]


def _first(run: Run, value: Any) -> Any:
    items = _items(run, value)
    return items[0] if items else None


def _last(run: Run, value: Any) -> Any:
    items = _items(run, value)
    return items[-1] if items else None


def _rest(run: Run, value: Any) -> list[Any]:
    items = _items(run, value)
    return items[1:] if items else Slice(nil=True)


def _initial(run: Run, value: Any) -> list[Any]:
    items = _items(run, value)
    return items[:-1] if items else Slice(nil=True)


def _compact(run: Run, value: Any) -> list[Any]:
    return [item for item in _items(run, value) if not is_empty(item)]


def _is_in(run: Run, item: Any, others: list[Any]) -> bool:
    return any(deep_equal(item, other, run.visit) for other in others)


def _uniq(run: Run, value: Any) -> list[Any]:
    found: list[Any] = []
    for item in _items(run, value):
        if not _is_in(run, item, found):
            found.append(item)
    return found


def _without(run: Run, value: Any, *omitted: Any) -> list[Any]:
    return [item for item in _items(run, value) if not _is_in(run, item, list(omitted))]


def _has(run: Run, item: Any, value: Any) -> bool:
    return value is not None and _is_in(run, item, _items(run, value))


def _slice(run: Run, value: Any, *bounds: Any) -> Any:
    items = _items(run, value)
    if not items:
        return None
    start = to_int(bounds[0]) if bounds else 0
    end = to_int(bounds[1]) if len(bounds) > 1 else len(items)
    if not 0 <= start <= end <= len(items):
        raise Failure("a bound lies outside of the list")
    element = value.element if isinstance(value, Slice) else ELEMENT
    return items[start:end] if element == ELEMENT else Slice(items[start:end], element)


def _concat(run: Run, *values: Any) -> list[Any]:
    found = [item for value in values for item in _items(run, value)]
    run.grow(len(found))
    return found or Slice(nil=True)


def _chunk(run: Run, size: int, value: Any) -> Slice:
    items = _items(run, value)
    if size > 0:
        chunks = [items[start : start + size] for start in range(0, len(items), size)]
    elif size < -1 and len(items) == 1:
        # In the original's division, a negative size makes one chunk of a single element ...
        chunks = [items]
    elif size < 0 and 1 < len(items) <= 1 - size:
        # ... and no chunk if the list has at most one element more than the absolute size.
        chunks = []
    else:
        raise Failure("a chunk has one element at least")
    return Slice(chunks, f"[]{ELEMENT}")


def _twice(name: str, described: Function) -> dict[str, Function]:
    """Return a function by its name and that of its must variant, which is the same here."""
    return {name: described, f"must{name[0].upper()}{name[1:]}": described}


FUNCTIONS: Family = family(
    {
        "list": function(_list, rest=ANY),
        **_twice("push", function(lambda run, value, item: [*_items(run, value), item], ANY, ANY)),
        **_twice("prepend", function(_prepend, ANY, ANY)),
        **_twice("first", function(_first, ANY)),
        **_twice("last", function(_last, ANY)),
        **_twice("rest", function(_rest, ANY)),
        **_twice("initial", function(_initial, ANY)),
        **_twice("reverse", function(lambda run, value: _items(run, value)[::-1], ANY)),
        **_twice("compact", function(_compact, ANY)),
        **_twice("uniq", function(_uniq, ANY)),
        **_twice("without", function(_without, ANY, rest=ANY)),
        **_twice("has", function(_has, ANY, ANY)),
        **_twice("slice", function(_slice, ANY, rest=ANY)),
        **_twice("chunk", function(_chunk, INT, ANY)),
        "concat": function(_concat, rest=ANY),
    },
    tuple="list",
    append="push",
    mustAppend="mustPush",
)
