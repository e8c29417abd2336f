"""The reader of a ModRule's fields."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.dialects.kubemod.items import Item, read_items, read_regex, text_in
from reconciler.dialects.kubemod.patch import Patch, read_patch
from reconciler.dialects.kubemod.values import Message, read_message
from reconciler.dialects.kubemod.view import NODE_ANNOTATIONS, References
from reconciler.engine.reading import mapping, sequence
from reconciler.engine.values.regexes import Regex
from reconciler.errors import ErrorList, InvalidPolicy

_FIELDS: Final = (
    "type",
    "executionTier",
    "admissionOperations",
    "match",
    "patch",
    "rejectMessage",
    "targetNamespaceRegex",
)
_TYPES: Final = ("Patch", "Reject")
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE")
DEFAULT_OPERATIONS: Final = ("CREATE", "UPDATE")
TIERS: Final = range(-32767, 32767)
_MOST_PARTS: Final = 2_000
_MOST_SELECTED: Final = 32_768
"""Characters of all select expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A ModRule.

    Attributes:
        patch: None for a rule of type Reject.
        message: Of a rejection; None where the rule sets none.
        pattern: Of the namespaces, for a rule of the system namespace.
        names_node: The rule reads the node of a Pod.
    """

    tier: int
    operations: tuple[str, ...]
    items: tuple[Item, ...]
    references: References
    patch: Patch | None
    message: Message | None
    pattern: Regex | None = field(compare=False)
    names_node: bool = False


def read_rule(spec: Any) -> Rule:
    """Read the specification of a rule.

    Raises:
        InvalidPolicy: The rule is invalid; it holds all errors with their locations.
    """
    with ErrorList() as errors:
        fields = mapping(spec, "spec", allowed=_FIELDS, errors=errors)
        _check_size(fields)
        kind = fields.get("type")
        if kind not in _TYPES:
            errors.add(InvalidPolicy("spec.type", "Patch or Reject is expected"))
        tier = errors.attempt(_tier, fields.get("executionTier"))
        operations = errors.attempt(_operations, fields.get("admissionOperations"))
        items = errors.attempt(read_items, fields.get("match"), "spec.match")
        pattern = text_in(fields, "targetNamespaceRegex", "spec", errors)
        place = "spec.targetNamespaceRegex"
        namespaces = errors.attempt(read_regex, pattern or None, place)
        texts = tuple(_texts(fields))
        references = References.in_texts(texts)
        patch = errors.attempt(_patch, fields, kind, references)
        message = errors.attempt(_message, fields, kind, errors)
    return Rule(
        tier=tier or 0,
        operations=operations or DEFAULT_OPERATIONS,
        items=items or (),
        references=references,
        patch=patch,
        message=message,
        pattern=namespaces,
        names_node=references.node
        or any(name in text for text in texts for name in NODE_ANNOTATIONS),
    )


def _check_size(fields: Mapping[str, Any]) -> None:
    """Refuse a rule that takes seconds to compile."""
    lists = [fields.get(name) for name in ("match", "patch")]
    parts = [part for items in lists if isinstance(items, list) for part in items]
    if len(parts) > _MOST_PARTS:
        reason = f"there are more than {_MOST_PARTS} match items and operations"
        raise InvalidPolicy("spec", reason)
    selects = (part.get("select") for part in parts if isinstance(part, dict))
    if sum(len(select) for select in selects if isinstance(select, str)) > _MOST_SELECTED:
        reason = f"the select expressions are longer than {_MOST_SELECTED} characters"
        raise InvalidPolicy("spec", reason)


def _tier(raw: Any) -> int:
    if raw is None:
        return 0
    if not isinstance(raw, int) or isinstance(raw, bool) or raw not in TIERS:
        reason = f"expected an integer from {TIERS[0]} to {TIERS[-1]}"
        raise InvalidPolicy("spec.executionTier", reason)
    return raw


def _operations(raw: Any) -> tuple[str, ...]:
    place = "spec.admissionOperations"
    with ErrorList() as errors:
        found = sequence(raw, place)
        for index, item in enumerate(found):
            if item not in OPERATIONS:
                reason = f"expected one of {', '.join(OPERATIONS)}"
                errors.add(InvalidPolicy(f"{place}[{index}]", reason))
    return tuple(name for name in OPERATIONS if name in found) or DEFAULT_OPERATIONS


def _patch(fields: Mapping[str, Any], kind: Any, references: References) -> Patch | None:
    raw = fields.get("patch")
    if kind == "Reject" and raw:
        raise InvalidPolicy("spec.patch", "a rule of type Reject has no patch; remove it")
    if kind != "Patch":
        return None
    if not raw:
        reason = "a rule of type Patch needs at least one operation, with op, path and value"
        raise InvalidPolicy("spec.patch", reason)
    return read_patch(raw, "spec.patch", references)


def _message(fields: Mapping[str, Any], kind: Any, errors: ErrorList) -> Message | None:
    text = text_in(fields, "rejectMessage", "spec", errors)
    if text is None:
        return None
    if kind == "Patch":
        reason = "a rule of type Patch rejects nothing; remove it, or make the type Reject"
        raise InvalidPolicy("spec.rejectMessage", reason)
    return read_message(text, "spec.rejectMessage")


def _texts(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield all texts of a rule that can name a reference."""
    for list_name in ("match", "patch"):
        parts = fields.get(list_name)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                yield from (
                    part[name] for name in ("select", "value") if isinstance(part.get(name), str)
                )
    message = fields.get("rejectMessage")
    if isinstance(message, str):
        yield message
