"""The label that an object must have for policies to apply to it.

The original has it in its webhook configuration, where users may change it. Here an annotation
of each policy decides, so that the desk and the cluster agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.api.meta import PREFIX, Object
from reconciler.dialects.base import annotations_of
from reconciler.engine.context import Context
from reconciler.engine.outcome import ConditionResult
from reconciler.engine.ports import Condition
from reconciler.errors import InvalidPolicy

LABEL: Final = ("kinitiras.kcloudlabs.io/webhook", "enabled")
ANNOTATION: Final = f"{PREFIX}objects"
"""On a policy: ``all`` also includes objects without the label; ``labelled`` is the default."""

_LABELLED, _ALL = "labelled", "all"
_OBJECTS: Final = ("object", "oldObject")


def read_label(policy: Object) -> tuple[str, str] | None:
    """Return the label that a policy requires of objects, or None.

    Raises:
        InvalidPolicy: The annotation has an unknown value.
    """
    value = annotations_of(policy).get(ANNOTATION, _LABELLED)
    if value not in (_LABELLED, _ALL):
        place = f"metadata.annotations[{ANNOTATION}]"
        raise InvalidPolicy(place, f"expected {_LABELLED} or {_ALL}")
    return LABEL if value == _LABELLED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Requires a label of the object, before or after the request, besides another condition.

    Attributes:
        rest: The other condition of the rule, or None.
    """

    label: tuple[str, str]
    rest: Condition | None
    roots: frozenset[str] = field(default=frozenset({"request"}), repr=False)
    reads: frozenset[tuple[str, ...]] = field(
        default=frozenset(("request", name) for name in _OBJECTS), repr=False
    )

    def evaluate(self, context: Context) -> ConditionResult:
        """Return whether the label and the rest hold; see `reconciler.engine.ports.Condition`."""
        request = context.data["request"]
        if not any(self._is_on(request.get(name)) for name in _OBJECTS):
            name, value = self.label
            return ConditionResult(passed=False, message=f"it has no label {name}: {value}")
        return ConditionResult(passed=True) if self.rest is None else self.rest.evaluate(context)

    def _is_on(self, obj: Any) -> bool:
        labels = ((obj or {}).get("metadata") or {}).get("labels")
        name, value = self.label
        return isinstance(labels, Mapping) and labels.get(name) == value
