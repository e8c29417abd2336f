"""The CUE programs of policies, which a separate command evaluates: their input and output."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from reconciler.dialects.kinitiras.condition import Refuses
from reconciler.dialects.kinitiras.texts import read_text
from reconciler.dialects.kinitiras.values import Source
from reconciler.engine.context import Context
from reconciler.engine.loads import CueLoad, answer_to
from reconciler.engine.outcome import ConditionResult
from reconciler.engine.patch.rfc6902 import Operation, compile_operations
from reconciler.errors import EvaluationError, InvalidPolicy

_PATCHES, _VERDICT = "patches", "validate"
_LONGEST: Final = 100_000
_OPERATIONS: Final = ("add", "remove", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class CueProgram(Source):
    """A CUE program.

    Attributes:
        location: Of its text in the policy.
        rendered: The original generated it from a template; its whole input is below ``data``.
            Others get ``object``, and with `refuses` also ``oldObject``.
        refuses: Its output is ``validate`` instead of ``patches``.
    """

    source: str = field(repr=False)
    location: str
    rendered: bool
    refuses: bool

    loads = True

    @property
    @override
    def reads(self) -> frozenset[tuple[str, ...]]:
        names = ("object", "oldObject") if self.rendered or self.refuses else ("object",)
        return frozenset(("request", name) for name in names)

    @override
    def of(self, context: Context) -> Any:
        """Return the output of the program, None where it has none of that name.

        Raises:
            EvaluationError: The program cannot be evaluated.
            NeedsLoad: The program has not been evaluated yet.
        """
        request = context.data["request"]
        obj, old = request.get("object") or {}, request.get("oldObject") or {}
        return self.given(context, obj, old)

    def given(self, context: Context, obj: Mapping[str, Any], old: Mapping[str, Any]) -> Any:
        """Return the output for these objects, as `of` does."""
        data: dict[str, Any] = {"object": obj}
        request = context.data["request"]
        is_update = request.get("operation") == "UPDATE"
        if self.rendered:
            seen = old if is_update else {}
            data = {"data": {**data, "oldObject": seen, "extraParams": {}}}
        elif self.refuses and is_update:
            data["oldObject"] = old
        load = CueLoad(
            source=self.source,
            data=json.dumps(data, sort_keys=True),
            output=_VERDICT if self.refuses else _PATCHES,
            tenant=str(request.get("namespace") or self.source),
        )
        return answer_to(load, context.loads, "the CUE program returned no output")

    def patch(self, context: Context, obj: Mapping[str, Any]) -> tuple[Operation, ...]:
        """Return the operations that the program outputs for an object.

        Raises:
            EvaluationError: The output is not a list of valid operations.
        """
        old = context.data["request"].get("oldObject") or {}
        found = self.given(context, obj, old)
        if not isinstance(found, list):
            raise _wrong("the CUE program does not return a list of patches")
        items = [_operation(item, f"patches[{index}]") for index, item in enumerate(found)]
        try:
            return compile_operations(items, location="patches")
        except InvalidPolicy as error:
            # Only a path may still be wrong.
            raise _invalid(error.location, "a path that begins with /") from error


def _operation(item: Any, place: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _invalid(place, "an object")
    fields = {"value": None, **_in_lower_case(item)}
    if fields.get("op") not in _OPERATIONS:
        raise _invalid(f"{place}.op", f"one of {', '.join(_OPERATIONS)}")
    return fields


def _invalid(place: str, wanted: str) -> EvaluationError:
    return _wrong(f"the CUE program returns an invalid patch: {place}: expected {wanted}")


def _wrong(text: str) -> EvaluationError:
    """Return an error that quotes no value of the object."""
    return EvaluationError(text).bare(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedByProgram(Refuses):
    """A CUE program that refuses requests.

    Attributes:
        allows: The rule refuses requests that the program does not refuse, and no others.
    """

    program: CueProgram
    allows: bool = False

    @property
    @override
    def sources(self) -> tuple[CueProgram, ...]:
        return (self.program,)

    @override
    def evaluate(self, context: Context) -> ConditionResult:
        """Return whether the request is refused, for which ``valid`` must be false."""
        refused = self._verdict(context).get("valid", True) is self.allows
        message = f"valid is not {str(self.allows).lower()}"
        return ConditionResult(passed=refused, message="" if refused else message)

    @override
    def reason(self, context: Context) -> str:
        """Return the reason that the program gives, or a default."""
        return str(self._verdict(context).get("reason") or "it is refused")

    def _verdict(self, context: Context) -> Mapping[str, Any]:
        found = self.program.of(context)
        verdict = _in_lower_case(found) if isinstance(found, Mapping) else {"valid": None}
        valid, reason = verdict.get("valid", True), verdict.get("reason", "")
        if not isinstance(valid, bool) or not isinstance(reason, str):
            raise _wrong(
                "the CUE program does not return a validate object with valid: true or false"
            )
        return verdict


def _in_lower_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an output, whose names the original compares without regard to case."""
    return {name.lower(): value for name, value in fields.items()}


def read_programs(
    fields: Mapping[str, Any], location: str, *, refuses: bool
) -> tuple[CueProgram, ...]:
    """Read ``renderedCue`` and ``cue``; what a template was rendered to is ignored.

    Raises:
        InvalidPolicy: A program is not a string, or too long.
    """
    names = ("cue",) if has_template(fields) else ("renderedCue", "cue")
    found = ((name, _read(fields, name, location)) for name in names)
    return tuple(
        CueProgram(
            source=source,
            location=f"{location}.{name}",
            rendered=name == "renderedCue",
            refuses=refuses,
        )
        for name, source in found
        if source
    )


def has_template(fields: Mapping[str, Any]) -> bool:
    """Return whether a rule has a template, which replaces its ``renderedCue``.

    Nothing can be rendered from a condition without ``dataRef``, so the program beside it was
    written by hand. The original evaluates it.
    """
    template = fields.get("template")
    condition = template.get("condition") if isinstance(template, Mapping) else None
    by_hand = isinstance(condition, Mapping) and condition.get("dataRef") is None
    return bool(template) and not (by_hand and fields.get("renderedCue"))


def _read(fields: Mapping[str, Any], name: str, location: str) -> str:
    text = read_text(fields, name, location)
    if len(text) > _LONGEST:
        raise InvalidPolicy(f"{location}.{name}", f"it is longer than {_LONGEST} characters")
    return text
