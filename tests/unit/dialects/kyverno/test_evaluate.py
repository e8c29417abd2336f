import copy

import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import request_context
from reconciler.engine.evaluate import NOTHING, change, decide
from reconciler.engine.match import Subject, UserInfo
from reconciler.engine.outcome import Convergence, RuleStatus
from reconciler.errors import EvaluationError, InvalidPolicy

PASS, SKIP, ERROR = RuleStatus.PASS, RuleStatus.SKIP, RuleStatus.ERROR
TRIGGER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "a", "labels": {"team": "x"}},
    "data": {"v": "1", "n": 2, "empty": "", "host": "db"},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "namespace": "a", "uid": "u", "resourceVersion": "5"},
    "spec": {"list": ["old"], "items": [{"name": "one", "size": 1}]},
}


def compiled(*, patch=None, json=None, target=None, resources=None, **rule):
    mutate = {
        "targets": [
            {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s", **(target or {})}
        ]
    }
    mutate |= {"patchStrategicMerge": patch} if json is None else {"patchesJson6902": json}
    match = {"any": [{"resources": {"kinds": ["ConfigMap"], **(resources or {})}}]}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "r", "match": match, "mutate": mutate, **rule}]},
    }
    return compile_policy(policy).programs[0]


def context(obj=None, operation="CREATE"):
    return request_context(
        operation=operation,
        obj=obj or TRIGGER,
        old_object={},
        name="c",
        namespace="a",
        kind=("", "v1", "ConfigMap"),
        user_info=None,
    )


def changed(obj=None, **facts):
    return change(compiled(**facts), 0, context(), SECRET if obj is None else obj)


def labelled(**labels):
    return {"metadata": {"labels": labels}}


def listed(*elements):
    return {"spec": {"items": list(elements)}}


def when(key, value, operator="Equals"):
    return {"all": [{"key": key, "operator": operator, "value": value}]}


class TestDecide:
    @staticmethod
    def decided(program, **facts):
        fields = {"kind": "ConfigMap", "name": "c", "namespace": "a", **facts}
        subject = Subject(obj=TRIGGER, group="", version="v1", **fields)
        return decide(program, program.match.evaluate(subject), context())

    def test_a_matching_trigger_fires(self):
        assert self.decided(compiled(patch=labelled(a="1"))).fires

    def test_a_trigger_that_does_not_match_is_reported_with_the_reason(self):
        program = compiled(patch=labelled(a="1"), resources={"names": ["other"]})
        decision = self.decided(program)
        assert (decision.fires, decision.message) == (False, "none of the names match")

    @pytest.mark.parametrize(("wanted", "fires"), [("1", True), ("2", False)])
    def test_preconditions_decide_whether_the_rule_fires(self, wanted, fires):
        program = compiled(
            patch=labelled(a="1"), preconditions=when("{{ request.object.data.v }}", wanted)
        )
        decision = self.decided(program)
        assert decision.fires is fires
        assert decision.message == ("" if fires else "preconditions not met")

    def test_the_message_of_a_precondition_is_passed_on(self):
        conditions = when("{{ request.object.data.v }}", "2")
        conditions["all"][0]["message"] = "v must be 2"
        program = compiled(patch=labelled(a="1"), preconditions=conditions)
        decision = self.decided(program)
        assert decision.message == "preconditions not met; v must be 2"

    def test_a_precondition_that_cannot_be_evaluated_is_an_error(self):
        program = compiled(
            patch=labelled(a="1"), preconditions=when("{{ request.object.data.no }}", "1")
        )
        with pytest.raises(EvaluationError, match="failed to evaluate preconditions") as caught:
            self.decided(program)
        assert "request.object.data.no" in str(caught.value)

    def test_unknown_namespace_labels_are_an_error_and_not_a_mismatch(self):
        selector = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
        program = compiled(patch=labelled(a="1"), resources=selector)
        with pytest.raises(EvaluationError, match="labels of the namespace are not known"):
            self.decided(program, namespace_labels=None)
        jane = UserInfo(username="jane")
        assert self.decided(program, namespace_labels={"env": "prod"}, user=jane).fires


def test_targets_that_fail_do_not_hide_the_others():
    program = compiled(patch=labelled(a="1"), target={"name": "{{ request.object.data.empty }}"})
    found, errors = program.targets.queries(context())
    assert found == []
    assert len(errors) == 1
    assert "spec.rules[0].mutate.targets[0].name" in str(errors[0])


class TestChange:
    def test_a_patch_is_applied_and_the_object_stays_as_it_was(self):
        before = copy.deepcopy(SECRET)
        result = changed(patch=labelled(team="{{ request.object.metadata.labels.team }}"))
        assert (result.status, result.message) == (PASS, "mutated Secret/s in namespace a")
        assert result.after["metadata"]["labels"] == {"team": "x"}
        assert result.after["spec"] == SECRET["spec"]
        assert before == SECRET

    def test_values_keep_their_type(self):
        result = changed(patch={"spec": {"n": "{{ request.object.data.n }}"}})
        assert result.after["spec"]["n"] == 2

    @pytest.mark.parametrize(
        "facts",
        [
            {"patch": {"metadata": {"name": "s"}}},
            {"patch": {"spec": {"items": [{"name": "one", "size": 1}]}}},
            {"json": "- {op: add, path: /spec/list, value: [old]}"},
            {"json": "- {op: remove, path: /spec/nothing}"},
            {"json": "- {op: replace, path: /metadata/name, value: s}"},
            {"patch": {"metadata": {"+(name)": "other"}}},
        ],
    )
    def test_a_patch_that_changes_nothing_is_skipped(self, facts):
        result = changed(**facts)
        assert (result.status, result.message) == (SKIP, NOTHING)
        assert result.after is SECRET
        assert not result.repeats

    @pytest.mark.parametrize(
        ("facts", "named"),
        [
            ({"patch": {"metadata": {"name": "other"}}}, "metadata.name"),
            ({"patch": {"metadata": {"namespace": "b"}}}, "metadata.namespace"),
            ({"patch": {"metadata": {"uid": "v"}}}, "metadata.uid"),
            ({"patch": {"kind": "Pod"}}, "kind"),
            ({"patch": {"apiVersion": "v2"}}, "apiVersion"),
            ({"json": "- {op: remove, path: /metadata/namespace}"}, "metadata.namespace"),
            ({"json": "- {op: remove, path: /metadata}"}, "metadata.name"),
            ({"json": "- {op: replace, path: /metadata, value: []}"}, "the object"),
            ({"json": '- {op: replace, path: "", value: 1}'}, "the object"),
        ],
    )
    def test_a_patch_that_changes_the_identity_of_an_object_is_an_error(self, facts, named):
        result = changed(**facts)
        assert result.status is ERROR
        assert f"the patch changes {named}" in result.message
        assert result.after is SECRET

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            (
                {"patch": labelled(a="{{ request.object.data.no }}")},
                "variable substitution failed: failed to resolve request.object.data.no at path",
            ),
            (
                {"json": "- {op: test, path: /metadata/name, value: other}"},
                "failed to patch resource: ",
            ),
            (
                {"json": "- {op: replace, path: /spec/no, value: 1}"},
                "failed to patch resource: ",
            ),
            ({"patch": {"spec": {"list": "{{ target.spec.nothing }}"}}}, "target.spec.nothing"),
        ],
    )
    def test_an_error_names_the_part_that_failed(self, facts, message):
        result = changed(**facts)
        assert result.status is ERROR
        assert message in result.message
        assert result.after is SECRET

    def test_an_anchor_that_does_not_hold_skips_the_object(self):
        result = changed(patch={"<(kind)": "Pod", "metadata": {"labels": {"a": "1"}}})
        assert (result.status, result.after) == (SKIP, SECRET)
        assert result.message != NOTHING


class TestTargetPreconditions:
    @pytest.mark.parametrize(("wanted", "status"), [("s", PASS), ("t", SKIP)])
    def test_preconditions_can_read_the_target_and_the_trigger(self, wanted, status):
        conditions = when("{{ target.metadata.name }}-{{ request.object.data.v }}", f"{wanted}-1")
        result = changed(patch=labelled(a="1"), target={"preconditions": conditions})
        assert result.status is status
        assert (result.message == "preconditions not met") is (status is SKIP)

    def test_a_missing_key_is_an_error_of_this_target(self):
        conditions = when("{{ target.data.missing }}", "1")
        result = changed(patch=labelled(a="1"), target={"preconditions": conditions})
        assert result.status is ERROR
        assert result.message.startswith("failed to evaluate preconditions: ")
        assert "target.data.missing" in result.message


def entry(name, path):
    return {"name": name, "variable": {"jmesPath": path}}


class TestEntriesThatReadTheTarget:
    @pytest.mark.parametrize(
        "path",
        [
            "join('-', [request.object.data.v, target.metadata.name])",
            "join('-', ['{{ request.object.data.v }}', target.metadata.name])",
        ],
    )
    def test_an_entry_of_the_rule_is_evaluated_for_each_target(self, path):
        program = compiled(patch=labelled(a="{{ v }}"), context=[entry("v", path)])
        bound = program.binding.bind(context())
        for name in ("s", "other"):
            obj = {**SECRET, "metadata": {**SECRET["metadata"], "name": name}}
            assert change(program, 0, bound, obj).after["metadata"]["labels"] == {"a": f"1-{name}"}

    @pytest.mark.parametrize(
        "entries",
        [
            [entry("v", "target.metadata.name"), entry("w", "join('', ['<', v, '>'])")],
            [
                entry("v", "join('', ['{{ request.object.data.v }}', target.metadata.name])"),
                {"name": "w", "variable": {"value": "<{{ trim_prefix(v, '1') }}>"}},
            ],
            [entry("w", "request.object.data.host"), entry("w", "'<{{ w }}>' && '<s>'")],
            [
                entry("w", "request.object.data.host"),
                entry("w", "join('', ['<', target.metadata.name, replace_all(w, 'db', '>')])"),
            ],
        ],
    )
    def test_an_entry_may_use_those_before_it(self, entries):
        program = compiled(patch=labelled(a="{{ w }}"), context=entries)
        result = change(program, 0, program.binding.bind(context()), SECRET)
        assert result.after["metadata"]["labels"] == {"a": "<s>"}

    @pytest.mark.parametrize(
        ("facts", "place"),
        [
            ({"preconditions": when("{{ v }}", "s")}, "preconditions.all[0].key"),
            ({"target": {"name": "{{ v }}"}}, "mutate.targets[0].name"),
            ({"target": {"name": "{{ to_string(v) }}"}}, "mutate.targets[0].name"),
        ],
    )
    def test_it_is_not_known_before_the_target_is(self, facts, place):
        with pytest.raises(InvalidPolicy, match="v, which reads the target") as refused:
            compiled(patch=labelled(a="1"), context=[entry("v", "target.metadata.name")], **facts)
        assert place in refused.value.location

    def test_a_variable_in_an_entry_of_the_rule_cannot_read_it(self):
        with pytest.raises(InvalidPolicy, match="no target is known"):
            compiled(patch=labelled(a="1"), context=[entry("v", "{{ target.metadata.name }}")])


APPEND = "- {op: add, path: /spec/list/-, value: x}"


class TestConvergence:
    @pytest.mark.parametrize(
        ("facts", "convergence", "repeats"),
        [
            ({"patch": labelled(a="1")}, Convergence.YES, False),
            ({"patch": labelled(a="{{ request.object.data.v }}")}, Convergence.YES, False),
            ({"patch": labelled(a="{{ target.metadata.name }}")}, Convergence.PROBED, False),
            ({"patch": {"spec": {"size": "{{ target.spec.size || `0` }}"}}}, None, False),
            ({"patch": {"spec": {"x": "{{ join('', [target.spec.x || '', 'y']) }}"}}}, None, True),
            ({"json": "- {op: add, path: /spec/a, value: 1}"}, Convergence.YES, False),
            ({"json": "- {op: remove, path: /spec/list}"}, Convergence.YES, False),
            ({"json": APPEND}, Convergence.PROBED, True),
            ({"json": APPEND.replace("/-", "/0")}, Convergence.PROBED, True),
            ({"json": APPEND.replace("/-", "/-1")}, Convergence.PROBED, True),
            ({"json": "- {op: remove, path: /spec/list/0}"}, Convergence.PROBED, False),
            (
                {"json": "- {op: replace, path: /spec/list/0, value: x}"},
                Convergence.PROBED,
                False,
            ),
            (
                {"json": "- {op: replace, path: /spec/items/0/size, value: 7}"},
                Convergence.YES,
                False,
            ),
            ({"json": "- {op: move, from: /spec/list, path: /spec/moved}"}, None, True),
            ({"json": "- {op: copy, from: /spec/list, path: /spec/copy}"}, None, False),
            (
                {"json": '- {op: add, path: /spec/list/-, value: "{{ request.object.data.v }}"}'},
                Convergence.PROBED,
                True,
            ),
            (
                {"json": '- {op: add, path: /spec/a, value: "{{ request.object.data.v }}"}'},
                Convergence.YES,
                False,
            ),
            (
                {"json": '- {op: add, path: "/spec/{{ request.object.data.v }}", value: 1}'},
                Convergence.PROBED,
                False,
            ),
            # On the next run a template matches what a plain element, or another template, added.
            ({"patch": listed({"+(a)": 1}, {"name": "x"})}, Convergence.PROBED, True),
            ({"patch": listed({"(name)": "*", "a": 1}, {"name": "x"})}, Convergence.PROBED, True),
            ({"patch": listed({"X(a)": None, "b": 1}, {"name": "x"})}, Convergence.PROBED, True),
            ({"patch": listed({"(name)": "y*", "a": 1}, {"name": "x"})}, Convergence.YES, False),
            (
                {"patch": listed({"(name)": "one", "a": 1}, {"(a)": 1, "b": 2})},
                Convergence.PROBED,
                True,
            ),
            (
                {"patch": listed({"(name)": "one", "a": 1}, {"(name)": "two", "a": 2})},
                Convergence.YES,
                False,
            ),
            (
                {"json": "- {op: add, path: /spec/new/-/a, value: 1}"},
                Convergence.PROBED,
                None,
            ),
        ],
    )
    def test_a_rule_that_would_change_its_result_again_is_detected(
        self, facts, convergence, repeats
    ):
        program = compiled(**facts)
        if convergence is not None:
            assert program.mutation.convergence is convergence
        result = change(program, 0, context(), SECRET)
        if repeats is not None:
            assert result.status is PASS, result.message
            assert result.repeats is repeats

    def test_a_precondition_that_stops_the_repetition_is_considered(self):
        conditions = when("{{ contains(target.spec.list, 'x') }}", value=False)
        result = changed(json=APPEND, target={"preconditions": conditions})
        assert (result.status, result.repeats) == (PASS, False)

    def test_a_test_operation_that_its_own_patch_breaks_counts_as_repeating(self):
        text = (
            "- {op: test, path: /spec/list/0, value: old}\n"
            "- {op: replace, path: /spec/list/0, value: new}"
        )
        result = changed(json=text)
        assert (result.status, result.repeats) == (PASS, True)


class TestSubstitutedText:
    """The value of a variable is data: it adds no operation and no field to a patch."""

    @pytest.mark.parametrize(
        "text",
        [
            '"}\n- {op: add, path: /spec/stolen, value: yes}\n- {op: add, path: /spec/x, value: "',
            "x\n- {op: add, path: /spec/stolen, value: yes}",
            'a", "op": "replace", "path": "/spec/stolen',
            "a: b",
            "[1, 2]",
            "line\nbreak",
            'quo"te',
            "back\\slash",
            "# no comment",
            "&anchor",
            "- item",
        ],
    )
    @pytest.mark.parametrize(
        "patch",
        [
            '- {op: add, path: /spec/given, value: "{{ request.object.data.text }}"}',
            "- op: add\n  path: /spec/given\n  value: '{{ request.object.data.text }}'",
            "- op: add\n  path: /spec/given\n  value: {{ request.object.data.text }}",
            '[{"op": "add", "path": "/spec/given", "value": "{{ request.object.data.text }}"}]',
        ],
    )
    def test_the_text_of_a_variable_stays_inside_its_value(self, patch, text):
        trigger = {**TRIGGER, "data": {"text": text}}
        result = change(compiled(json=patch), 0, context(trigger), SECRET)
        assert result.status is PASS, result.message
        assert result.after["spec"] == {**SECRET["spec"], "given": text}

    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ('"{{ request.object.data.n }}"', "2"),
            ("'{{ request.object.data.n }}'", "2"),
            ("{{ request.object.data.n }}", 2),
            ('"{{ request.object.data.v }}"', "1"),
            ("{{ request.object.data.v }}", 1),
            ("x{{ request.object.data.n }}", "x2"),
            ("{{ request.object.data.host }}", "db"),
            ("{{ request.object.data.empty }}", None),
            ('"{{ request.object.data.empty }}"', ""),
            ("{{ request.object.metadata.labels }}", {"team": "x"}),
            ('"{{ request.object.metadata.labels }}"', '{"team":"x"}'),
            ("[{{ request.object.data.n }}, '{{ request.object.data.n }}']", [2, "2"]),
            ("{a: {{ request.object.data.n }}}", {"a": 2}),
            ("'{{ request.object.data.n }}-{{ request.object.data.v }}'", "2-1"),
            ("'\\{{ request.object }}'", "{{ request.object }}"),
            ("{'{{ request.object.data.host }}': '{{ request.object.data.n }}'}", {"db": "2"}),
            (
                "{b: 1, '{{ request.object.data.host }}': {{ request.object.data.v }}}",
                {"b": 1, "db": 1},
            ),
            ("{{ request.object.data.n }} # {{ request.object.data.nothing }}", 2),
            ("|-\n    {{ request.object.data.n }}", "2"),
            ("|\n    {{ request.object.data.n }}", "2\n"),
            (">- # text\n    {{ request.object.data.v }}", "1"),
            ("|2-\n    {{ request.object.metadata.labels }}", '{"team":"x"}'),
            ("\n    {{ request.object.data.n }}", 2),
        ],
    )
    def test_quotes_decide_the_type_of_a_value(self, source, value):
        patch = f"- op: add\n  path: /spec/given\n  value: {source}\n"
        result = changed(json=patch)
        assert result.status is PASS, result.message
        assert result.after["spec"]["given"] == value
        assert type(result.after["spec"]["given"]) is type(value)

    @pytest.mark.parametrize(
        ("source", "value"),
        [
            (
                "{{ replace_all(to_string(request.object.spec), 'TEMPLATE', 'a-1') }}",
                {"name": "a-1 of: two", "list": [1]},
            ),
            ("{{ request.object.spec.list | to_string(@) }}", [1]),
            ('"{{ to_string(request.object.spec.list) }}"', "[1]"),
            ("|-\n    {{ to_string(request.object.spec.list) }}", "[1]"),
            ("x{{ to_string(request.object.spec.list) }}", "x[1]"),
            ("{{ to_string(request.object.data.text) }}", "{a: b}"),
            ("{{ to_string(request.object.data.deep) }}", "[" * 600 + "]" * 600),
            ("{{ request.object.data.json }}", "[1, 2]"),
        ],
    )
    def test_an_object_that_the_policy_turns_into_text_is_a_value_again(self, source, value):
        data = {"text": "{a: b}", "json": "[1, 2]", "deep": "[" * 600 + "]" * 600}
        spec = {"name": "TEMPLATE of: two", "list": [1]}
        patch = f"- op: add\n  path: /spec/given\n  value: {source}\n"
        trigger = context({**TRIGGER, "data": data, "spec": spec})
        result = change(compiled(json=patch), 0, trigger, SECRET)
        assert result.status is PASS, result.message
        assert result.after["spec"]["given"] == value

    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ('"{{ request.object.data.n }}"', "2"),
            ("{{ request.object.data.n }}", 2),
            ('"a-{{ request.object.data.n }}-\\"b"', 'a-2-"b'),
            ("{{ request.object.metadata.labels }}", {"team": "x"}),
            ('[1, {{ request.object.data.n }}, "{{ request.object.data.n }}"]', [1, 2, "2"]),
        ],
    )
    def test_a_patch_written_as_json_is_read_in_the_same_way(self, source, value):
        patch = f'[{{"op": "add", "path": "/spec/given", "value": {source} }}]'
        result = changed(json=patch)
        assert result.status is PASS, result.message
        assert result.after["spec"]["given"] == value

    @pytest.mark.parametrize(
        "json",
        [
            "{{ request.object.data.patch }}",
            "- {{ request.object.data.operation }}",
            '- {op: "{{ request.object.data.op }}", path: /spec/given, value: 1}',
            '- {"{{ request.object.data.field }}": add, path: /spec/given, value: 1}',
            "- {op: add, path: '/spec/{{ request.object.data.name }}', value: 1}",
        ],
    )
    def test_a_variable_can_provide_any_part_that_the_policy_leaves_to_it(self, json):
        data = {
            "patch": "- {op: add, path: /spec/given, value: 1}",
            "operation": {"op": "add", "path": "/spec/given", "value": 1},
            "op": "add",
            "field": "op",
            "name": "given",
        }
        program = compiled(json=json)
        result = change(program, 0, context({**TRIGGER, "data": data}), SECRET)
        assert result.status is PASS, result.message
        assert result.after["spec"]["given"] == 1
        assert program.mutation.convergence is Convergence.PROBED
