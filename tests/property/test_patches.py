"""Laws of patches: a diff leads to the other document, and a repeated merge changes nothing."""

import contextlib
import copy
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from reconciler.dialects.kyverno.anchors import compile_strategic
from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.dialects.kyverno.pattern import parse_anchor
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import (
    LENIENT,
    SHIPPED,
    KeyTable,
    Profile,
    apply_merge_patch,
    apply_operations,
    compile_operations,
    equal,
    json_diff,
    merge,
    merge_diff,
)
from reconciler.errors import EvaluationError, InvalidPolicy

STRICT = Profile(
    create_parents=False, ignore_absent=False, negative_index=False, absent_is_null=False
)
KEYS = st.sampled_from(["a", "b", "name", "c/d", "e~f", "", "0", "-"])
SCALARS = st.one_of(
    st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 1.5]), st.sampled_from("xyz")
)
VALUES = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=16,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


def contains_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(inner is None or contains_null(inner) for inner in value.values())
    return False


@given(before=DOCUMENTS, after=DOCUMENTS, folded=st.booleans())
def test_applying_a_json_diff_yields_the_other_document(
    before: Any, after: Any, folded: bool
) -> None:
    found = json_diff(before, after, folded=folded)
    operations = compile_operations(found, location="diff")
    assert equal(apply_operations(before, operations, profile=LENIENT), after)
    assert equal(jsonpatch.apply_patch(copy.deepcopy(before), copy.deepcopy(found)), after)
    assert (found == []) is equal(before, after)


@given(before=DOCUMENTS, after=DOCUMENTS)
def test_a_merge_diff_yields_the_other_document_or_is_none_for_nulls(
    before: Any, after: Any
) -> None:
    patch = merge_diff(before, after)
    if patch is None:
        assert contains_null(after)
    else:
        assert equal(apply_merge_patch(before, patch), after)
        assert (patch == {}) is equal(before, after)


@given(document=VALUES)
def test_equal_documents_have_no_difference(document: Any) -> None:
    twin = copy.deepcopy(document)
    assert equal(document, twin)
    assert json_diff(document, twin) == []


POINTERS = st.lists(
    st.sampled_from(["a", "b", "name", "0", "1", "-", "-1", "7", "x", ""]), max_size=4
).map(lambda parts: "".join(f"/{part}" for part in parts))
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": POINTERS,
            "from": POINTERS,
            "value": VALUES,
        }
    ),
    max_size=6,
)


@given(document=VALUES, operations=OPERATIONS, profile=st.sampled_from([LENIENT, STRICT]))
def test_a_json_patch_succeeds_or_raises_and_never_changes_its_input(
    document: Any, operations: Any, profile: Any
) -> None:
    before = copy.deepcopy(document)
    compiled = compile_operations(operations, location="patch")
    with contextlib.suppress(EvaluationError):
        apply_operations(document, compiled, profile=profile)
    assert equal(document, before)


@given(document=VALUES, operations=OPERATIONS)
def test_a_strict_json_patch_agrees_with_the_jsonpatch_library(
    document: Any, operations: Any
) -> None:
    compiled = compile_operations(operations, location="patch")
    try:
        found = apply_operations(document, compiled, profile=STRICT)
    except EvaluationError:
        return
    expected = jsonpatch.apply_patch(copy.deepcopy(document), copy.deepcopy(operations))
    assert equal(found, expected)


@given(text=st.text(alphabet="-[]{}:,&*!|>'\"# \n\t<abc01.~yn", max_size=60))
def test_any_text_is_parsed_or_refused_as_an_invalid_policy(text: str) -> None:
    with contextlib.suppress(InvalidPolicy):
        compile_operations(parse_operations(text, location="spec.patch"), location="spec.patch")


NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.sampled_from(["x", "y", True, 5])


def keyed(key: str, values: Any, fields: dict[str, Any]) -> Any:
    element = st.fixed_dictionaries({key: values}, optional=fields)
    return st.lists(element, max_size=3, unique_by=lambda item: item[key])


CONTAINERS = keyed(
    "name",
    NAMES,
    {
        "image": LEAVES,
        "env": keyed("name", NAMES, {"value": LEAVES}),
        "args": st.lists(LEAVES, max_size=2),
        "volumeMounts": keyed("mountPath", NAMES, {"readOnly": LEAVES}),
    },
)
PODS = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("Pod")},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(NAMES, LEAVES | st.none(), max_size=3),
                "finalizers": st.lists(NAMES, max_size=3, unique=True),
            },
        ),
        "spec": st.fixed_dictionaries({}, optional={"containers": CONTAINERS}),
    },
)


@given(resource=PODS)
def test_an_empty_patch_changes_nothing(resource: Any) -> None:
    assert merge(resource, {}, SHIPPED) is resource


@given(resource=PODS, patch=PODS, keys=st.sampled_from([SHIPPED, KeyTable(kinds={})]))
def test_a_strategic_merge_is_idempotent(resource: Any, patch: Any, keys: Any) -> None:
    before = copy.deepcopy((resource, patch))
    once = merge(resource, patch, keys)
    assert merge(once, patch, keys) is once
    assert equal([resource, patch], list(before))


@given(resource=PODS, patch=PODS)
def test_a_strategic_merge_keeps_every_element_that_the_patch_does_not_name(
    resource: Any, patch: Any
) -> None:
    old = resource.get("spec", {}).get("containers", [])
    named = {item["name"] for item in patch.get("spec", {}).get("containers", [])}
    new = merge(resource, patch, SHIPPED).get("spec", {}).get("containers", [])
    assert [item for item in new if item["name"] not in named] == [
        item for item in old if item["name"] not in named
    ]
    assert {item["name"] for item in new} == named | {item["name"] for item in old}


PLAIN = st.sampled_from(["a", "b", "name"])
ANCHORED = st.builds(
    lambda mark, key: f"{mark}({key})", st.sampled_from(["", "<", "+", "X"]), PLAIN
)
PATCHES = st.dictionaries(
    PLAIN | ANCHORED,
    st.recursive(
        st.sampled_from(["x", "*", "?*", "!x", 1, True, None]),
        lambda inner: (
            st.dictionaries(PLAIN | ANCHORED, inner, max_size=3)
            | st.lists(st.dictionaries(PLAIN | ANCHORED, inner, max_size=3), max_size=3)
        ),
        max_leaves=10,
    ),
    max_size=4,
)
RESOURCES = st.dictionaries(
    PLAIN,
    st.recursive(
        st.sampled_from(["x", "y", 1, True]),
        lambda inner: (
            st.dictionaries(PLAIN, inner, max_size=3)
            | st.lists(st.dictionaries(PLAIN, inner, max_size=3), max_size=3)
        ),
        max_leaves=10,
    ),
    max_size=3,
)


def anchors_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        here = [key for key in value if parse_anchor(key)]
        return here + [key for inner in value.values() for key in anchors_in(inner)]
    if isinstance(value, list):
        return [key for inner in value for key in anchors_in(inner)]
    return []


@given(patch=PATCHES, resource=RESOURCES)
def test_an_anchor_never_leaks_into_the_output(patch: Any, resource: Any) -> None:
    before = copy.deepcopy((patch, resource))
    compiled = compile_strategic(patch, location="patch")
    with contextlib.suppress(EvaluationError):  # a map where the object has a list
        plain = compiled.resolve(patch, resource)
        assert isinstance(plain, Unmet) or anchors_in(merge(resource, plain, SHIPPED)) == []
    assert equal([patch, resource], list(before))


@given(value=RESOURCES, resource=RESOURCES)
def test_a_substituted_map_is_never_read_as_anchors(value: Any, resource: Any) -> None:
    written = {"data": "{{ request.object.data }}", "(a)": "{{ b }}"}
    compiled = compile_strategic(written, location="patch")
    data = {"(a)": "never", "kept": value}
    plain = compiled.resolve({"data": data, "(a)": "x"}, {**resource, "a": "x"})
    assert plain == {"data": data}


def directed(fields: Any) -> Any:
    """Return a strategy for a map of a patch, with directives beside its fields."""
    named = st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=3, unique_by=str)
    beside = st.fixed_dictionaries(
        {},
        optional={
            "$setElementOrder/containers": named,
            "$setElementOrder/finalizers": st.lists(NAMES, max_size=3, unique=True),
            "$deleteFromPrimitiveList/finalizers": st.lists(NAMES, max_size=2),
            "$deleteFromPrimitiveList/args": st.lists(LEAVES, max_size=2),
            "$retainKeys": st.lists(
                st.sampled_from(["containers", "labels", "finalizers"]), max_size=3
            ),
            "$patch": st.sampled_from(["replace", "delete", "merge"]),
        },
    )
    return st.tuples(fields, beside).map(lambda both: {**both[0], **both[1]})


DIRECTED = st.fixed_dictionaries(
    {},
    optional={
        "metadata": directed(
            st.fixed_dictionaries(
                {},
                optional={
                    "labels": directed(st.dictionaries(NAMES, LEAVES, max_size=2)),
                    "finalizers": st.lists(NAMES, max_size=2, unique=True),
                },
            )
        ),
        "spec": directed(
            st.fixed_dictionaries(
                {},
                optional={
                    "containers": st.lists(
                        directed(
                            st.fixed_dictionaries({"name": NAMES}, optional={"image": LEAVES})
                        ),
                        max_size=3,
                        unique_by=lambda item: item["name"],
                    )
                },
            )
        ),
    },
)


def directives_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        here = [key for key in value if key.startswith("$")]
        return here + [key for inner in value.values() for key in directives_in(inner)]
    if isinstance(value, list):
        return [key for inner in value for key in directives_in(inner)]
    return []


@given(resource=PODS, patch=DIRECTED)
def test_directives_are_idempotent_and_never_leak_into_the_output(
    resource: Any, patch: Any
) -> None:
    before = copy.deepcopy((resource, patch))
    with contextlib.suppress(EvaluationError):  # an order or $retainKeys that lacks something
        once = merge(resource, patch, SHIPPED)
        assert directives_in(once) == []
        twice = merge(once, patch, SHIPPED)
        assert equal(twice, once), (once, twice)
    assert equal([resource, patch], list(before))
