"""The patch of a rule, and whether applying it again to its result would change more."""

import re
from collections.abc import Mapping
from typing import Any

from reconciler.dialects.kyverno.variables import Scope, checked_template
from reconciler.engine.patch import (
    Operation,
    compile_operations,
    compile_strategic,
    parse_operations,
)
from reconciler.engine.program import Convergence, Edit, JsonPatchEdit, StrategicEdit
from reconciler.engine.variables import Template
from reconciler.errors import InvalidPolicy

_VARIABLE = re.compile(r"\{\{(?:[^{}]|\{[^{}]*\})*\}\}")
_STANDIN = "variable"
_STABLE = frozenset({"add", "replace", "remove", "test"})


def compile_edits(
    mutate: Mapping[str, Any], location: str
) -> tuple[tuple[Edit, ...], Convergence]:
    """Return the edits of a mutate block.

    Raises:
        InvalidPolicy: None or both kinds of patch are given, or the patch is malformed.
    """
    strategic, operations = mutate.get("patchStrategicMerge"), mutate.get("patchesJson6902")
    if strategic is not None and operations is not None:
        raise InvalidPolicy(
            location, "only one of `patchStrategicMerge` or `patchesJson6902` is allowed"
        )
    if strategic is not None:
        return _strategic(strategic, f"{location}.patchStrategicMerge")
    if operations is not None:
        return _operations(operations, f"{location}.patchesJson6902")
    raise InvalidPolicy(
        location, "the rule changes nothing: give patchStrategicMerge or patchesJson6902"
    )


def _strategic(raw: Any, location: str) -> tuple[tuple[Edit, ...], Convergence]:
    template = checked_template(raw, location, Scope.TARGET, mirrors=True)
    edit = StrategicEdit(template=template, patch=compile_strategic(raw, location=location))
    return (edit,), Convergence.PROBED if _reads_target(template) else Convergence.YES


def _operations(raw: Any, location: str) -> tuple[tuple[Edit, ...], Convergence]:
    if not isinstance(raw, str):
        raise InvalidPolicy(location, "expected a text that holds a YAML or JSON list")
    template = checked_template(raw, location, Scope.TARGET)
    whole = _VARIABLE.fullmatch(raw.strip()) is not None
    if template.constant:
        operations = compile_operations(
            parse_operations(raw, location=location), location=location
        )
        edit = JsonPatchEdit(text=template, operations=operations, location=location)
        return (edit,), _convergence(operations)
    if whole:
        stable = False
    else:
        # Where variables stand is not known to be valid YAML before they are replaced; with a
        # plain word in their place, what is wrong without them is found now.
        text = _VARIABLE.sub(_STANDIN, raw)
        drawn = compile_operations(parse_operations(text, location=location), location=location)
        stable = _convergence(drawn) is Convergence.YES and not any(
            _STANDIN in "/".join(map(str, item.path)) for item in drawn
        )
    stable = stable and not _reads_target(template)
    edit = JsonPatchEdit(text=template, operations=None, location=location)
    return (edit,), Convergence.YES if stable else Convergence.PROBED


def _convergence(operations: tuple[Operation, ...]) -> Convergence:
    stable = all(item.name in _STABLE and not _names_element(item) for item in operations)
    return Convergence.YES if stable else Convergence.PROBED


def _names_element(operation: Operation) -> bool:
    last = str(operation.path[-1]) if operation.path else ""
    return operation.name != "test" and (last == "-" or last.lstrip("-").isdigit())


def _reads_target(template: Template) -> bool:
    return template.dynamic or any(path[:1] in {(), ("target",)} for path in template.reads)
