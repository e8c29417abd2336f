"""The reader of the policies' fields."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from reconciler.dialects.kinitiras.condition import FirstOf, Refuses, read_condition, read_head
from reconciler.dialects.kinitiras.cue import RefusedByProgram, has_template, read_programs
from reconciler.dialects.kinitiras.origin import read_origin
from reconciler.dialects.kinitiras.parts import Overriders
from reconciler.dialects.kinitiras.selectors import Selector, read_selector
from reconciler.dialects.kinitiras.template import read_template
from reconciler.dialects.kinitiras.values import Source
from reconciler.engine import reading
from reconciler.engine.patch.rfc6902 import Operation, compile_operations
from reconciler.errors import ErrorList, InvalidPolicy

OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")
EVERY: Final = "*"
CONNECT: Final = "CONNECT"
_PATCHED: Final = ("CREATE", "UPDATE")
"""Requests of other operations carry no object to change."""
_OVERRIDERS: Final = ("plaintext", "cue", "template", "renderedCue", "origin")
_VALIDATORS: Final = ("targetOperations", "cue", "template", "renderedCue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule, which either changes objects or refuses requests.

    Attributes:
        operations: Those for which it acts; empty where it would only change requests without
            an object.
    """

    operations: tuple[str, ...]
    overriders: Overriders | None = None
    condition: Refuses | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the values that it reads."""
        part = self.overriders or self.condition
        return part.sources if part else ()


def read_spec(
    raw: Any, *, validates: bool, home: str
) -> tuple[tuple[Selector, ...], tuple[Rule, ...]]:
    """Return the selectors of a policy, without which everything is selected, and its rules.

    Args:
        validates: The policy is one that refuses requests.
        home: The namespace to which the policy is confined; empty where it is not.

    Raises:
        InvalidPolicy: The policy is invalid; it holds all errors with their locations.
    """
    name = "validateRules" if validates else "overrideRules"
    read = _read_validation if validates else partial(_read_override, home=home)
    with ErrorList() as errors:
        allowed = ("resourceSelectors", name)
        fields = reading.mapping(raw, "spec", allowed=allowed, errors=errors)
        each, given = reading.each, fields.get("resourceSelectors")
        selectors = errors.attempt(each, read_selector, given, "spec.resourceSelectors")
        rules = errors.attempt(each, read, fields.get(name), f"spec.{name}")
        if not rules and not len(errors):
            errors.add(InvalidPolicy(f"spec.{name}", "expected at least one rule"))
    return selectors or (), rules or ()


def _read_operations(raw: Any, location: str) -> tuple[str, ...]:
    """Read operations; an empty list means all except CONNECT, and a star means all."""
    named = reading.strings(raw, location)
    for index, name in enumerate(named):
        if name not in (*OPERATIONS, EVERY):
            reason = f"expected one of {', '.join(OPERATIONS)}, {EVERY}"
            raise InvalidPolicy(f"{location}[{index}]", reason)
    if EVERY in named and len(named) > 1:
        raise InvalidPolicy(location, "* stands for all operations; remove the others")
    if not named:
        # A rule without operations is probably not meant to block exec into containers.
        return tuple(name for name in OPERATIONS if name != CONNECT)
    return OPERATIONS if EVERY in named else named


def _read_override(raw: Any, location: str, *, home: str) -> Rule:
    fields = reading.mapping(raw, location, allowed=("targetOperations", "overriders"))
    operations = _read_operations(fields.get("targetOperations"), f"{location}.targetOperations")
    return Rule(
        operations=tuple(name for name in operations if name in _PATCHED),
        overriders=_read_overriders(fields.get("overriders"), f"{location}.overriders", home),
    )


def _read_overriders(raw: Any, location: str, home: str) -> Overriders:
    fields = reading.mapping(raw, location, allowed=_OVERRIDERS)
    template = reading.object_at(fields.get("template"), f"{location}.template")
    overriders = Overriders(
        template=read_template(template, f"{location}.template", home) if template else None,
        programs=read_programs(fields, location, refuses=False),
        origin=read_origin(fields.get("origin"), f"{location}.origin"),
        plaintext=_read_plaintext(fields.get("plaintext"), f"{location}.plaintext"),
    )
    if overriders == Overriders():
        raise InvalidPolicy(location, "expected plaintext, template, origin or cue")
    return overriders


def _read_plaintext(raw: Any, location: str) -> tuple[Operation, ...]:
    for index, item in enumerate(reading.sequence(raw, location)):
        place = f"{location}[{index}]"
        fields = reading.mapping(item, place, allowed=("path", "op", "value"))
        if fields.get("op") not in ("add", "remove", "replace"):
            raise InvalidPolicy(f"{place}.op", "expected add, remove or replace")
        if fields.get("path") == "":
            reason = "it names the whole object; name a field of it, such as /metadata/labels"
            raise InvalidPolicy(f"{place}.path", reason)
    items = [{"value": None, **item} for item in raw or ()]
    return compile_operations(items, location=location)


def _read_validation(raw: Any, location: str) -> Rule:
    fields = reading.mapping(raw, location, allowed=_VALIDATORS)
    place = f"{location}.template"
    programs = read_programs(fields, location, refuses=True)
    refusing: list[Refuses] = [RefusedByProgram(program=program) for program in programs]
    if fields.get("template") or not programs:
        template = reading.mapping(fields.get("template"), place, allowed=("type", "condition"))
        if template.get("type") != "condition":
            raise InvalidPolicy(f"{place}.type", "expected condition")
        condition, where = template.get("condition"), f"{place}.condition"
        if programs and not has_template(fields):
            *_, allows = read_head(condition, where)
            refusing[0] = RefusedByProgram(program=programs[0], allows=allows)
        else:
            refusing.insert(0, read_condition(condition, where))
    return Rule(
        operations=_read_operations(
            fields.get("targetOperations"), f"{location}.targetOperations"
        ),
        condition=refusing[0] if len(refusing) == 1 else FirstOf(conditions=tuple(refusing)),
    )
