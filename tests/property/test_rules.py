"""Laws of a rule at one target, for any patch and any object."""

import copy
from typing import Any

from hypothesis import given, reject
from hypothesis import strategies as st

from reconciler.api.meta import Object
from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import Context, request_context
from reconciler.engine.evaluate import change
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.patch import equal
from reconciler.engine.program import Program
from reconciler.errors import InvalidPolicy

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b*", "7"])
KEYS = st.sampled_from(["a", "b", "c", "list", "name"])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)
CONTENTS = st.dictionaries(KEYS, TREES, max_size=3)
STEPS = st.sampled_from(["a", "b", "list", "0", "1", "-1", "-", "name"])
PATHS = st.lists(STEPS, min_size=1, max_size=3).map(lambda steps: "/spec/" + "/".join(steps))
VARIABLES = st.sampled_from(
    [
        "{{ request.object.data.v }}",
        "{{ request.object.data.tree }}",
        "{{ target.spec.a || 'none' }}",
        "{{ target.spec.list || `[]` }}x",
        "{{ to_string(target.spec) }}",
    ]
)
OPERATIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "op": st.sampled_from(["add", "replace", "test"]),
                "path": PATHS,
                "value": TREES | VARIABLES,
            }
        ),
        st.fixed_dictionaries({"op": st.just("remove"), "path": PATHS}),
        st.fixed_dictionaries(
            {"op": st.sampled_from(["move", "copy"]), "path": PATHS, "from": PATHS}
        ),
    ),
    min_size=1,
    max_size=4,
)
PATCHES = st.recursive(
    SCALARS | VARIABLES,
    lambda inner: (
        st.dictionaries(KEYS | st.sampled_from(["+(a)", "(b)", "<(c)"]), inner, max_size=3)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=6,
)
TRIGGER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "a"},
    "data": {"v": "1", "tree": {"a": [1]}, "star": "*"},
}


def program_of(**mutate: Any) -> Program:
    target = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "namespace": "a"}
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "mutate": {"targets": [target], **mutate},
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    return compile_policy(policy).programs[0]


def context_of(trigger: Object) -> Context:
    return request_context(
        operation="CREATE",
        obj=trigger,
        old_object={},
        name="c",
        namespace="a",
        kind=("", "v1", "ConfigMap"),
        user_info=None,
    )


def thing(spec: Any) -> Object:
    meta = {"name": "t", "namespace": "a", "uid": "u", "resourceVersion": "1"}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta, "spec": spec}


def check_laws(program: Program, obj: Object) -> None:
    context = context_of(TRIGGER)
    before = copy.deepcopy(obj)
    first = change(program, 0, context, obj)
    assert equal(obj, before)
    if first.status is not RuleStatus.PASS:
        assert first.after is obj
        assert first.message
        return
    assert not equal(first.after, obj)
    meta = first.after["metadata"]
    assert (meta["name"], meta["namespace"], meta["uid"]) == ("t", "a", "u")
    again = change(program, 0, context, first.after)
    if not first.repeats:
        # If the result is fed back, the patch changes nothing or cannot be applied at all.
        assert again.status is not RuleStatus.PASS, (first.after, again.after)


@given(OPERATIONS, CONTENTS)
def test_a_json_patch_converges_or_is_known_not_to(
    operations: list[dict[str, Any]], spec: dict[str, Any]
) -> None:
    lines = "\n".join(f"- {operation!r}" for operation in operations)
    text = lines.replace("None", "null").replace("True", "true").replace("False", "false")
    check_laws(program_of(patchesJson6902=text), thing(spec))


@given(st.dictionaries(KEYS, PATCHES, min_size=1, max_size=3), CONTENTS)
def test_a_strategic_patch_converges_or_is_known_not_to(
    patch: dict[str, Any], spec: dict[str, Any]
) -> None:
    try:
        program = program_of(patchStrategicMerge={"spec": patch})
    except InvalidPolicy:
        reject()
    check_laws(program, thing(spec))


@given(
    st.text(max_size=60),
    st.sampled_from(
        [
            "- op: add\n  path: /spec/x\n  value: {}",
            "- op: add\n  path: /spec/x\n  value: '{}'",
            '- {{op: add, path: /spec/x, value: "{}"}}',
            '[{{"op": "add", "path": "/spec/x", "value": "{}"}}]',
            '[{{"op": "add", "path": "/spec/x", "value": {}}}]',
        ]
    ),
)
def test_a_substituted_text_does_not_alter_the_structure_of_a_patch(text: str, form: str) -> None:
    trigger = {**TRIGGER, "data": {"text": text}}
    program = program_of(patchesJson6902=form.format("{{ request.object.data.text }}"))
    result = change(program, 0, context_of(trigger), thing({"y": 1}))
    assert result.status is RuleStatus.PASS
    written = result.after["spec"]
    assert set(written) == {"x", "y"}
    # Without quotes a text may mean a number, true, false or null, as anywhere in YAML.
    assert written["x"] == text or not isinstance(written["x"], str | list | dict)


# Other names would lead an API call to another path and are refused.
NAMES = st.text(min_size=1, max_size=20).filter(
    lambda text: text not in {".", ".."} and not {"/", "%"} & set(text)
)


@given(NAMES)
def test_a_substituted_target_name_is_taken_literally(text: str) -> None:
    policy_target = {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": "{{ request.object.data.text }}",
        "namespace": "{{ request.object.data.text }}",
    }
    program = program_of(targets=[policy_target], patchStrategicMerge={"a": "b"})
    assert program.targets is not None
    found, errors = program.targets.queries(context_of({**TRIGGER, "data": {"text": text}}))
    assert not errors
    (query,) = found
    assert query.name is not None
    assert (query.name.text, query.name.exact) == (text, True)
    assert query.accepts({"metadata": {"name": text, "namespace": text}})
    assert not query.accepts({"metadata": {"name": f"{text}x", "namespace": text}})


ELEMENTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", "c"])}, optional={"on": st.booleans()}
    ),
    max_size=4,
)


@given(
    ELEMENTS,
    st.sampled_from(["Ascending", "Descending"]),
    st.sampled_from(
        [
            {"patchesJson6902": "- {op: add, path: '/spec/{{ element.name }}', value: 1}"},
            {"patchesJson6902": "- {op: add, path: /spec/list/-, value: '{{ element.name }}'}"},
            {"patchesJson6902": "- {op: remove, path: '/spec/list/{{ elementIndex }}'}"},
            {"patchStrategicMerge": {"spec": {"{{ element.name }}": "{{ elementIndex }}"}}},
            {
                "patchStrategicMerge": {
                    "spec": {"list": [{"(name)": "{{ element.name }}", "x": 1}]}
                }
            },
        ]
    ),
)
def test_a_foreach_converges_or_is_known_not_to(
    elements: list[Any], order: str, edit: dict[str, Any]
) -> None:
    block = {"list": "target.spec.list", "order": order, **edit}
    check_laws(program_of(foreach=[block]), thing({"list": elements}))
