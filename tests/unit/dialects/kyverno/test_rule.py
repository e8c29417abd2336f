import pytest

from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.registry import compile_policy
from reconciler.errors import InvalidPolicy

CONDITION = {"key": "{{ request.operation }}", "operator": "Equals", "value": "CREATE"}


def refusal(policy):
    with pytest.raises(InvalidPolicy) as caught:
        compile_policy(policy)
    return caught.value


def target(**changes):
    return ("mutate", "targets"), [
        {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s", **changes}
    ]


@pytest.mark.parametrize(
    ("change", "location", "reason"),
    [
        ((("match",),), "match", "match resources not specified"),
        ((("match",), {"any": [], "al": []}), "match.al", "unknown field"),
        (
            (("match",), {"any": [{"resources": {"kind": ["Pod"]}}]}),
            "match.any[0].resources.kind",
            "unknown field",
        ),
        (
            (("match",), {"any": [{"resources": {"kinds": ["Pod"], "names": ["{{ x }}"]}}]}),
            "match.any[0].resources.names[0]",
            "should not have variables",
        ),
        (
            (("exclude",), {"any": [{"resources": {"names": [1]}}]}),
            "exclude.any[0].resources.names[0]",
            "expected a string",
        ),
        ((("mutate",), "text"), "mutate", "expected an object"),
        ((("mutate", "target"), []), "mutate.target", "unknown field"),
        ((("mutate", "targets"), []), "mutate.targets", "at least one target"),
        ((("mutate", "targets"), {"a": 1}), "mutate.targets", "expected a list"),
        ((("mutate", "targets"), ["x"]), "mutate.targets[0]", "expected an object"),
        ((("mutate", "targets", 0, "kind"),), "mutate.targets[0].kind", "needs its kind"),
        ((("mutate", "targets", 0, "kind"), ""), "mutate.targets[0].kind", "needs its kind"),
        (
            (("mutate", "targets", 0, "apiVersion"),),
            "mutate.targets[0].apiVersion",
            "needs its apiVersion",
        ),
        (target(names=["x"]), "mutate.targets[0].names", "unknown field"),
        (target(name=7), "mutate.targets[0].name", "expected a string"),
        (target(name="{{ request. }}"), "mutate.targets[0].name", "request."),
        (target(name="{{ target.metadata.name }}"), "mutate.targets[0].name", "no target is"),
        (target(namespace="{{ nobody.x }}"), "mutate.targets[0].namespace", "nobody"),
        (target(kind="{{ element.kind }}"), "mutate.targets[0].kind", "foreach"),
        (
            target(selector={"matchLabels": {"a": "{{ target.x }}"}}),
            "mutate.targets[0].selector",
            "no target is",
        ),
        (target(selector="text"), "mutate.targets[0].selector", "expected an object"),
        (
            target(selector={"matchLabels": {"a": 1}}),
            "mutate.targets[0].selector.matchLabels.a",
            "expected a string",
        ),
        (
            target(selector={"matchLabel": {}}),
            "mutate.targets[0].selector.matchLabel",
            "unknown field",
        ),
        (
            target(preconditions={"al": []}),
            "mutate.targets[0].preconditions.al",
            "al",
        ),
        (
            target(preconditions={"all": [{**CONDITION, "operator": "Equalish"}]}),
            "mutate.targets[0].preconditions.all[0]",
            "Equal",
        ),
        ((("preconditions",), {"all": [{"key": "x"}]}), "preconditions.all[0]", "missing"),
        (
            (("preconditions",), {"all": [{**CONDITION, "key": "{{ target.x }}"}]}),
            "preconditions",
            "no target is",
        ),
        ((("celPreconditions",), [{"name": "x"}]), "celPreconditions", "validate.cel"),
        (
            (("skipBackgroundRequests",), "false"),
            "skipBackgroundRequests",
            "true or false",
        ),
    ],
)
def test_an_invalid_rule_is_refused_with_its_location(rule, change, location, reason):
    error = refusal(rule(change))
    assert error.location.startswith(f"spec.rules[0].{location}")
    assert reason in error.reason


@pytest.mark.parametrize("second", [{}, {"kind": "Pod"}])
def test_the_location_of_an_error_has_the_index_of_its_target(rule, second):
    good = {"apiVersion": "v1", "kind": "Secret", "name": "s"}
    error = refusal(rule((("mutate", "targets"), [good, second])))
    assert error.location == "spec.rules[0].mutate.targets[1].apiVersion"


class TestTarget:
    def test_an_empty_field_counts_as_absent(self, rule):
        compiled = compile_policy(rule(target(name="", namespace="", uid=None)))
        (built,) = parts_of(compiled.programs[0]).targets
        assert (built.name, built.namespace, built.uid) == (None, None, None)

    def test_preconditions_can_read_the_target(self, rule):
        condition = {"all": [{**CONDITION, "key": "{{ target.metadata.name }}"}]}
        compiled = compile_policy(rule(target(preconditions=condition)))
        assert parts_of(compiled.programs[0]).targets[0].preconditions is not None

    @pytest.mark.parametrize("namespace", [None, "", "a"])
    def test_a_namespaced_policy_can_name_its_own_namespace_or_none(self, policy, namespace):
        built = policy((("kind",), "Policy"), (("metadata", "namespace"), "a"))
        built["spec"]["rules"][0]["mutate"]["targets"][0]["namespace"] = namespace
        assert compile_policy(built).programs

    @pytest.mark.parametrize("namespace", ["b", "*", "{{ request.namespace }}"])
    def test_a_namespaced_policy_cannot_name_another_namespace(self, policy, namespace):
        built = policy((("kind",), "Policy"), (("metadata", "namespace"), "a"))
        built["spec"]["rules"][0]["mutate"]["targets"][0]["namespace"] = namespace
        error = refusal(built)
        assert error.location == "spec.rules[0].mutate.targets[0].namespace"
        assert "where the policy is being created" in error.reason

    def test_a_namespaced_policy_cannot_filter_by_namespace(self, policy):
        built = policy((("kind",), "Policy"), (("metadata", "namespace"), "a"))
        built["spec"]["rules"][0]["match"]["any"][0]["resources"]["namespaces"] = ["b"]
        assert "not allowed in namespaced policies" in refusal(built).reason


@pytest.mark.parametrize(("value", "skips"), [(None, True), (True, True), (False, False)])
def test_background_requests_are_skipped_unless_the_rule_disables_it(rule, value, skips):
    compiled = compile_policy(rule((("skipBackgroundRequests",), value)))
    assert compiled.programs[0].skip_background is skips


class TestProjection:
    """The fields of an object that are recorded because the object may be gone later."""

    @staticmethod
    def paths(policy):
        projection = compile_policy(policy).programs[0].projection
        return (
            {".".join(path) for path in projection.object},
            {".".join(path) for path in projection.old_object},
        )

    @pytest.mark.parametrize(
        ("text", "new", "old"),
        [
            ("plain", set(), set()),
            ("{{ request.operation }}", set(), set()),
            ("{{ request.object.metadata.name }}", {"metadata.name"}, set()),
            ("{{ request.oldObject.data.v }}", set(), {"data.v"}),
            (
                "{{ request.object.a.b || request.oldObject.c }}",
                {"a.b"},
                {"c"},
            ),
            ("{{ request.object.spec.list[0].x }}", {"spec.list"}, set()),
            ("{{ to_string(request.object) }}", {""}, set()),
            ("{{ to_string(request.oldObject) }}", set(), {""}),
            ("{{ to_string(request) }}", {""}, {""}),
            ("{{ to_string(@) }}", {""}, {""}),
            ("{{ request.object.{{ request.operation }} }}", {""}, set()),
            ("{{ target.metadata.name }}", set(), set()),
        ],
    )
    def test_the_fields_that_a_patch_reads_are_recorded(self, rule, text, new, old):
        patch = {"metadata": {"annotations": {"x": text}}}
        assert self.paths(rule((("mutate", "patchStrategicMerge"), patch))) == (new, old)

    def test_fields_read_by_any_part_of_the_rule_are_recorded(self, rule):
        read = "{{{{ request.object.{} }}}}".format
        changes = [
            (("preconditions",), {"all": [{**CONDITION, "key": read("pre.key")}]}),
            (
                ("mutate", "targets"),
                [
                    {
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "name": read("t.name"),
                        "namespace": read("t.space"),
                        "selector": {"matchLabels": {"a": read("t.label")}},
                        "preconditions": {"all": [{**CONDITION, "value": read("t.value")}]},
                    }
                ],
            ),
            (("mutate", "patchStrategicMerge"),),
            (("mutate", "patchesJson6902"), f'- {{op: add, path: /a, value: "{read("p.x")}"}}'),
        ]
        new, _ = self.paths(rule(*changes))
        assert new == {"pre.key", "t.name", "t.space", "t.label", "t.value", "p.x"}


ENTRY = {"name": "all", "globalReference": {"name": "deployments"}}


class TestGlobalReference:
    def test_a_cluster_policy_can_read_a_global_entry(self, rule):
        (program,) = compile_policy(rule((("context",), [ENTRY]))).programs
        assert [item.name for item in parts_of(program).entries] == ["all"]

    def test_a_namespaced_policy_cannot_read_a_global_entry(self, rule):
        policy = rule((("context",), [ENTRY]))
        policy["kind"] = "Policy"
        with pytest.raises(InvalidPolicy, match="may not read a GlobalContextEntry") as refused:
            compile_policy(policy)
        assert refused.value.location == "spec.rules[0].context[0].globalReference"

    def test_a_target_of_a_namespaced_policy_cannot_read_a_global_entry(self, rule):
        policy = rule((("mutate", "targets", 0, "context"), [ENTRY]))
        policy["kind"] = "Policy"
        with pytest.raises(InvalidPolicy, match="may not read a GlobalContextEntry"):
            compile_policy(policy)


def test_a_header_with_a_value_from_a_secret_is_refused(rule):
    headers = [{"key": "Token", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    service = {"url": "http://prices.shop.svc/now", "headers": headers}
    entry = {"name": "prices", "apiCall": {"service": service}}
    with pytest.raises(InvalidPolicy, match="unknown field 'valueFrom'") as refused:
        compile_policy(rule((("context",), [entry])))
    place = "spec.rules[0].context[0].apiCall.service.headers[0].valueFrom"
    assert refused.value.location == place


@pytest.mark.parametrize(
    ("call", "field", "reported"),
    [
        ({"urlPath": "{{ request.namespace }}"}, "urlPath", "begins with a variable"),
        ({"urlPath": "{{ request.namespace }}/x"}, "urlPath", "begins with a variable"),
        ({"urlPath": "/api/v1/pods?{{ request.namespace }}"}, "urlPath", "name of a parameter"),
        ({"urlPath": "/x?a=b&{{ request.name }}=c"}, "urlPath", "name of a parameter"),
        (
            {"service": {"url": "http://s.n.svc/x?{{ request.name }}"}},
            "service.url",
            "name of a parameter",
        ),
    ],
)
def test_a_variable_at_an_unsafe_place_of_a_url_is_refused(rule, call, field, reported):
    entry = {"name": "x", "apiCall": call}
    with pytest.raises(InvalidPolicy, match=reported) as refused:
        compile_policy(rule((("context",), [entry])))
    assert refused.value.location == f"spec.rules[0].context[0].apiCall.{field}"


@pytest.mark.parametrize(
    "call",
    [
        {"urlPath": "/api/v1/namespaces/{{ request.namespace }}/pods?limit={{ request.name }}"},
        {"urlPath": "/apis/apps/v1/deployments?labelSelector=a={{ request.name }},b=c"},
        {"service": {"url": "{{ request.object.data.service }}/x/{{ request.name }}"}},
        {"service": {"url": "http://{{ request.name }}.{{ request.namespace }}.svc:80/x"}},
    ],
)
def test_variables_in_path_segments_and_query_values_are_accepted(rule, call):
    (program,) = compile_policy(rule((("context",), [{"name": "x", "apiCall": call}]))).programs
    assert [entry.name for entry in parts_of(program).entries] == ["x"]


@pytest.mark.parametrize("name", ["Host", "host ", "Transfer-Encoding", "content-length"])
def test_a_header_that_the_connection_sets_is_refused(rule, name):
    headers = [{"key": name, "value": "kubernetes.default.svc"}]
    service = {"url": "http://s.n.svc", "headers": headers}
    with pytest.raises(InvalidPolicy, match="is set by the connection") as refused:
        compile_policy(rule((("context",), [{"name": "x", "apiCall": {"service": service}}])))
    place = "spec.rules[0].context[0].apiCall.service.headers[0].key"
    assert refused.value.location == place
