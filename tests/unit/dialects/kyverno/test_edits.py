from collections.abc import Callable

import pytest

from reconciler.api.meta import Object
from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import Context
from reconciler.engine.evaluate import change
from reconciler.errors import InvalidPolicy
from tests.unit.dialects.kyverno.conftest import Build

PLACE = "spec.rules[0].mutate"


def refusal(policy):
    with pytest.raises(InvalidPolicy) as caught:
        compile_policy(policy)
    return caught.value


@pytest.fixture
def json(rule: Build) -> Callable[[str], Object]:
    """Return a function that builds the policy with a JSON patch of this text."""
    return lambda text: rule(
        (("mutate", "patchStrategicMerge"),), (("mutate", "patchesJson6902"), text)
    )


def test_a_rule_with_two_kinds_of_patches_is_refused(rule):
    error = refusal(rule((("mutate", "patchesJson6902"), "[]")))
    assert error.location == PLACE
    assert "only one of `patchStrategicMerge` or `patchesJson6902`" in error.reason


def test_a_rule_without_a_patch_is_refused(rule):
    error = refusal(rule((("mutate", "patchStrategicMerge"),)))
    assert error.location == PLACE
    assert "changes nothing: give one and only one of patchStrategicMerge" in error.reason


@pytest.mark.parametrize(
    "beside",
    [
        {"context": [{"name": "x", "variable": {"value": 1}}]},
        {"preconditions": {"all": [{"key": 1, "operator": "Equals", "value": 1}]}},
        {"patchStrategicMerge": {"data": {"a": "b"}}},
        {"patchesJson6902": "[]"},
    ],
)
def test_a_foreach_around_a_foreach_has_nothing_but_a_list_and_an_order(rule, beside):
    inner = {"list": "element.a", "patchStrategicMerge": {"data": {"a": "{{ element }}"}}}
    outer = {"list": "request.object.data.*", "order": "Descending", "foreach": [inner]}

    blank = (("mutate", "patchStrategicMerge"),)
    assert compile_policy(rule(blank, (("mutate", "foreach"), [outer]))).programs
    error = refusal(rule(blank, (("mutate", "foreach"), [{**outer, **beside}])))
    assert error.location == f"{PLACE}.foreach[0]"
    assert error.reason == "a nested foreach cannot contain other declarations"


class TestStrategic:
    @pytest.mark.parametrize(
        ("block", "root"),
        [
            (lambda patch: {"patchStrategicMerge": patch}, "/mutate/patchStrategicMerge"),
            (
                lambda patch: {"foreach": [{"list": "`[1]`", "patchStrategicMerge": patch}]},
                "/patchStrategicMerge",
            ),
        ],
    )
    @pytest.mark.parametrize("start", ["", "../../../../.."])
    def test_a_reference_begins_at_the_root_of_the_rule_or_of_the_block(
        self, rule, block, root, start
    ):
        patch = {"data": {"a": "one", "b": f"$({start}{root}/data/a)"}}
        (program,) = compile_policy(rule((("mutate",), block(patch)))).programs
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
        data = {"request": {"object": obj, "operation": "CREATE"}}
        result = change(program, None, Context(data), obj)
        assert result.after["data"] == {"a": "one", "b": "one"}

    @pytest.mark.parametrize("patch", ["text", ["x"], 1])
    def test_a_strategic_patch_that_is_not_an_object_is_refused(self, rule, patch):
        error = refusal(rule((("mutate", "patchStrategicMerge"), patch)))
        assert error.location.startswith(f"{PLACE}.patchStrategicMerge")

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ("{{ request.object. }}", "request.object."),
            ("{{ nobody }}", "nobody is not defined"),
            ("{{ element.name }}", "only present inside of foreach"),
            ("{{ no_such_function(request) }}", "no_such_function"),
        ],
    )
    def test_a_variable_that_can_never_have_a_value_is_refused(self, rule, value, reason):
        patch = {"spec": {"deep": [{"x": value}]}}
        error = refusal(rule((("mutate", "patchStrategicMerge"), patch)))
        assert error.location.startswith(f"{PLACE}.patchStrategicMerge")
        assert reason in error.reason

    @pytest.mark.parametrize(
        "value", ["{{ to_string(var) }}", "{{ join('-', [a, b]) }}", "{{ x || to_string(y.z) }}"]
    )
    def test_an_expression_with_a_function_call_can_use_undefined_variables(self, rule, value):
        patch = {"metadata": {"labels": {"x": value}}}
        assert compile_policy(rule((("mutate", "patchStrategicMerge"), patch))).programs

    @pytest.mark.parametrize(
        "value", ["{{ to_string(var) }}{{ var }}", "{{ to_string(element) }}"]
    )
    def test_a_function_call_allows_neither_other_expressions_nor_element(self, rule, value):
        patch = {"metadata": {"labels": {"x": value}}}
        assert refusal(rule((("mutate", "patchStrategicMerge"), patch)))

    def test_a_patch_can_read_the_target(self, rule):
        patch = {"metadata": {"labels": {"x": "{{ target.metadata.name }}", "y": "{{ @ }}z"}}}
        assert compile_policy(rule((("mutate", "patchStrategicMerge"), patch))).programs


class TestJson:
    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("- op: add\n  path: /a\n value: 1\n", "line 3, column"),
            ("- {op: add, path: /a, value: [}\n", "line 1, column 31"),
            ('[{"op": "add",]', "line 1, column"),
        ],
    )
    def test_a_text_that_cannot_be_parsed_is_refused_with_line_and_column(self, json, text, place):
        error = refusal(json(text))
        assert error.location == f"{PLACE}.patchesJson6902"
        assert place in error.reason

    @pytest.mark.parametrize(
        ("text", "location", "reason"),
        [
            ("op: add", "", "must be a list"),
            ("- text", "[0]", "must be a map"),
            ("- {op: add, path: /a}", "[0]", "needs a value"),
            ("- {op: test, path: /a, value: 1}\n- {op: ad, path: /a}", "[1].op", 'unknown "ad"'),
            ("- {op: remove, path: a}", "[0].path", "forward slash"),
            ("- {op: remove}", "[0]", "path"),
            ("- {op: move, path: /a}", "[0]", "from"),
            ('- {op: ad, path: /a, value: "{{ request.name }}"}', "[0].op", 'unknown "ad"'),
            ("- {op: add, path: /a, value: '{{ request. }}'}", "", "request."),
            ("- {op: add, path: /a, value: '{{ nobody }}'}", "", "nobody is not defined"),
        ],
    )
    def test_an_invalid_operation_is_refused_with_its_location(self, json, text, location, reason):
        error = refusal(json(text))
        assert error.location.startswith(f"{PLACE}.patchesJson6902{location}")
        assert reason in error.reason

    @pytest.mark.parametrize("value", [[{"op": "add"}], {"op": "add"}, 3])
    def test_a_json_patch_that_is_not_a_string_is_refused(self, json, value):
        error = refusal(json(value))
        assert error.location == f"{PLACE}.patchesJson6902"
        assert "string" in error.reason

    @pytest.mark.parametrize(
        "text",
        [
            "- {op: remove, path: /a}",
            '[{"op": "remove", "path": "/a"}]',
            "- op: add\n  path: /a\n  value: {{ request.object.spec }}",
            '- {op: add, path: "/a/{{ request.name }}", value: "x{{ request.namespace }}"}',
            '[{"op": "add", "path": "/a", "value": {{ request.object.spec }} }]',
            "{{ request.object.spec.patch }}",
            "- {{ request.object.spec.operation }}",
            "- {op: add, path: /a, value: '\\{{ no variable }}'}",
        ],
    )
    def test_all_notations_of_a_json_patch_are_accepted(self, json, text):
        assert compile_policy(json(text)).programs


@pytest.mark.parametrize("name", [["a", "b"], {"a": "b"}, 1])
def test_the_name_of_a_context_entry_in_a_foreach_must_be_a_string(rule, name):
    loop = {
        "list": "request.object.data",
        "context": [{"name": name, "variable": {"value": "x"}}],
        "patchStrategicMerge": {"data": {"a": "b"}},
    }
    foreach = rule((("mutate", "patchStrategicMerge"),), (("mutate", "foreach"), [loop]))
    error = refusal(foreach)
    assert error.location == f"{PLACE}.foreach[0].context[0].name"
