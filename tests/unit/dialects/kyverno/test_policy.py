import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import Phase
from reconciler.errors import InvalidPolicy

OTHER = {"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}}


def refusal(policy):
    with pytest.raises(InvalidPolicy) as caught:
        compile_policy(policy)
    return caught.value


def test_a_valid_policy_is_compiled_without_warnings(policy):
    compiled = compile_policy(policy())
    assert (compiled.key, compiled.ref.kind, compiled.ref.namespace) == ("p", "ClusterPolicy", "")
    assert (compiled.uid, compiled.generation) == ("u", 4)
    assert (compiled.failure_policy, compiled.timeout) == ("Fail", None)
    assert compiled.warnings == ()
    program = compiled.program("r")
    assert program.origin.location == "spec.rules[0]"
    assert (program.on_policy_change, program.skip_background) == (False, True)
    assert compiled.program("other") is None


def test_the_key_of_a_namespaced_policy_includes_its_namespace(policy):
    compiled = compile_policy(policy((("kind",), "Policy"), (("metadata", "namespace"), "a")))
    assert (compiled.key, compiled.ref.namespace) == ("a/p", "a")
    assert compiled.programs[0].origin.namespace == "a"


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_all_served_versions_are_read(policy, version):
    assert compile_policy(policy((("apiVersion",), f"kyverno.io/{version}"))).programs


@pytest.mark.parametrize(
    ("change", "location", "reason"),
    [
        ((("kind",), "Pod"), "kind", "is not a policy"),
        ((("apiVersion",), "v1"), "kind", "is not a policy"),
        ((("metadata",), "text"), "metadata", "expected an object"),
        ((("metadata", "namespace"), "a"), "metadata.namespace", "should not have the namespace"),
        ((("spec",), ["x"]), "spec", "expected an object"),
        ((("spec",),), "spec.rules", "at least one rule"),
        ((("spec", "rules"), []), "spec.rules", "at least one rule"),
        ((("spec", "rules"), {"a": 1}), "spec.rules", "expected a list"),
        ((("spec", "rules"), ["text"]), "spec.rules[0]", "expected an object"),
        ((("spec", "ruels"), []), "spec.ruels", "unknown field 'ruels'"),
        ((("spec", "rules", 0, "mutat"), {}), "spec.rules[0].mutat", "unknown field"),
        ((("spec", "rules", 0, "name"),), "spec.rules[0].name", "non-empty string"),
        ((("spec", "rules", 0, "name"), ""), "spec.rules[0].name", "non-empty string"),
        ((("spec", "rules", 0, "name"), 7), "spec.rules[0].name", "got a number"),
        ((("spec", "rules", 0, "name"), "x" * 64), "spec.rules[0].name", "63 characters"),
        ((("spec", "rules", 0, "mutate"),), "spec.rules[0]", "No operation defined in the rule"),
        ((("spec", "rules", 0, "validate"), {}), "spec.rules[0]", "Multiple operations defined"),
        (
            (("spec", "mutateExistingOnPolicyUpdate"), "yes"),
            "spec.mutateExistingOnPolicyUpdate",
            "true or false",
        ),
        ((("metadata", "generation"), "first"), "metadata.generation", "expected a number"),
        ((("spec", "background"), "no"), "spec.background", "true or false"),
        ((("spec", "failurePolicy"), "Maybe"), "spec.failurePolicy", "Fail or Ignore"),
        (
            (("spec", "webhookConfiguration"), {"failurePolicy": "Maybe"}),
            "spec.webhookConfiguration.failurePolicy",
            "Fail or Ignore",
        ),
        (
            (("spec", "webhookConfiguration"), {"timeout": 3}),
            "spec.webhookConfiguration.timeout",
            "unknown field",
        ),
        (
            (("spec", "webhookConfiguration"), {"matchConditions": ["text"]}),
            "spec.webhookConfiguration.matchConditions[0]",
            "expected an object",
        ),
        (
            (("spec", "webhookConfiguration"), {"matchConditions": {"name": "x"}}),
            "spec.webhookConfiguration.matchConditions",
            "expected a list",
        ),
    ],
)
def test_an_invalid_policy_is_refused_with_its_location(policy, change, location, reason):
    error = refusal(policy(change))
    assert error.location == location
    assert reason in error.reason
    assert str(error).startswith(location)


def test_a_duplicate_rule_name_is_refused(policy):
    built = policy()
    built["spec"]["rules"].append(built["spec"]["rules"][0])
    error = refusal(built)
    assert (error.location, error.reason) == (
        "spec.rules[1].name",
        "Duplicate rule name: 'r'",
    )


class TestWebhook:
    @pytest.mark.parametrize(
        ("spec", "failure_policy", "timeout"),
        [
            ({}, "Fail", None),
            ({"failurePolicy": "Ignore"}, "Ignore", None),
            ({"webhookConfiguration": {"failurePolicy": "Ignore"}}, "Ignore", None),
            ({"webhookTimeoutSeconds": 30}, "Fail", 30),
            ({"webhookConfiguration": {"timeoutSeconds": 1}}, "Fail", 1),
            ({"webhookConfiguration": None, "failurePolicy": None}, "Fail", None),
        ],
    )
    def test_webhook_settings_are_read_from_both_notations(
        self, policy, spec, failure_policy, timeout
    ):
        compiled = compile_policy(policy(*((("spec", key), spec[key]) for key in spec)))
        assert (compiled.failure_policy, compiled.timeout) == (failure_policy, timeout)

    @pytest.mark.parametrize(
        ("older", "newer", "value"),
        [
            ("failurePolicy", "failurePolicy", "Fail"),
            ("webhookTimeoutSeconds", "timeoutSeconds", 5),
        ],
    )
    def test_a_webhook_setting_in_both_notations_is_refused(self, policy, older, newer, value):
        error = refusal(
            policy((("spec", older), value), (("spec", "webhookConfiguration"), {newer: value}))
        )
        assert error.location == f"spec.{older}"
        assert f"use spec.webhookConfiguration.{newer} instead" in error.reason

    @pytest.mark.parametrize("value", [0, 31, -1, "5", 2.5, True])
    @pytest.mark.parametrize(
        ("place", "location"),
        [
            (("webhookTimeoutSeconds",), "spec.webhookTimeoutSeconds"),
            (("webhookConfiguration",), "spec.webhookConfiguration.timeoutSeconds"),
        ],
    )
    def test_the_webhook_timeout_is_limited(self, policy, place, location, value):
        given = value if place == ("webhookTimeoutSeconds",) else {"timeoutSeconds": value}
        error = refusal(policy((("spec", *place), given)))
        assert error.location == location
        assert error.reason == "the timeout value must be between 1 and 30 seconds"

    def test_match_conditions_are_passed_on(self, policy):
        conditions = [{"name": "x", "expression": "true"}]
        compiled = compile_policy(
            policy((("spec", "webhookConfiguration"), {"matchConditions": conditions}))
        )
        assert compiled.match_conditions == tuple(conditions)


class TestNotActedOn:
    @pytest.mark.parametrize("operation", ["validate", "generate", "verifyImages"])
    def test_rules_of_other_kinds_are_stored_with_a_warning(self, policy, operation):
        built = policy()
        built["spec"]["rules"].append({"name": "other", **OTHER, operation: {}})
        compiled = compile_policy(built)
        (warning,) = compiled.warnings
        assert warning.startswith("spec.rules[1]: rule other is a ")
        assert operation in warning
        assert [program.rule for program in compiled.programs] == ["r"]

    def test_rules_with_and_without_targets_run_in_separate_phases(self, policy):
        built = policy()
        inline = {"name": "inline", **OTHER, "mutate": {"patchStrategicMerge": {"a": 1}}}
        built["spec"]["rules"].insert(0, inline)
        compiled = compile_policy(built)
        assert compiled.warnings == ()
        assert [item.rule for item in compiled.in_phase(Phase.TRIGGERED)] == ["r"]
        assert [
            (item.rule, item.origin.location) for item in compiled.in_phase(Phase.ADMISSION)
        ] == [
            ("inline", "spec.rules[0]"),
            ("autogen-inline", "spec.rules[0]"),
            ("autogen-cronjob-inline", "spec.rules[0]"),
        ]

    @pytest.mark.parametrize(("value", "before"), [("One", ["r"]), ("All", []), (None, [])])
    def test_earlier_rules_with_targets_come_first_if_only_one_rule_is_applied(
        self, policy, value, before
    ):
        built = policy()
        inline = {"name": "inline", **OTHER, "mutate": {"patchStrategicMerge": {"a": 1}}}
        last = {**built["spec"]["rules"][0], "name": "last"}
        built["spec"] |= {"applyRules": value, "rules": [inline, built["spec"]["rules"][0], last]}
        compiled = compile_policy(built)
        assert [item.rule for item in compiled.program("last").before] == before
        assert compiled.program("inline").before == ()

    def test_a_program_is_printed_without_the_programs_before_it(self, policy):
        built = policy()
        inline = {**OTHER, "mutate": {"patchStrategicMerge": {"a": 1}}}
        built["spec"]["rules"] = [{"name": f"r{index}", **inline} for index in range(3)]
        every = len(repr(compile_policy(built)))
        built["spec"]["applyRules"] = "One"
        assert len(repr(compile_policy(built))) < 2 * every

    def test_apply_rules_accepts_only_all_or_one(self, policy):
        with pytest.raises(InvalidPolicy, match=r"spec.applyRules: expected All or One"):
            compile_policy(policy((("spec", "applyRules"), "First")))

    @pytest.mark.parametrize("field", ["emitWarning", "schemaValidation", "generateExisting"])
    def test_fields_for_other_kinds_of_rules_are_ignored(self, policy, field):
        assert compile_policy(policy((("spec", field), True))).warnings == ()

    def test_rules_are_counted_by_kind(self, policy):
        built = policy()
        built["spec"]["rules"] += [
            {"name": "v", **OTHER, "validate": {}},
            {"name": "w", **OTHER, "validate": {}, "generate": None},
            {"name": "m", **OTHER, "mutate": {"patchStrategicMerge": {"a": 1}}},
        ]
        assert dict(compile_policy(built).rule_count) == {
            "mutate": 2,
            "validate": 2,
            "generate": 0,
            "verifyimages": 0,
        }


class TestOnPolicyUpdate:
    @pytest.mark.parametrize(
        ("of_policy", "of_rule", "expected"),
        [
            (None, None, False),
            (True, None, True),
            (False, None, False),
            (True, False, False),
            (False, True, True),
            (None, True, True),
        ],
    )
    def test_the_rule_wins_over_the_policy(self, policy, of_policy, of_rule, expected):
        built = policy((("spec", "mutateExistingOnPolicyUpdate"), of_policy))
        built["spec"]["rules"][0]["mutate"]["mutateExistingOnPolicyUpdate"] = of_rule
        assert compile_policy(built).programs[0].on_policy_change is expected

    @pytest.mark.parametrize(("of_policy", "of_rule"), [(True, None), (False, True), (None, True)])
    def test_mutate_existing_on_policy_update_requires_targets(self, policy, of_policy, of_rule):
        built = policy((("spec", "mutateExistingOnPolicyUpdate"), of_policy))
        built["spec"]["rules"][0]["mutate"] = {
            "patchStrategicMerge": {"a": 1},
            "mutateExistingOnPolicyUpdate": of_rule,
        }
        error = refusal(built)
        assert error.location == "spec.rules[0].mutate.targets"
        assert "has to be specified when mutateExistingOnPolicyUpdate is set" in error.reason

    def test_a_rule_without_targets_can_opt_out(self, policy):
        built = policy((("spec", "mutateExistingOnPolicyUpdate"), True))
        inline = {"patchStrategicMerge": {"a": 1}, "mutateExistingOnPolicyUpdate": False}
        built["spec"]["rules"].append({"name": "inline", **OTHER, "mutate": inline})
        names = [item.rule for item in compile_policy(built).programs]
        assert names == ["r", "inline", "autogen-inline", "autogen-cronjob-inline"]

    @pytest.mark.parametrize("value", ["true", 1])
    def test_mutate_existing_on_policy_update_must_be_true_or_false(self, rule, value):
        error = refusal(rule((("mutate", "mutateExistingOnPolicyUpdate"), value)))
        assert error.location == "spec.rules[0].mutate.mutateExistingOnPolicyUpdate"


class TestUserInformation:
    @pytest.mark.parametrize(
        "part",
        [
            {"clusterRoles": ["admin"]},
            {"roles": ["a:b"]},
            {"subjects": [{"kind": "User", "name": "jane"}]},
        ],
    )
    def test_background_rules_cannot_filter_by_user(self, policy, part):
        place = ("spec", "rules", 0, "match", "any", 0)
        built = policy(*(((*place, key), value) for key, value in part.items()))
        error = refusal(built)
        (field,) = part
        assert error.location == f"spec.rules[0].match.any[0].{field}"
        assert "set spec.background=false" in error.reason
        built["spec"]["background"] = False
        assert compile_policy(built).programs
