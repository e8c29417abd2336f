"""The types within affinities and topologySpreadConstraints of policies."""

from typing import Any

import pytest

from reconciler.dialects.kinitiras import KINITIRAS
from tests.unit.dialects.kinitiras.test_policies import policy
from tests.unit.dialects.kinitiras.test_wrong_values import OVERRIDE, overriding

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        *(
            ("affinity", {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}, place)
            for term, place in (
                (None, ""),
                ({"matchExpressions": {}}, "matchExpressions"),
                ({"matchExpressions": ["x"]}, "matchExpressions[0]"),
                ({"matchFields": [{"key": 5}]}, "matchFields[0].key"),
                ({"matchExpressions": [{"values": "ssd"}]}, "matchExpressions[0].values"),
                ({"matchExpressions": [{"values": [1]}]}, "matchExpressions[0].values[0]"),
            )
        ),
        *(
            ("affinity", {kind: {PREFERRED: [term]}}, place)
            for kind, term, place in (
                ("nodeAffinity", {"weight": "5"}, "weight"),
                ("nodeAffinity", {"preference": []}, "preference"),
                ("podAffinity", {"podAffinityTerm": {"topologyKey": 1}}, "topologyKey"),
                ("podAntiAffinity", {"podAffinityTerm": {"namespaces": "a"}}, "namespaces"),
                (
                    "podAffinity",
                    {"podAffinityTerm": {"labelSelector": {"matchLabels": {"a": True}}}},
                    "labelSelector.matchLabels.a",
                ),
            )
        ),
        ("affinity", {"nodeAffinity": {REQUIRED: None}}, REQUIRED),
        ("affinity", {"podAffinity": {PREFERRED: None}}, PREFERRED),
        *(
            ("topologySpreadConstraints", [constraint], place)
            for constraint, place in (
                (None, ""),
                ({"maxSkew": "1"}, "maxSkew"),
                ({"topologyKey": ["zone"]}, "topologyKey"),
                ({"labelSelector": "app"}, "labelSelector"),
            )
        ),
    ],
    ids=repr,
)
def test_a_term_of_a_wrong_type_is_refused_with_its_place(
    field: str, value: Any, place: str
) -> None:
    (error,) = overriding(origin=[{"type": field, field: value}])
    location, _, reason = error.partition(": ")
    assert location.startswith(f"spec.overrideRules[0].overriders.origin[0].{field}")
    assert location.endswith(place or "[0]")
    assert reason.startswith("expected ")


def test_terms_of_an_affinity_may_have_every_field() -> None:
    expressions = [{"key": "a", "operator": "In", "values": ["b"]}]
    labels = {"matchLabels": {"a": "b"}, "matchExpressions": expressions}
    node = {"matchExpressions": expressions, "matchFields": expressions}
    pod = {
        "labelSelector": labels,
        "namespaceSelector": {},
        "namespaces": ["a"],
        "topologyKey": "zone",
        "matchLabelKeys": ["a"],
        "mismatchLabelKeys": None,
        "of-a-later-version": 5,
    }
    weighted = [{"weight": 1, "podAffinityTerm": pod}]
    affinity = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [node]},
            PREFERRED: [{"weight": 1, "preference": node}],
        },
        "podAffinity": {REQUIRED: [pod], PREFERRED: weighted},
        "podAntiAffinity": {REQUIRED: [pod], PREFERRED: weighted},
    }
    spread = {
        "maxSkew": 1,
        "minDomains": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": labels,
        "matchLabelKeys": ["a"],
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Ignore",
    }
    origin = [
        {"type": "affinity", "affinity": affinity},
        {"type": "topologySpreadConstraints", "topologySpreadConstraints": [spread]},
    ]
    rule = {"overriders": {"origin": origin}}
    compiled = KINITIRAS.compile(policy(OVERRIDE, {"overrideRules": [rule]}))
    mutation: Any = compiled.programs[0].mutation
    first, second = mutation.origin
    assert (first.value, second.value) == (affinity, [spread])
