"""Patches that describe the difference between two documents."""

import copy
from typing import Any

import jsonpatch
import pytest

from reconciler.engine.patch import apply_merge_patch, equal, json_diff, merge_diff


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True), (True, 1, False), (0, False, False), (None, 0, False), ("1", 1, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ({"a": None}, {}, False),
        ([1, 2], [2, 1], False), ([1], [1, 1], False), ([True], [1], False), ({}, [], False),
        ({"a": True}, {"a": 1}, False),
    ],
)  # fmt: skip
def test_equal(left: Any, right: Any, expected: bool) -> None:
    assert equal(left, right) is expected
    assert equal(right, left) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, {}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "d": {"e": []}}}, {"a": {"d": {"e": []}}}),
        ({"a": [1]}, {"a": {}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": None}, {"a": None, "b": 1}, {"b": 1}),
        ({"a": None}, {}, {"a": None}),
        ({}, {"a": [None]}, {"a": [None]}),
        ({}, {"a": None}, None),
        ({}, {"a": {"b": None}}, None),
        ({"a": {"b": 1}}, {"a": {"b": None}}, None),
    ],
)
def test_merge_diff(before: Any, after: Any, expected: Any) -> None:
    found = merge_diff(before, after)
    assert found == expected
    assert found is None or equal(apply_merge_patch(before, found), after)


def named(*names: str) -> list[Any]:
    return [{"name": name, "image": "x"} for name in names]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1, 2, 3], [1, 3], [("remove", "/1", None)]),
        ([1, 2], [1, 2, 3], [("add", "/2", 3)]),
        ([1, 2], [0, 1, 2], [("add", "/0", 0)]),
        ([1, 2, 3], [1, 9, 3], [("replace", "/1", 9)]),
        ([1, 2, 3], [], [("remove", "/0", None)] * 3),
        ([1], {"a": 1}, [("replace", "", {"a": 1})]),
        ({"a/b": 1}, {"a~b": 1}, [("remove", "/a~1b", None), ("add", "/a~0b", 1)]),
        ({"a": 1}, {"a": None}, [("replace", "/a", None)]),
        (
            named("a", "b"),
            [{"name": "n"}, *named("a"), {"name": "b", "image": "y"}],
            [("add", "/0", {"name": "n"}), ("replace", "/2/image", "y")],
        ),
    ],
)
def test_json_diff(before: Any, after: Any, expected: Any) -> None:
    found = [(item["op"], item["path"], item.get("value")) for item in json_diff(before, after)]
    assert found == expected


def test_a_long_list_is_compared_index_by_index() -> None:
    before = [{"name": str(number)} for number in range(3000)]
    after = [{"name": str(number)} for number in range(1, 3000, 2)]
    operations = json_diff(before, after)
    assert len(operations) == 2999
    assert operations[-1] == {"op": "remove", "path": "/1499"}


MANY = {f"key-{number}": "value" for number in range(4)}
LONG = {"of-others": "x" * 200}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"labels": {"a": "b"}}, {"labels": {"a": "b", **MANY}}, [("replace", "/labels")]),
        ({"labels": {"a": "b", **MANY}}, {"labels": {"a": "b"}}, [("replace", "/labels")]),
        (
            {"labels": {**MANY, "a": {"b": 1}}},
            {"labels": {"a": {"b": 2}}},
            [("replace", "/labels")],
        ),
        # The unchanged part is longer than the changes.
        ({"labels": LONG}, {"labels": LONG | MANY}, [("add", f"/labels/{key}") for key in MANY]),
        # A document is never replaced as a whole.
        ({}, MANY, [("add", f"/{key}") for key in MANY]),
        # Single operations are clearer, and no longer.
        (
            {"labels": {"a": "b"}},
            {"labels": {"a": "b", "c": "d"}},
            [("add", "/labels/c")],
        ),
    ],
)
def test_a_mostly_changed_map_is_replaced_as_a_whole(
    before: Any, after: Any, expected: Any
) -> None:
    found = json_diff(before, after, folded=True)
    assert [(item["op"], item["path"]) for item in found] == expected
    assert jsonpatch.apply_patch(copy.deepcopy(before), found) == after
