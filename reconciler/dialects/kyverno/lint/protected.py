"""Findings on metadata fields and API calls that no policy may use."""

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.dialects.finding import Finding, Guard, refusal
from reconciler.dialects.kyverno.lint.patches import blocks, drawn, written
from reconciler.engine.program import Program
from reconciler.languages.jmespath import braces

_VARIABLE = "{}"
"""The placeholder for a variable, which is no valid name."""
_CURE = "the controller refuses it too, whatever rights are granted"


def protected_findings(
    program: Program, rule: Mapping[str, Any], guard: Guard
) -> Iterator[Finding]:
    """Yield the fields and calls in a rule, given compiled and as written, that are refused."""
    if not program.changes_trigger:
        for block, place, _ in blocks(rule["mutate"], f"{program.origin.location}.mutate"):
            for where, field in (*_merged(block, place), *_operated(block, place)):
                if reason := guard.of_field(field):
                    yield refusal("guarded-metadata", where, reason, _CURE)
    yield from _of_calls(rule, program.origin.location, guard)


def _merged(mutate: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of metadata that a merge patch writes, with their locations."""
    overlay = mutate.get("patchStrategicMerge")
    for key, value in overlay.items() if isinstance(overlay, Mapping) else ():
        if written(str(key)) == "metadata" and isinstance(value, Mapping):
            for name in value:
                yield f"{place}.patchStrategicMerge.{key}.{name}", written(str(name))


def _operated(mutate: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of metadata that a JSON patch writes, with their locations."""
    where = f"{place}.patchesJson6902"
    for index, operation in enumerate(drawn(mutate.get("patchesJson6902") or "", where, "x")):
        if operation.name == "test":
            continue
        for path in (operation.path, operation.source if operation.name == "move" else ()):
            if len(path) > 1 and path[0] == "metadata":
                yield f"{where}[{index}]", str(path[1])


def _of_calls(value: Any, place: str, guard: Guard) -> Iterator[Finding]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_calls(item, f"{place}[{index}]", guard)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            where = f"{place}.{key}"
            if key == "apiCall" and isinstance(item, Mapping):
                if reason := _why_refused(item, guard):
                    yield refusal("protected-call", where, reason, _CURE)
            else:
                yield from _of_calls(item, where, guard)


def _why_refused(call: Mapping[str, Any], guard: Guard) -> str:
    path, method = call.get("urlPath"), call.get("method") or "GET"
    if not isinstance(path, str) or not path or not isinstance(method, str):
        return ""
    known = braces.replace(path, lambda _: _VARIABLE)
    if known != path and method != "GET":
        return ""  # The guard checks the resolved path when the call is made.
    return guard.of_call(method, known)
