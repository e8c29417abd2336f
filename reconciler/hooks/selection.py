"""Parser of a binding's selectors: names, labels and fields, and those of namespaces."""

from collections.abc import Sequence
from typing import Any, Final

from reconciler.engine.match.selectors import LabelSelector, compile_selector
from reconciler.errors import InvalidPolicy
from reconciler.hooks.bindings import FieldTest, ObjectSelection
from reconciler.hooks.fields import Fields

_FIELD_OPERATORS: Final = ("=", "==", "Equals", "!=", "NotEquals")
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NAME: Final = "metadata.name"


def read(binding: Fields) -> ObjectSelection:
    """Read the selectors of a Kubernetes binding."""
    found = ObjectSelection(
        names=_names(binding.part("nameSelector")),
        labels=labels(binding),
        fields=_field_tests(binding.part("fieldSelector")),
        **_namespace(binding.part("namespace")),
    )
    if found.names and any(test.field == _NAME for test in found.fields or ()):
        reason = f"{_NAME} is selected both here and by nameSelector: use one of them"
        binding.refuse("fieldSelector", reason)
    return found


def labels(owner: Fields) -> LabelSelector | None:
    """Read the field ``labelSelector``; None if it selects everything."""
    fields = owner.part("labelSelector")
    if fields is None:
        return None
    if not len(fields):
        fields.refuse("", "is empty: write matchLabels or matchExpressions")
    matched = _match_labels(fields.part("matchLabels"))
    expressions = [_expression(part) for part in fields.parts("matchExpressions")]
    fields.close()
    return _compile(fields, matched, expressions)


def _match_labels(fields: Fields | None) -> dict[str, str]:
    if fields is None:
        return {}
    found = {}
    for name in fields.names():
        value = fields.text(name)
        if {"*", "?"} & {*name, *value}:
            fields.refuse(name, "a label has no wildcards: write the key and value in full")
        else:
            found[name] = value
    return found


def _expression(fields: Fields) -> dict[str, Any]:
    fields.require("key", "operator")
    if fields.raw("key") == "":
        fields.refuse("key", "is empty: name a label")
    found: dict[str, Any] = {
        "key": fields.text("key"),
        "operator": fields.text("operator", among=_LABEL_OPERATORS),
        "values": list(fields.texts("values")),
    }
    fields.close()
    return found


def _compile(
    fields: Fields, matched: dict[str, str], expressions: Sequence[dict[str, Any]]
) -> LabelSelector | None:
    # Skip expressions that are already reported as invalid.
    whole = [item for item in expressions if item["key"] and item["operator"]]
    if not matched and not whole:
        return None
    raw = {"matchLabels": matched, "matchExpressions": whole}
    try:
        return compile_selector(raw, location="")
    except InvalidPolicy as error:
        for problem in (error, *error.others):
            fields.refuse(problem.location.removeprefix("."), problem.reason)
        return None


def _names(fields: Fields | None) -> tuple[str, ...] | None:
    if fields is None:
        return None
    fields.require("matchNames")
    found = fields.texts("matchNames")
    fields.close()
    return found


def _field_tests(fields: Fields | None) -> tuple[FieldTest, ...] | None:
    if fields is None:
        return None
    fields.require("matchExpressions")
    found = tuple(_field_test(part) for part in fields.parts("matchExpressions"))
    fields.close()
    return found


def _field_test(fields: Fields) -> FieldTest:
    fields.require("field", "operator", "value")
    found = FieldTest(
        field=fields.text("field"),
        operator=fields.text("operator", among=_FIELD_OPERATORS),
        value=fields.text("value"),
    )
    fields.close()
    return found


def _namespace(fields: Fields | None) -> dict[str, Any]:
    if fields is None:
        return {}
    if not len(fields):
        fields.refuse("", "is empty: write nameSelector or labelSelector")
    found = {"namespaces": _names(fields.part("nameSelector")), "namespace_labels": labels(fields)}
    fields.close()
    return found
