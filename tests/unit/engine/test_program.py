from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.meta import Object, PolicyRef
from reconciler.engine.program import CompiledPolicy, Origin, project

TREE: Object = {
    "metadata": {"name": "n", "labels": {"a": "1", "b": "2"}},
    "spec": {"list": [{"x": 1}, {"y": 2}], "deep": {"er": {"est": 3}}},
    "nothing": None,
}


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        ([], {}),
        ([("metadata", "name")], {"metadata": {"name": "n"}}),
        ([("metadata", "labels", "a")], {"metadata": {"labels": {"a": "1"}}}),
        (
            [("metadata", "name"), ("metadata", "labels", "b")],
            {"metadata": {"name": "n", "labels": {"b": "2"}}},
        ),
        ([("metadata", "no"), ("no",)], {"metadata": {}}),
        ([("spec", "list", "0", "x")], {"spec": {"list": TREE["spec"]["list"]}}),
        ([("spec", "deep"), ("spec", "deep", "er")], {"spec": {"deep": TREE["spec"]["deep"]}}),
        ([("spec", "deep", "er"), ("spec", "deep")], {"spec": {"deep": TREE["spec"]["deep"]}}),
        ([("nothing", "x")], {"nothing": None}),
        ([()], TREE),
        ([("metadata", "name"), ()], TREE),
    ],
)
def test_a_projection_keeps_only_the_named_paths(paths, kept):
    assert project(TREE, paths) == kept


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
TREES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
PATHS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), max_size=4)


def read(tree, path):
    for step in path:
        if not isinstance(tree, dict) or step not in tree:
            return "absent"
        tree = tree[step]
    return tree


@given(TREES, PATHS)
def test_a_projection_has_the_same_values_at_its_paths_as_the_whole(tree, paths):
    before = repr(tree)
    kept = project(tree, paths)
    for path in paths:
        assert read(kept, path) == read(tree, path)
    assert repr(tree) == before
    assert project(kept, paths) == kept


@pytest.mark.parametrize(
    ("namespace", "name", "key"), [("", "p", "p"), ("shop", "p", "shop/p"), ("a", "b", "a/b")]
)
def test_an_origin_has_the_namespace_and_key_of_its_policy(namespace, name, key):
    ref = PolicyRef(api_version="kyverno.io/v1", kind="Policy", namespace=namespace, name=name)
    origin = Origin(
        dialect="kyverno",
        policy=ref,
        uid="u",
        generation=1,
        rule="r",
        location="spec.rules[0]",
    )
    assert (origin.namespace, str(origin.policy)) == (namespace, key)
    policy = CompiledPolicy(ref=ref, uid="u", generation=1, programs=())
    assert policy.key == key
    assert policy.program("r") is None
    assert replace(origin, everywhere=True).namespace == ""
