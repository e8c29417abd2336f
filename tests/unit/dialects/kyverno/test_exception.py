"""PolicyExceptions: their compilation, and the rules and objects that they apply to."""

import pytest

from reconciler.api.meta import Kind
from reconciler.dialects.registry import compile_exception, compile_policy
from reconciler.engine.allowance import BRIEF_STEPS, Allowance, Exhausted
from reconciler.engine.context import request_context
from reconciler.engine.exceptions import excepting, excepting_target, skipped
from reconciler.engine.match import Decision, Subject, UserInfo
from reconciler.errors import InvalidPolicy

CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
ANNOTATION = "kube-retrofit.dev/excepts"
MAPS = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
RULES = [{"policyName": "p", "ruleNames": ["r*"]}]


def exception(annotation=None, version="v2", **spec):
    meta = {"name": "e", "namespace": "a"}
    if annotation:
        meta["annotations"] = {ANNOTATION: annotation}
    return {
        "apiVersion": f"kyverno.io/{version}",
        "kind": "PolicyException",
        "metadata": meta,
        "spec": {"match": MAPS, "exceptions": RULES, **spec},
    }


def subject(**fields):
    meta = {"name": "c", "namespace": "a", "labels": {"tier": "gold"}}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": "on"}}
    return Subject(
        **{
            "obj": obj,
            "group": "",
            "version": "v1",
            "kind": "ConfigMap",
            "name": "c",
            "namespace": "a",
            "operation": "CREATE",
            "namespace_labels": {},
            **fields,
        }
    )


def context(asked):
    return request_context(
        operation=asked.operation,
        obj=asked.obj,
        old_object=None,
        name=asked.name,
        namespace=asked.namespace,
        kind=("", "v1", "ConfigMap"),
        user_info=None,
    )


def holds(spec, asked=None, annotation=None):
    asked = asked or subject()
    return bool(
        excepting([compile_exception(exception(annotation, **spec))], asked, context(asked))
    )


def rule(name="r", policy="p", namespace=""):
    match = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
    target = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}
    built = {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": {"name": policy} | ({"namespace": namespace} if namespace else {}),
        "spec": {
            "rules": [
                {
                    "name": name,
                    "match": match,
                    "mutate": {"targets": [target], "patchStrategicMerge": {"a": 1}},
                }
            ]
        },
    }
    return compile_policy(built).programs[0]


class TestWhichRules:
    @pytest.mark.parametrize(
        ("names", "program", "concerned"),
        [
            (["r"], rule(), True),
            (["x", "r?"], rule("r1"), True),
            (["r*"], rule("other"), False),
            (["*"], rule(policy="q"), False),
            (["*"], rule(namespace="a"), False),
        ],
    )
    def test_an_exception_applies_to_the_named_rules_of_a_cluster_policy(
        self, names, program, concerned
    ):
        compiled = compile_exception(
            exception(exceptions=[{"policyName": "p", "ruleNames": names}])
        )
        assert compiled.concerns(program) is concerned
        assert compiled.policies == {"p"}

    def test_a_namespaced_policy_is_named_with_its_namespace(self):
        compiled = compile_exception(
            exception(exceptions=[{"policyName": "a/p", "ruleNames": ["r"]}])
        )
        assert compiled.concerns(rule(namespace="a"))
        assert not compiled.concerns(rule())

    @pytest.mark.parametrize("version", ["v2", "v2beta1"])
    def test_all_served_versions_are_read(self, version):
        assert compile_exception(exception(version=version)).key == "a/e"


class TestTriggers:
    @pytest.mark.parametrize(
        ("match", "expected"),
        [
            (MAPS, True),
            ({"any": [{"resources": {"kinds": ["Pod"]}}, *MAPS["any"]]}, True),
            ({"all": [{"resources": {"kinds": ["ConfigMap"]}}, *MAPS["any"]]}, True),
            ({"all": [{"resources": {"kinds": ["ConfigMap"], "names": ["x*"]}}]}, False),
            ({"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["x", "c"]}}]}, True),
            (
                {
                    "any": [
                        {
                            "resources": {
                                "kinds": ["ConfigMap"],
                                "selector": {"matchLabels": {"tier": "g*"}},
                            }
                        }
                    ]
                },
                True,
            ),
        ],
    )
    def test_an_exception_matches_triggers_by_its_match_block(self, match, expected):
        assert holds({"match": match}) is expected

    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", ""])
    def test_an_exception_holds_for_every_operation(self, operation):
        match = {"any": [{"resources": {"kinds": ["ConfigMap"], "operations": ["CONNECT"]}}]}
        assert holds({"match": match}, subject(operation=operation))

    @pytest.mark.parametrize(
        ("key", "expected"),
        [
            ("{{ request.object.data.mode }}", True),
            ("{{ request.object.data.other || 'off' }}", False),
            ("{{ request.object.data.other }}", False),
        ],
    )
    def test_conditions_that_cannot_be_evaluated_do_not_hold(self, key, expected):
        conditions = {"all": [{"key": key, "operator": "Equals", "value": "on"}]}
        assert holds({"conditions": conditions}) is expected

    @pytest.mark.parametrize(("value", "expected"), [("on", True), ("off", False)])
    def test_an_empty_any_block_does_not_restrict(self, value, expected):
        block = [{"key": "{{ request.object.data.mode }}", "operator": "Equals", "value": value}]
        assert holds({"conditions": {"any": [], "all": block}}) is expected
        assert holds({"conditions": {"any": []}})

    def test_unknown_namespace_labels_leave_an_exception_undecided(self):
        selector = {"matchLabels": {"env": "prod"}}
        match = {"any": [{"resources": {"kinds": ["ConfigMap"], "namespaceSelector": selector}}]}
        compiled = compile_exception(exception(match=match))
        assert compiled.match(subject(namespace_labels=None)) is Decision.UNDECIDED
        assert compiled.match(subject(namespace_labels={"env": "prod"})) is Decision.MATCH

    def test_subjects_are_matched_if_the_exception_has_no_background(self):
        spec = {
            "background": False,
            "match": {"any": [{**MAPS["any"][0], "subjects": [{"kind": "User", "name": "jane"}]}]},
        }
        assert holds(spec, subject(user=UserInfo(username="jane")))
        assert not holds(spec, subject(user=UserInfo(username="joe")))
        assert not holds(spec, subject(operation=""))

    def test_all_exceptions_that_hold_are_named(self):
        found = [compile_exception(exception()), compile_exception(exception())]
        keys = excepting(found, subject(), context(subject()))
        assert skipped(keys) == "rule is skipped due to policy exceptions a/e, a/e"


class TestTargets:
    @pytest.mark.parametrize(
        ("annotation", "of_trigger", "of_target"),
        [
            (None, True, True),
            ("triggers", True, False),
            ("targets", False, True),
            ("both", True, True),
        ],
    )
    def test_the_annotation_chooses_triggers_or_targets_and_both_by_default(
        self, annotation, of_trigger, of_target
    ):
        compiled = [compile_exception(exception(annotation))]
        asked = subject()
        assert bool(excepting(compiled, asked, context(asked))) is of_trigger
        found = excepting_target(compiled, CONFIG_MAP, asked.obj, {}, context(asked))
        assert bool(found) is of_target

    def test_matching_a_target_spends_the_allowance(self):
        resources = {"kinds": ["ConfigMap"], "annotations": {"a*": "*b?c*"}}
        compiled = [compile_exception(exception(match={"any": [{"resources": resources}]}))]
        obj = {**subject().obj, "metadata": {"name": "x", "annotations": {"a": "b" * 250_000}}}
        asked = context(subject()).within(Allowance(BRIEF_STEPS))
        with pytest.raises(Exhausted):
            excepting_target(compiled, CONFIG_MAP, obj, {}, asked)

    @pytest.mark.parametrize(("value", "expected"), [("on", True), ("off", False)])
    def test_conditions_can_read_the_target(self, value, expected):
        conditions = {
            "all": [{"key": "{{ target.data.mode }}", "operator": "Equals", "value": value}]
        }
        compiled = [compile_exception(exception("targets", conditions=conditions))]
        obj = subject().obj
        found = excepting_target(compiled, CONFIG_MAP, obj, {}, context(subject()))
        assert bool(found) is expected

    @pytest.mark.parametrize(
        ("key", "of_targets"),
        [
            ("{{ settings.data.mode }}", True),
            ("{{ target.data.mode }}", True),
            ("{{ target.data.mode }}-{{ request.operation }}", True),
            ("{{ request.object.data.mode }}", False),
            ("{{ images.containers.c.tag }}", False),
            ("{{ serviceAccountName }}", False),
            ('{{ "{{ settings.data.path }}" }}', False),
        ],
    )
    def test_an_exception_with_conditions_on_the_request_excludes_targets(self, key, of_targets):
        conditions = {"all": [{"key": key, "operator": "Equals", "value": "on"}]}
        compiled = compile_exception(exception(conditions=conditions))
        assert (compiled.triggers, compiled.targets) == (True, of_targets)
        assert compile_exception(exception("both", conditions=conditions)).targets

    def test_an_exception_for_users_does_not_apply_to_targets(self):
        match = {"any": [{**MAPS["any"][0], "subjects": [{"kind": "User", "name": "jane"}]}]}
        assert not compile_exception(exception(background=False, match=match)).targets

    @pytest.mark.parametrize(("operation", "expected"), [("UPDATE", True), ("", False)])
    def test_an_exception_without_background_needs_a_request(self, operation, expected):
        compiled = [compile_exception(exception(background=False))]
        asked = subject(operation=operation)
        found = excepting_target(compiled, CONFIG_MAP, asked.obj, {}, context(asked))
        assert bool(found) is expected


class TestFilters:
    @pytest.mark.parametrize(
        ("part", "expected"),
        [
            ({"resources": {"names": ["c*"]}}, True),
            ({"resources": {"names": ["d*"]}}, False),
            ({"resources": {"namespaces": ["a"]}}, True),
            ({"resources": {"namespaces": ["b"]}}, False),
            ({"subjects": [{"kind": "User", "name": "jane"}]}, True),
            ({"subjects": [{"kind": "User", "name": "joe"}]}, False),
        ],
    )
    def test_an_exception_may_apply_to_any_kind(self, part, expected):
        asked = subject(user=UserInfo(username="jane"))
        assert holds({"match": {"any": [part]}, "background": False}, asked) is expected

    def test_an_exception_of_a_user_does_not_apply_without_a_user(self):
        match = {"any": [{**MAPS["any"][0], "subjects": [{"kind": "User", "name": "jane"}]}]}
        for user in (None, UserInfo()):
            assert not holds({"match": match, "background": False}, subject(user=user))

    def test_a_namespace_selector_does_not_restrict_namespaces(self):
        resources = {"kinds": ["Namespace"], "namespaceSelector": {"matchLabels": {"a": "b"}}}
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
        asked = subject(kind="Namespace", obj=obj, name="n", namespace="")
        assert holds({"match": {"any": [{"resources": resources}]}}, asked)


class TestRefused:
    @pytest.mark.parametrize(
        ("spec", "location", "reason"),
        [
            ({"match": None}, "spec.match", "at least one filter"),
            ({"match": {"any": []}}, "spec.match", "at least one filter"),
            (
                {"match": {"resources": {"kinds": ["Pod"]}}},
                "spec.match.resources",
                "unknown field",
            ),
            ({"match": {"any": [{}]}}, "spec.match", "not specified"),
            ({"match": {"any": MAPS}}, "spec.match.any", "expected a list"),
            (
                {"match": {"any": [*MAPS["any"], {"resources": {"operations": ["DELETE"]}}]}},
                "spec.match.any[1].resources",
                "write kinds",
            ),
            ({"exceptions": []}, "spec.exceptions", "at least one policy"),
            (
                {"exceptions": [{"policyName": "", "ruleNames": ["r"]}]},
                "spec.exceptions[0].policyName",
                "non-empty",
            ),
            (
                {"exceptions": [{"policyName": "p"}]},
                "spec.exceptions[0].ruleNames",
                "at least one rule",
            ),
            ({"background": "no"}, "spec.background", "true or false"),
            ({"conditions": {"some": []}}, "spec.conditions.some", "unknown field"),
            ({"until": "monday"}, "spec.until", "unknown field"),
            (
                {"match": {"any": [{**MAPS["any"][0], "clusterRoles": ["admin"]}]}},
                "spec.match.any[0].clusterRoles",
                "spec.background=false",
            ),
        ],
    )
    def test_an_invalid_exception_is_refused_with_its_location(self, spec, location, reason):
        with pytest.raises(InvalidPolicy) as caught:
            compile_exception(exception(**spec))
        assert caught.value.location == location
        assert reason in caught.value.reason

    def test_an_annotation_with_an_unknown_word_is_refused(self):
        with pytest.raises(InvalidPolicy, match="expected one of triggers, targets, both"):
            compile_exception(exception("all"))

    def test_subjects_for_targets_are_refused(self):
        match = {"any": [{**MAPS["any"][0], "subjects": [{"kind": "User", "name": "jane"}]}]}
        with pytest.raises(InvalidPolicy, match="a target has no request"):
            compile_exception(exception("both", background=False, match=match))

    @pytest.mark.parametrize("field", ["metadata", "spec"])
    def test_a_field_that_is_not_an_object_is_refused(self, field):
        with pytest.raises(InvalidPolicy):
            compile_exception({**exception(), field: 1})


class TestWarnings:
    def test_pod_security_is_ignored_with_a_warning(self):
        (text,) = compile_exception(exception(podSecurity=[{"controlName": "x"}])).warnings
        assert "spec.podSecurity is for validate rules" in text

    def test_a_wildcard_in_the_name_of_a_policy_selects_none_and_is_reported(self):
        rules = [*RULES, {"policyName": "p*", "ruleNames": ["*"]}]
        compiled = compile_exception(exception(exceptions=rules))
        (text,) = compiled.warnings
        assert text.startswith("spec.exceptions[1].policyName: p* selects no policy")
        assert not compiled.concerns(rule("x", policy="p1"))
