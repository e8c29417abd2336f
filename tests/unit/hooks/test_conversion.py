"""The shortest chain of conversions, and the fields that a conversion may not change."""

import pytest

from reconciler.errors import InvalidPolicy
from reconciler.hooks.conversion import (
    ConversionStep,
    check_converted,
    is_version,
    shortest_chain,
    versions_of,
)


def chain(text, start, goal):
    """Return the chain as text; ``text`` lists the steps, as ``a>b b>c``."""
    steps = [ConversionStep(*item.split(">"), owner=0) for item in text.split()]
    return " ".join(f"{step.start}>{step.goal}" for step in shortest_chain(steps, start, goal))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("v1", "v1", True),
        ("a/v1", "v1", True),
        ("v1", "a/v1", True),
        ("a/v1", "a/v1", True),
        ("a/v1", "b/v1", False),
        ("v1", "v1beta1", False),
        ("a/v1beta1", "v1", False),
    ],
)
def test_a_version_matches_with_and_without_its_group(one, other, same):
    assert is_version(one, other) is same


@pytest.mark.parametrize(
    ("steps", "start", "goal", "found"),
    [
        ("v1a>v1b", "g/v1a", "g/v1b", "v1a>v1b"),
        ("v1a>v1b v1b>v1", "g/v1a", "g/v1", "v1a>v1b v1b>v1"),
        # The shortest chain, independent of the order of declaration.
        ("v1>v2 v2>v3 v3>v4 v1>v4", "v1", "v4", "v1>v4"),
        ("v1>v2 v2>v3 v1>v5 v5>v3 v3>v4", "v1", "v4", "v1>v2 v2>v3 v3>v4"),
        ("v1>v2 v2>v1 v2>v3", "v1", "v3", "v1>v2 v2>v3"),
        # A version does not match by its prefix: v1 is not v1beta1.
        ("v1alpha1>v1 v1beta1>v2", "v1alpha1", "v2", ""),
        ("v1>v2", "v2", "v1", ""),
        ("v1>v2", "v3", "v2", ""),
        ("v1>v2", "v1", "v3", ""),
        ("", "v1", "v2", ""),
        # A version matches within its group only; a version without a group matches any group.
        ("u/v1>s/v1 s/v1>s/v2 v2>v3", "u/v1", "s/v3", "u/v1>s/v1 s/v1>s/v2 v2>v3"),
        ("u/v1>s/v1 s/v1>s/v2 v2>v3", "u/v1", "u/v2", ""),
        ("v1>v2 g/v1>g/v2", "g/v1", "g/v2", "g/v1>g/v2"),
        ("v1>v2 v1>g/v2", "g/v1", "g/v2", "v1>g/v2"),
    ],
)
def test_the_shortest_chain_is_found(steps, start, goal, found):
    assert chain(steps, start, goal) == found


def test_a_chain_is_found_among_many_conversions():
    steps = [
        ConversionStep(f"v{a}", f"v{b}", 0) for a in range(60) for b in range(60) if 0 < b - a < 9
    ]
    assert len(shortest_chain(steps, "v0", "v59")) == 8
    assert shortest_chain(steps, "v59", "v0") == ()


def make(version="g/v1", **meta):
    return {
        "apiVersion": version,
        "kind": "CronTab",
        "metadata": {"name": "a", "namespace": "n", "uid": "u", **meta},
    }


def test_a_conversion_can_change_labels_and_fields_outside_of_metadata():
    new = {**make("g/v2", labels={"a": "b"}), "spec": {"x": 1}}
    assert check_converted([make()], [new], ("v2",)) == (new,)
    assert check_converted([make()], [make("g/v3")], ("v2", "g/v3")) == (make("g/v3"),)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([], "has 0 objects, expected 1"),
        ([make("g/v2"), make("g/v2")], "has 2 objects"),
        ([None], "[0]: expected an object, got"),
        ([{"apiVersion": "g/v2", "kind": "CronTab"}], "expected an object with metadata"),
        ([make()], "[0].apiVersion: is 'g/v1', expected g/v2"),
        ([{**make("g/v2"), "apiVersion": 2}], "[0].apiVersion: is 2, expected g/v2"),
        ([{**make("g/v2"), "kind": "Cron"}], "[0].kind: is 'Cron', but a conversion must keep"),
        ([make("g/v2", name="b")], "[0].metadata.name: is 'b', but a conversion must keep 'a'"),
        ([make("g/v2", namespace=None)], "[0].metadata.namespace: is None"),
        ([make("g/v2", uid="v")], "[0].metadata.uid: is 'v'"),
    ],
)
def test_a_forbidden_change_by_a_conversion_is_refused_with_its_location(after, said):
    with pytest.raises(InvalidPolicy) as caught:
        check_converted([make()], after, ("g/v2",))
    assert said in str(caught.value)


def test_each_version_of_the_objects_is_listed_once():
    assert versions_of([make(), make("g/v2"), make()]) == ("g/v1", "g/v2")
