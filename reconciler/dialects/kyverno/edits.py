"""Compilation of the patch of a rule, and whether it converges."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from reconciler.dialects.kyverno import convergence
from reconciler.dialects.kyverno.anchors import compile_strategic
from reconciler.dialects.kyverno.context import compile_entries
from reconciler.dialects.kyverno.entries import ElementEntry
from reconciler.dialects.kyverno.jsonpatch import decode
from reconciler.dialects.kyverno.mutation import Edit, ForeachEdit, JsonPatchEdit, StrategicEdit
from reconciler.dialects.kyverno.variables import (
    Scope,
    check_expression,
    checked_conditions,
    checked_template,
)
from reconciler.engine import reading
from reconciler.engine.context import NOTHING_BOUND
from reconciler.engine.outcome import Convergence
from reconciler.engine.patch import compile_operations
from reconciler.engine.program import Origin
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.languages.jmespath import Expression, compile_expression

_VARIABLE = re.compile(r"\{\{(?:[^{}]|\{[^{}]*\})*\}\}")
_FORMS = ("foreach", "patchStrategicMerge", "patchesJson6902")
_FOREACH_FIELDS = ("list", "order", "context", "preconditions", *_FORMS)
_BESIDE_PATCH = ("context", "preconditions", "patchStrategicMerge", "patchesJson6902")


def compile_edits(
    mutate: Mapping[str, Any], location: str, scope: Scope, origin: Origin
) -> tuple[tuple[Edit, ...], Convergence]:
    """Return the edits of a mutate block, and whether they converge.

    Raises:
        InvalidPolicy: Not exactly one kind of patch is given, or the patch is malformed.
    """
    form = patch_form(mutate, location)
    if form == "patchStrategicMerge":
        return _strategic(mutate[form], f"{location}.{form}", scope)
    if form == "patchesJson6902":
        return _operations(mutate[form], f"{location}.{form}", scope, origin)
    if form == "foreach" and mutate[form]:
        where = f"{location}.{form}"
        read = partial(_foreach, scope=scope, origin=origin)
        return reading.each(read, mutate[form], where), Convergence.PROBED
    raise InvalidPolicy(
        location,
        "the rule changes nothing: give one and only one of patchStrategicMerge, patchesJson6902"
        " or foreach",
    )


def patch_form(mutate: Mapping[str, Any], location: str) -> str:
    """Return the field that holds the patch of a mutate block, empty where there is none.

    Raises:
        InvalidPolicy: There are several.
    """
    found = [name for name in _FORMS if mutate.get(name) is not None]
    if len(found) > 1:
        names = "`foreach`, `patchStrategicMerge`, or `patchesJson6902`"
        if "foreach" not in found:
            names = "`patchStrategicMerge` or `patchesJson6902`"
        raise InvalidPolicy(location, f"only one of {names} is allowed")
    return found[0] if found else ""


def _foreach(raw: Any, location: str, scope: Scope, origin: Origin) -> ForeachEdit:
    with ErrorList() as errors:
        fields = reading.mapping(raw, location, allowed=_FOREACH_FIELDS, errors=errors)
        elements = errors.attempt(_elements, fields, location, scope)
        order = fields.get("order")
        if order not in (None, "Ascending", "Descending"):
            errors.add(InvalidPolicy(f"{location}.order", "the order is Ascending or Descending"))
        nested = fields.get("foreach") is not None
        if nested and any(fields.get(name) is not None for name in _BESIDE_PATCH):
            raise InvalidPolicy(location, "a nested foreach cannot contain other declarations")
        # A keyed merge moves patched elements to the front; going backwards keeps the order.
        default = "Ascending" if fields.get("patchStrategicMerge") is None else "Descending"
        given = _given_elements(fields.get("context"), scope)
        entries, inner = compile_entries(
            fields.get("context"), f"{location}.context", scope.with_element(), origin, errors
        )
        preconditions = errors.attempt(
            checked_conditions, fields.get("preconditions"), f"{location}.preconditions", inner
        )
        edits, _ = compile_edits(fields, location, inner, origin)
        if elements is None:
            raise errors.combined()
    return ForeachEdit(
        elements=elements,
        reverse=(order or default) == "Descending",
        depth=scope.elements,
        entries=(*given, *entries),
        preconditions=preconditions,
        edits=edits,
        location=location,
        changes_trigger=not scope.target,
    )


def _elements(fields: Mapping[str, Any], location: str, scope: Scope) -> Expression:
    place = f"{location}.list"
    text = reading.string(fields.get("list"), place)
    expression = compile_expression(text, location=place, late=scope.late)
    if not scope.late:
        check_expression(expression, place, scope)
    return expression


def _given_elements(declared: Any, scope: Scope) -> tuple[ElementEntry, ...]:
    # The outermost foreach binds all given values, a nested one those of names that it declares.
    items = declared if isinstance(declared, list) else ()
    # A list, as a name may be unhashable here; it is refused where the entries are read.
    names = [item.get("name") for item in items if isinstance(item, Mapping)]
    return tuple(
        entry for entry in scope.given_elements if not scope.elements or entry.name in names
    )


def _strategic(raw: Any, location: str, scope: Scope) -> tuple[tuple[Edit, ...], Convergence]:
    field = "patchStrategicMerge"
    within = (field,) if scope.elements else ("mutate", field)
    with ErrorList() as errors:
        template = errors.attempt(
            checked_template, raw, location, scope, mirrors=not scope.elements, within=within
        )
        patch = compile_strategic(raw, location=location)
        if template is None:
            raise errors.combined()
    edit = StrategicEdit(template=template, patch=patch, fronts=bool(scope.elements))
    return (edit,), convergence.of_strategic(raw, template, scope)


def _operations(
    raw: Any, location: str, scope: Scope, origin: Origin
) -> tuple[tuple[Edit, ...], Convergence]:
    if not isinstance(raw, str):
        raise InvalidPolicy(location, "expected a string that holds a YAML or JSON list")
    if _VARIABLE.fullmatch(raw.strip()):
        template = checked_template(raw.strip(), location, scope)
        edit = JsonPatchEdit(patch=template, location=location, appends=True)
        return (edit,), Convergence.PROBED
    decoded = decode(raw, location=location, rule="" if scope.elements else origin.rule)
    template = checked_template(decoded.document, location, scope)
    if template.constant:
        operations = compile_operations(template.render(NOTHING_BOUND), location=location)
        edit = JsonPatchEdit(
            patch=template,
            operations=operations,
            location=location,
            appends=convergence.appends(operations),
        )
        return (edit,), convergence.of_operations(operations)
    edit = JsonPatchEdit(
        patch=template,
        quoted=decoded.quoted,
        plain=decoded.plain,
        written=decoded.written,
        location=location,
        appends=decoded.appends,
    )
    if decoded.shaped and convergence.is_stable(template, scope):
        return (edit,), convergence.of_operations(decoded.fixed)
    return (edit,), Convergence.PROBED
