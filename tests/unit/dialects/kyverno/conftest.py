"""A valid policy, and functions that change places in it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api.meta import Object

Change = tuple[Any, ...]
Build = Callable[..., Object]

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
def policy() -> Build:
    """Return a builder of a valid policy with ``(place, value)`` changes; ``(place,)`` deletes."""

    def build(*changes: Change) -> Object:
        built: Object = copy.deepcopy(POLICY)
        for place, *values in changes:
            *steps, last = place
            part: Any = built
            for step in steps:
                part = part[step]
            if values:
                part[last] = values[0]
            else:
                del part[last]
        return built

    return build


@pytest.fixture
def rule(policy: Build) -> Build:
    """Return a builder like `policy`, with places relative to its only rule."""
    inside = ("spec", "rules", 0)
    return lambda *changes: policy(*(((*inside, *place), *values) for place, *values in changes))
