"""Rendering of objects and their differences as text."""

from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.cli.desk.emit import paint, render_yaml, unified_diff
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.terminal import styled


def obj(**data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"one": "1"}},
        "data": data,
    }


def test_objects_are_rendered_as_yaml() -> None:
    value: Object = {
        "a": [{"b": "1", "c": []}, "x: y"],
        "d": "one\ntwo\n",
        "e": {},
        "f": None,
        "g": "no",
    }
    assert render_yaml(value) == (
        'a:\n- b: "1"\n  c: []\n- "x: y"\nd: |\n  one\n  two\ne: {}\nf: null\ng: "no"\n'
    )


@pytest.mark.parametrize("text", ["100m", "1Gi", "web-1", "a.b/c:1.2", "shop", "a, b"])
def test_ordinary_strings_are_not_quoted(text: str) -> None:
    assert render_yaml({"a": text}) == f"a: {text}\n"


def test_a_diff_shows_removed_lines() -> None:
    before, after = obj(**{f"k{n}": "v" for n in range(10)}), obj(k0="v")
    lines = unified_diff(before, after, names=("old", "new"))
    assert lines[:3] == ["--- old", "+++ new", "@@ -6,12 +6,3 @@"]
    assert sum(line.startswith("-  k") for line in lines) == 9


def test_a_diff_counts_lines_of_the_whole_object() -> None:
    before = obj(**{f"k{n:02}": "v" for n in range(40)})
    after = {**before, "data": {**before["data"], "k39": "w"}}
    assert unified_diff(before, after, names=("old", "new"))[2] == "@@ -44,4 +44,4 @@"


def test_equal_objects_have_an_empty_diff() -> None:
    assert unified_diff(obj(), obj(), names=("old", "new")) == []


def test_added_lines_are_coloured() -> None:
    assert paint(["+a", " b"], Screen(coloured=True)) == [styled("\x1b[32m+a\x1b[0m"), " b"]
