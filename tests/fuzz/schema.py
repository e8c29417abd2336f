"""Generates values that the schema of a CustomResourceDefinition accepts."""

from collections.abc import Mapping
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.architecture.conftest import ROOT
from tests.fuzz.documents import MAPPINGS, TEXTS, VALUES

_INT64 = 2**63
_TIMES = st.sampled_from(
    [
        "0001-01-01T00:00:00Z",
        "2026-06-01T12:00:00Z",
        "2026-06-01T12:00:00.123456789Z",
        "2026-06-01T12:00:00+23:59",
        "2027-01-01T00:00:00-23:59",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59.999999-23:59",
    ]
)


def stored_schema(file: str) -> Mapping[str, Any]:
    """Return the schema of the storage version of a CRD of kube-retrofit."""
    definition = yaml.safe_load((ROOT / "crds" / file).read_text())
    (version,) = (item for item in definition["spec"]["versions"] if item["storage"])
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def draw_value(draw: st.DrawFn, schema: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """Draw a value that a schema accepts.

    Args:
        draw: Draw function of Hypothesis.
        schema: Schema of the value, as in a CRD.
        known: Strategies by field name, mostly used instead of the schema, for meaningful values.
    """
    if enum := schema.get("enum"):
        return draw(st.sampled_from(enum))
    match schema.get("type"):
        case "object":
            return _draw_object(draw, schema, known)
        case "array":
            count = draw(st.integers(0, 3))
            return [draw_value(draw, schema["items"], known) for _ in range(count)]
        case "integer":
            least = schema.get("minimum", -_INT64)
            return draw(
                st.sampled_from([max(least, 0), 1, least, _INT64 - 1, 2**53 + 1])
                | st.integers(least, _INT64 - 1)
            )
        case "boolean":
            return draw(st.booleans())
        case "string":
            return draw(_TIMES if schema.get("format") == "date-time" else TEXTS)
        case _:
            return draw(VALUES)


def _draw_object(draw: st.DrawFn, schema: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    found: dict[str, Any] = {}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        found |= draw(MAPPINGS)
    if isinstance(more := schema.get("additionalProperties"), Mapping):
        for key in draw(st.lists(TEXTS, max_size=2)):
            found[key] = draw_value(draw, more, known)
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        if name not in required and not draw(st.booleans()):
            found.pop(name, None)
            continue
        usual = draw(st.integers(0, 3)) and name in known
        found[name] = draw(known[name]) if usual else draw_value(draw, field, known)
    return found
