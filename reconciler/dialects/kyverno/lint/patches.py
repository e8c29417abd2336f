"""Findings on the patches of a rule."""

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.dialects.finding import Finding, Level
from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.dialects.kyverno.readers import expressions_of, of_edits, of_entries
from reconciler.engine.patch import Operation, compile_operations
from reconciler.engine.patch.paths import APPEND, render_pointer
from reconciler.engine.program import Program
from reconciler.errors import InvalidPolicy
from reconciler.languages.jmespath import IMPURE, braces

_TEXTS = frozenset({"labels", "annotations"})
_WORD, _DIGIT = "x", "1"


def patch_findings(program: Program, rule: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings about the patches of a rule, given compiled and as written."""
    place = f"{program.origin.location}.mutate"
    # Preconditions of the rule see the trigger only, so they cannot detect earlier changes.
    guarded = all(target.preconditions is not None for target in parts_of(program).targets)
    yield from _unsettled(program, place, guarded=guarded)
    for block, where, inner in blocks(rule["mutate"], place, guarded=guarded):
        yield from _in_map(block.get("patchStrategicMerge"), f"{where}.patchStrategicMerge")
        if text := block.get("patchesJson6902"):
            yield from _of_operations(text, f"{where}.patchesJson6902", guarded=inner)


def blocks(
    mutate: Mapping[str, Any], place: str, *, guarded: bool = False
) -> Iterator[tuple[Mapping[str, Any], str, bool]]:
    """Yield a valid mutate block and each foreach in it, with its location.

    Also yields whether preconditions of it, or of a block around it, guard it.
    """
    yield mutate, place, guarded
    for index, block in enumerate(mutate.get("foreach") or ()):
        inner = guarded or bool(block.get("preconditions"))
        yield from blocks(block, f"{place}.foreach[{index}]", guarded=inner)


def _of_operations(text: str, place: str, *, guarded: bool) -> Iterator[Finding]:
    # With a digit in place of a variable, a value that is not in quotes becomes a number.
    digits, words = drawn(text, place, _DIGIT), drawn(text, place, _WORD)
    for index, (operation, with_word) in enumerate(zip(digits, words, strict=False)):
        if operation.path[-1:] == (APPEND,) and operation.name != "test":
            yield _append(place, operation, with_word, guarded=guarded)
        for where, value in _metadata_values(operation):
            if isinstance(value, bool | int | float):
                variable = (where, value) not in _metadata_values(with_word)
                yield _not_a_text(f"{place}[{index}].{where}", value, variable=variable)


def drawn(text: str, place: str, standin: str) -> tuple[Operation, ...]:
    """Return the operations of a JSON patch with a text in place of each variable.

    The result is empty if the patch does not compile that way.
    """
    plain = braces.replace(text, lambda _: standin)
    try:
        return compile_operations(parse_operations(plain, location=place), location=place)
    except InvalidPolicy:
        return ()


def _metadata_values(operation: Operation) -> list[tuple[str, Any]]:
    """Return the values that an operation writes into labels and annotations."""
    *parents, _ = operation.path or ("",)
    value = operation.value
    if parents[-1:] and parents[-1] in _TEXTS and parents[-2:-1] == ["metadata"]:
        return [("value", value)]
    if parents[-1:] == ["metadata"] and operation.path[-1] in _TEXTS and isinstance(value, dict):
        return [(f"value.{name}", text) for name, text in value.items()]
    return []


def _append(place: str, operation: Operation, with_word: Operation, *, guarded: bool) -> Finding:
    steps = zip(operation.path, with_word.path, strict=True)
    path = render_pointer(tuple(step if step == word else "*" for step, word in steps))
    return Finding(
        level=Level.NOTE if guarded else Level.WARNING,
        code="append",
        location=place,
        text=f"{operation.name} at {path} appends another element each time the rule runs"
        + (", unless a precondition prevents it" if guarded else ""),
        cure="add a precondition on the object that is changed, which fails once the element is"
        " there, or use a strategic merge, which identifies elements by their key",
    )


def _unsettled(program: Program, place: str, *, guarded: bool) -> Iterator[Finding]:
    parts = parts_of(program)
    entries = (*parts.entries, *(one for item in parts.targets for one in item.entries))
    expressions = expressions_of((*of_edits(parts.edits), *of_entries(entries)))
    impure = sorted(IMPURE & {name for item in expressions for name in item.functions})
    if impure:
        names = ", ".join(f"{name}()" for name in impure)
        yield Finding(
            level=Level.NOTE if guarded else Level.WARNING,
            code="never-settles",
            location=place,
            text=f"each call of {names} returns another value, so every run of the rule writes all"
            " of its targets again" + (", unless a precondition prevents it" if guarded else ""),
            cure="take a value that belongs to the change, such as"
            " request.object.metadata.resourceVersion",
        )


def _in_map(patch: Any, place: str) -> Iterator[Finding]:
    if isinstance(patch, list):
        for index, item in enumerate(patch):
            yield from _in_map(item, f"{place}[{index}]")
    elif isinstance(patch, dict):
        for key, value in patch.items():
            name = written(key)
            if name == "metadata" and isinstance(value, dict):
                yield from _in_metadata(value, f"{place}.{key}")
            elif name:
                yield from _in_map(value, f"{place}.{key}")


def _in_metadata(metadata: Mapping[str, Any], place: str) -> Iterator[Finding]:
    for key, value in metadata.items():
        if written(key) not in _TEXTS or not isinstance(value, dict):
            continue
        for name, text in value.items():
            if written(name) and isinstance(text, bool | int | float):
                yield _not_a_text(f"{place}.{key}.{name}", text)


def _not_a_text(
    place: str,
    value: bool | float,  # noqa: FBT001 - data
    *,
    variable: bool = False,
) -> Finding:
    kind = "a boolean" if isinstance(value, bool) else "a number"
    if variable:
        text = "without quotes, the variable becomes a number or a boolean if its value looks"
        text += " like one"
    else:
        text = f"this is {kind}"
    return Finding(
        level=Level.WARNING if variable else Level.ERROR,
        code="unquoted-value",
        location=place,
        text=f"{text}; labels and annotations hold only strings",
        cure="put the value in quotes",
    )


def written(key: str) -> str:
    """Return the key that a patch writes, empty where an anchor only tests it."""
    if key.startswith("+(") and key.endswith(")"):
        return key[2:-1]
    return "" if key.endswith(")") and "(" in key[:2] else key
