"""A sound policy, and ways to change one place of it."""

import copy

import pytest

TARGET = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}
RULE = {
    "name": "r",
    "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
    "mutate": {
        "targets": [TARGET],
        "patchStrategicMerge": {"metadata": {"labels": {"done": "yes"}}},
    },
}
POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "p", "uid": "u", "generation": 4},
    "spec": {"rules": [RULE]},
}


@pytest.fixture
def policy():
    """Return a sound policy after ``(place, value)`` changes; without a value a field goes."""

    def build(*changes):
        built = copy.deepcopy(POLICY)
        for place, *values in changes:
            *steps, last = place
            part = built
            for step in steps:
                part = part[step]
            if values:
                part[last] = values[0]
            else:
                del part[last]
        return built

    return build


@pytest.fixture
def rule(policy):
    """As `policy`; the places are inside its only rule."""
    inside = ("spec", "rules", 0)
    return lambda *changes: policy(*(((*inside, *place), *values) for place, *values in changes))
