"""Foreach and patches: order, names, errors, and the object that later edits see."""

import copy

import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import request_context
from reconciler.engine.evaluate import change
from reconciler.engine.loads import ConfigMapLoad, LoadFailure, NeedsLoad
from reconciler.engine.outcome import RuleStatus

PASS, SKIP, ERROR = RuleStatus.PASS, RuleStatus.SKIP, RuleStatus.ERROR
TRIGGER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "a"},
    "data": {"v": "1"},
}
WIDGET = {
    "apiVersion": "x.example/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "namespace": "a"},
    "spec": {
        "log": [],
        "items": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
        "holes": [{"name": "a"}, None, {"name": "c"}],
        "one": {"name": "single"},
        "tree": [{"name": "x", "leaves": [1, 2]}, {"name": "y", "leaves": [3]}],
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "w", "namespace": "a"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {"name": "a", "image": "a:1", "env": [{"name": "DEBUG"}, {"name": "KEEP"}]},
                    {"name": "b", "image": "b:1"},
                    {"name": "c", "image": "c:1", "env": [{"name": "DEBUG"}]},
                ]
            }
        }
    },
}
LOG = '- {op: add, path: "/spec/log/-", value: %s}'


def block(elements, patch=None, **more):
    edit = {} if patch is None else {"patchesJson6902": patch}
    return {"list": elements, **edit, **more}


def program(*blocks, target=None, **rule):
    mutate = {
        "targets": [
            {
                "apiVersion": "x.example/v1",
                "kind": "Widget",
                "namespace": "a",
                "name": "w",
                **(target or {}),
            }
        ],
        "foreach": list(blocks),
    }
    match = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "r", "match": match, "mutate": mutate, **rule}]},
    }
    return compile_policy(policy).programs[0]


def changed(*blocks, obj=WIDGET, loads=None, **rule):
    before = copy.deepcopy(obj)
    built = program(*blocks, **rule)
    context = request_context(
        operation="CREATE",
        obj=TRIGGER,
        old_object={},
        name="c",
        namespace="a",
        kind=("", "v1", "ConfigMap"),
        user_info=None,
    ).with_loads({} if loads is None else loads)
    done = change(built, 0, built.binding.bind(context), obj)
    assert obj == before
    return done


def log(*blocks, **rule):
    done = changed(*blocks, **rule)
    assert done.status is PASS, done.message
    return done.after["spec"]["log"]


def when(key, value, operator="Equals"):
    return {"all": [{"key": key, "operator": operator, "value": value}]}


class TestElements:
    def test_elements_are_visited_in_order_with_their_index(self):
        found = log(block("target.spec.items", LOG % '"{{ elementIndex }}{{ element.name }}"'))
        assert found == ["0a", "1b", "2c"]

    @pytest.mark.parametrize(
        ("order", "expected"),
        [("Ascending", ["0a", "1b", "2c"]), ("Descending", ["2c", "1b", "0a"])],
    )
    def test_descending_order_keeps_the_index_of_each_element(self, order, expected):
        patch = LOG % '"{{ elementIndex }}{{ element.name }}"'
        assert log(block("target.spec.items", patch, order=order)) == expected

    def test_null_elements_are_skipped_but_counted_in_the_index(self):
        patch = LOG % '"{{ elementIndex }}{{ element.name }}"'
        assert log(block("target.spec.holes", patch)) == ["0a", "2c"]

    @pytest.mark.parametrize(
        ("elements", "expected"),
        [
            ("target.spec.one", ["0:single"]),
            ("target.spec.one.name | {name: @}", ["0:single"]),
            ("[target.spec.one, target.spec.one]", ["0:single", "1:single"]),
        ],
    )
    def test_a_value_that_is_not_a_list_is_one_element(self, elements, expected):
        patch = LOG % '"{{ elementIndex }}:{{ element.name }}"'
        assert log(block(elements, patch)) == expected

    def test_an_element_of_any_type_keeps_its_type(self):
        assert log(block("[`1`, 'x', `true`, `[2]`]", LOG % "'{{ element }}'")) == [
            "1",
            "x",
            "true",
            "[2]",
        ]
        assert log(block("`[[1], {}]`", LOG % "{{ element }}")) == [[1], {}]

    @pytest.mark.parametrize(
        "elements", ["`[]`", "`null`", "target.spec.none || `[]`", "`[null]`"]
    )
    def test_an_empty_list_is_skipped(self, elements):
        done = changed(block(elements, LOG % "x"))
        assert (done.status, done.message) == (SKIP, "0 elements processed")

    def test_a_list_that_is_missing_is_an_error(self):
        done = changed(block("target.spec.none", LOG % "x"))
        assert done.status is ERROR
        assert done.message.startswith("failed to evaluate list target.spec.none: ")

    def test_the_list_can_come_from_the_trigger(self):
        assert log(block("request.object.data.v", LOG % '"got {{ element }}"')) == ["got 1"]


class TestPatches:
    def test_merge_patches_keep_the_order_of_the_list(self):
        containers = [{"(name)": "{{ element.name }}", "image": "reg/{{ element.image }}"}]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        done = changed(
            block("target.spec.template.spec.containers", patchStrategicMerge=patch),
            obj=DEPLOYMENT,
            target={"apiVersion": "apps/v1", "kind": "Deployment"},
        )
        images = [c["image"] for c in done.after["spec"]["template"]["spec"]["containers"]]
        assert (done.status, images) == (PASS, ["reg/a:1", "reg/b:1", "reg/c:1"])

    def test_elements_are_removed_from_the_end(self):
        remove = '- {op: remove, path: "/spec/items/{{ elementIndex }}"}'
        done = changed(
            block(
                "target.spec.items",
                remove,
                order="Descending",
                preconditions=when("{{ element.name }}", "b", "NotEquals"),
            )
        )
        assert done.after["spec"]["items"] == [{"name": "b"}]

    def test_patches_accumulate_while_elements_read_the_original_target(self):
        patch = LOG % '"{{ length(target.spec.log) }}"'
        assert log(block("target.spec.items", patch)) == ["0", "0", "0"]

    def test_later_blocks_read_the_result_of_earlier_ones(self):
        found = log(
            block("target.spec.items", LOG % '"{{ element.name }}"'),
            block("target.spec.log", LOG % '"{{ element }} of {{ length(target.spec.log) }}"'),
        )
        assert found == ["a", "b", "c", "a of 3", "b of 3", "c of 3"]

    def test_a_block_that_does_nothing_does_not_affect_other_blocks(self):
        never = block("target.spec.items", LOG % "none", preconditions=when("a", "b"))
        always = block("target.spec.one", LOG % "one")
        assert log(never, always) == ["one"]
        assert log(always, never) == ["one"]
        done = changed(never, never)
        assert (done.status, done.message) == (SKIP, "0 elements processed")

    def test_one_error_ends_the_rule_and_nothing_is_changed(self):
        done = changed(
            block("target.spec.items", LOG % "x"),
            block("target.spec.items", "- {op: copy, from: /spec/none, path: /spec/x}"),
        )
        assert done.status is ERROR
        assert done.message.startswith("failed to mutate elements: failed to patch resource: ")
        assert done.after == WIDGET

    def test_a_missing_variable_is_an_error(self):
        done = changed(block("target.spec.items", LOG % '"{{ element.none }}"'))
        assert done.status is ERROR
        assert done.message.startswith("failed to mutate elements: variable substitution failed: ")

    def test_every_block_reads_the_same_trigger(self):
        found = log(
            block("target.spec.one", LOG % '"{{ request.object.kind }}"'),
            block("target.spec.one", LOG % '"{{ request.object.kind }}"'),
        )
        assert found == ["ConfigMap", "ConfigMap"]

    def test_a_foreach_that_would_repeat_is_detected(self):
        assert changed(block("target.spec.items", LOG % "x")).repeats
        done = changed(block("target.spec.one", '- {op: add, path: "/spec/done", value: "yes"}'))
        assert not done.repeats


class TestPreconditions:
    def test_preconditions_select_elements(self):
        found = log(
            block(
                "target.spec.items",
                LOG % '"{{ element.name }}"',
                preconditions=when("{{ elementIndex }}", 1, "GreaterThanOrEquals"),
            )
        )
        assert found == ["b", "c"]

    def test_an_error_names_the_block(self):
        done = changed(
            block(
                "target.spec.items",
                LOG % "x",
                preconditions=when("{{ element.none }}", "x"),
            )
        )
        assert done.status is ERROR
        start = "failed to evaluate mutate.foreach[0].preconditions: "
        assert done.message.startswith(start)


class TestNesting:
    INNER = "element.leaves"

    def test_elements_of_each_level_have_numbered_names(self):
        patch = LOG % (
            '"{{ element0.name }}{{ elementIndex0 }} {{ element }}{{ elementIndex }}'
            ' {{ element1 }}{{ elementIndex1 }}"'
        )
        found = log(block("target.spec.tree", foreach=[block(self.INNER, patch)]))
        assert found == ["x0 10 10", "x0 21 21", "y1 30 30"]

    def test_the_inner_list_can_read_the_outer_element(self):
        inner = block("element0.leaves[?@ > `1`]", LOG % '"{{ element }}"')
        assert log(block("target.spec.tree", foreach=[inner])) == ["2", "3"]

    def test_the_outer_and_the_inner_order_are_both_respected(self):
        inner = block(self.INNER, LOG % '"{{ element }}"', order="Descending")
        outer = block("target.spec.tree", foreach=[inner], order="Descending")
        assert log(outer) == ["3", "2", "1"]

    def test_foreach_can_be_nested_three_levels_deep(self):
        patch = LOG % '"{{ element0.name }}{{ element1 }}{{ element2 }}{{ elementIndex2 }}"'
        deep = block("['p', 'q']", patch)
        found = log(block("target.spec.tree", foreach=[block(self.INNER, foreach=[deep])]))
        assert found == ["x1p0", "x1q1", "x2p0", "x2q1", "y3p0", "y3q1"]

    def test_a_later_inner_block_reads_the_result_of_an_earlier_one(self):
        first = block(self.INNER, LOG % '"{{ element }}"')
        second = block("[`0`]", LOG % '"sum {{ length(target.spec.log) }}"')
        found = log(block("target.spec.tree", foreach=[first, second]))
        # The next outer element sees the target as it was when the outer list was read.
        assert found == ["1", "2", "sum 2", "3", "sum 4"]

    def test_environment_variables_are_removed_from_all_containers(self):
        path = "/spec/template/spec/containers/{{elementIndex0}}/env/{{elementIndex1}}"
        inner = block(
            "element.env || `[]`",
            f'- {{op: remove, path: "{path}"}}',
            order="Descending",
            preconditions=when("{{ element.name }}", "DEBUG"),
        )
        done = changed(
            block("target.spec.template.spec.containers", foreach=[inner]),
            obj=DEPLOYMENT,
            target={"apiVersion": "apps/v1", "kind": "Deployment"},
        )
        containers = done.after["spec"]["template"]["spec"]["containers"]
        assert [c.get("env") for c in containers] == [[{"name": "KEEP"}], None, []]

    def test_an_error_has_one_prefix_per_level(self):
        inner = block(self.INNER, LOG % '"{{ element0.none }}"')
        done = changed(block("target.spec.tree", foreach=[inner]))
        twice = "failed to mutate elements: " * 2
        assert done.message.startswith(twice + "variable substitution failed")
        done = changed(block("target.spec.tree", foreach=[block("element.none", LOG % "x")]))
        assert done.message.startswith("failed to mutate elements: failed to evaluate list ")

    def test_a_nested_foreach_without_matching_elements_is_skipped(self):
        inner = block(self.INNER, LOG % "x", preconditions=when("a", "b"))
        done = changed(block("target.spec.tree", foreach=[inner]))
        assert (done.status, done.message) == (SKIP, "0 elements processed")


class TestEntries:
    LOADED = ConfigMapLoad(namespace="default", name="of-b")

    def test_each_element_has_its_own_context_entries(self):
        upper = {"name": "up", "variable": {"value": "{{ to_upper(element.name) }}"}}
        found = log(block("target.spec.items", LOG % '"{{ up }}"', context=[upper]))
        assert found == ["A", "B", "C"]

    def test_entries_can_read_the_entries_of_outer_scopes(self):
        found = log(
            block(
                "target.spec.items",
                LOG % '"{{ three }}"',
                context=[{"name": "three", "variable": {"value": "{{ two }}{{ element.name }}"}}],
            ),
            target={
                "context": [{"name": "two", "variable": {"value": "{{ one }}{{ target.kind }}"}}]
            },
            context=[{"name": "one", "variable": {"value": "{{ request.name }}"}}],
        )
        assert found == ["cWidgeta", "cWidgetb", "cWidgetc"]

    def test_a_list_can_come_from_a_context_entry(self):
        wanted = {"name": "wanted", "variable": {"value": ["p", "q"]}}
        assert log(block("wanted", LOG % '"{{ element }}"'), context=[wanted]) == ["p", "q"]

    def test_only_elements_that_name_an_entry_need_it(self):
        of_element = {"name": "cm", "configMap": {"name": "of-{{ element.name }}"}}
        blocks = block(
            "target.spec.items",
            LOG % '"{{ cm.data.k }}"',
            context=[of_element],
            preconditions=when("{{ element.name }}", "b"),
        )
        with pytest.raises(NeedsLoad) as caught:
            changed(blocks)
        assert caught.value.loads == (self.LOADED,)
        assert log(blocks, loads={self.LOADED: {"data": {"k": "v"}}}) == ["v"]

    def test_an_entry_that_cannot_be_read_is_an_error(self):
        of_element = {"name": "cm", "configMap": {"name": "of-b"}}
        done = changed(
            block("target.spec.items", LOG % '"{{ cm.data.k }}"', context=[of_element]),
            loads={self.LOADED: LoadFailure("absent")},
        )
        assert done.status is ERROR
        assert "failed to retrieve config map for context entry cm: absent" in done.message

    def test_preconditions_of_the_target_can_read_its_entries(self):
        rule = {
            "context": [{"name": "x", "variable": {"value": "{{ target.metadata.name }}"}}],
            "preconditions": when("{{ x }}", "other"),
        }
        done = changed(block("target.spec.items", LOG % "x"), target=rule)
        assert (done.status, done.message) == (SKIP, "preconditions not met")


def test_entries_of_one_target_are_not_visible_to_the_next():
    entry = {"name": "mine", "variable": {"value": "{{ target.metadata.name }}"}}
    built = program(
        block("`[1]`", LOG % '"{{ mine }}"'),
        target={"context": [entry], "name": "w*"},
    )
    context = request_context(
        operation="CREATE",
        obj=TRIGGER,
        old_object={},
        name="c",
        namespace="a",
        kind=("", "v1", "ConfigMap"),
        user_info=None,
    )
    for name in ("w1", "w2"):
        obj = {**WIDGET, "metadata": {"name": name, "namespace": "a"}}
        assert change(built, 0, context, obj).after["spec"]["log"] == [name]
    assert not context.deferred


def test_a_value_that_is_too_deep_to_become_text_is_an_error() -> None:
    deep: dict[str, object] = {}
    for _ in range(300):
        deep = {"a": deep}
    patch = '- {op: add, path: /copy, value: "{{ target.spec }}"}'
    done = changed(block("['x']", patch), obj={**WIDGET, "spec": deep})
    assert done.status is ERROR
    assert "a value cannot become text" in done.message
