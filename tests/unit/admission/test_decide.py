"""Which requests the admission server records for an admission review."""

import time
from dataclasses import replace

import orjson
import pytest
from jmespath.parser import Parser

from admission.decide import Limits, decide, respond
from reconciler.api.meta import ANNOTATION_SERVICE_ACCOUNT
from reconciler.requests.draft import TypeName
from reconciler.services.catalog.exceptions import ExceptionIndex, ExceptionSettings
from reconciler.services.catalog.rule_index import Known
from reconciler.services.catalog.settings import default_filters
from reconciler.services.recording.recorder import Unrecorded
from reconciler.serving.review import parse_review
from tests.calls import counted
from tests.filters import parse_filters
from tests.unit.dialects.kubemod.modrules import POD, modrule

OWN = "system:serviceaccount:kyverno:kyverno-background-controller"
NO_FILTERS = parse_filters()


def run(
    index,
    body,
    *,
    labels=None,
    parent=None,
    filters=NO_FILTERS,
    exceptions=(),
    spared=lambda _: False,
    **limits,
):
    known = ExceptionIndex(exception_settings=ExceptionSettings(enabled=True, namespaces="*"))
    for number, item in enumerate(exceptions):
        known.on_event("ADDED", {**item, "metadata": {"name": f"e{number}", "namespace": "team"}})
    request = replace(
        parse_review(body),
        roles=limits.get("roles"),
        cluster_roles=limits.get("cluster_roles"),
    )
    kind = (parent or request.kind).name
    return decide(
        request,
        index.rules(
            Known(kind=kind, subresource=request.subresource, namespace=request.namespace)
        ),
        parent=parent,
        namespace_labels=labels,
        limits=Limits(
            controller_users=(OWN,),
            max_recorded=limits.get("max_recorded", 1 << 20),
            filters=filters,
        ),
        exceptions=known.of,
        spared=spared,
    )


def rules_of(intent):
    return [(item.spec.policy.key, item.spec.rule) for item in intent.drafts]


def test_one_request_is_drafted_per_policy_and_rule(make):
    index = make.index(make.policy("one", uid="1"), make.policy("two", uid="2"))
    intent = run(index, make.review(obj=make.thing()))
    assert rules_of(intent) == [("one", "copy"), ("two", "copy")]
    assert len({item.name for item in intent.drafts}) == 2


def test_the_same_admission_request_gives_the_same_names(make):
    index, body = make.index(make.policy()), make.review(obj=make.thing())
    assert run(index, body).drafts[0].name == run(index, body).drafts[0].name
    assert (
        run(index, make.review(obj=make.thing())).drafts[0].name != run(index, body).drafts[0].name
    )


def test_all_rules_of_a_policy_that_fire_are_recorded(make):
    policy = make.policy()
    (rule,) = policy["spec"]["rules"]
    policy["spec"]["rules"].append({**rule, "name": "again"})
    intent = run(make.index(policy), make.review(obj=make.thing()))
    assert rules_of(intent) == [("set-team", "copy"), ("set-team", "again")]


def test_an_object_of_another_kind_fires_no_rule(make):
    assert run(make.index(make.policy()), make.review(obj=make.thing(kind="Pod"))).drafts == ()


def test_a_dry_run_records_nothing(make):
    assert run(make.index(make.policy()), make.review(obj=make.thing(), dryRun=True)).drafts == ()


@pytest.mark.parametrize(("skip", "count"), [(None, 0), (True, 0), (False, 1)])
def test_writes_of_the_controller_fire_only_rules_that_do_not_skip_them(make, skip, count):
    rule = {} if skip is None else {"skipBackgroundRequests": skip}
    body = make.review(obj=make.thing(), userInfo={"username": OWN})
    assert len(run(make.index(make.policy(**rule)), body).drafts) == count


@pytest.mark.parametrize(
    ("manager", "account", "fires"),
    [
        ("kube-retrofit", "shop/bot", False),
        # Other field managers of the account, and other accounts with this field manager.
        ("kubectl", "shop/bot", True),
        ("kube-retrofit", None, True),
        ("kube-retrofit", "shop/other", True),
    ],
)
def test_own_writes_under_a_policys_account_fire_all_policies_but_that_one(
    make, manager, account, fires
):
    policy = make.policy()
    if account:
        policy["metadata"]["annotations"] = {ANNOTATION_SERVICE_ACCOUNT: account}
    bot = {"username": "system:serviceaccount:shop:bot"}
    body = make.review(obj=make.thing(), userInfo=bot, options={"fieldManager": manager})
    assert bool(run(make.index(policy), body).drafts) is fires


def test_a_namespaced_policy_fires_only_in_its_namespace(make):
    index = make.index(make.policy("local", namespace="a"))
    assert rules_of(run(index, make.review(obj=make.thing()))) == [("a/local", "copy")]
    assert run(index, make.review(obj=make.thing(namespace="b"))).drafts == ()


@pytest.mark.parametrize(
    ("operations", "fires"),
    [
        (None, False),
        (["CREATE", "UPDATE"], False),
        (["DELETE"], True),
        (["CREATE", "DELETE"], True),
    ],
)
def test_a_deletion_fires_only_rules_that_list_it(make, operations, fires):
    resources = {"kinds": ["ConfigMap"]} | ({"operations": operations} if operations else {})
    intent = run(
        make.index(make.policy(resources=resources)), make.review("DELETE", None, make.thing())
    )
    assert bool(intent.drafts) is fires


def selecting(make):
    selector = {"matchLabels": {"tier": "gold"}}
    return make.policy(resources={"kinds": ["ConfigMap"], "namespaceSelector": selector})


def test_a_trigger_in_a_namespace_with_unknown_labels_is_recorded(make):
    index, body = make.index(selecting(make)), make.review(obj=make.thing())
    assert len(run(index, body, labels=None).drafts) == 1
    assert len(run(index, body, labels={"tier": "gold"}).drafts) == 1
    assert run(index, body, labels={"tier": "tin"}).drafts == ()


@pytest.mark.parametrize(
    ("cluster_roles", "count"), [(None, 1), ((), 0), (("admin", "view"), 1), (("view",), 0)]
)
def test_unknown_roles_of_the_user_are_left_to_the_controller(make, cluster_roles, count):
    document = make.policy(spec={"background": False})
    document["spec"]["rules"][0]["match"]["any"][0]["clusterRoles"] = ["admin"]
    body = make.review(obj=make.thing())
    found = run(make.index(document), body, roles=(), cluster_roles=cluster_roles).drafts
    assert len(found) == count
    if found:
        kept = None if cluster_roles is None else list(cluster_roles)
        assert found[0].spec.user.get("clusterRoles") == kept


def condition(key, value="on"):
    return {"all": [{"key": key, "operator": "Equals", "value": value}]}


def test_a_precondition_on_the_request_is_decided_by_the_admission_server(make):
    index = make.index(make.policy(preconditions=condition("{{ request.object.data.mode }}")))
    assert len(run(index, make.review(obj=make.thing(data={"mode": "on"}))).drafts) == 1
    assert run(index, make.review(obj=make.thing(data={"mode": "off"}))).drafts == ()


def test_a_trigger_whose_precondition_fails_to_evaluate_is_recorded(make):
    index = make.index(make.policy(preconditions=condition("{{ request.object.data.mode }}")))
    assert len(run(index, make.review(obj=make.thing())).drafts) == 1


def test_a_precondition_on_a_variable_of_the_rule_is_left_to_the_controller(make):
    mode = [{"name": "mode", "variable": {"value": "on"}}]
    policy = make.policy(context=mode, preconditions=condition("{{ mode || 'off' }}"))
    assert len(run(make.index(policy), make.review(obj=make.thing())).drafts) == 1


def test_a_precondition_on_the_whole_request_is_left_to_the_controller(make):
    lone = {"all": [{"key": "{{ contains(to_string(request), 'a:b') }}", "operator": "Equals"}]}
    lone["all"][0]["value"] = True
    index = make.index(make.policy(preconditions=lone, spec={"background": False}))
    body = make.review(obj=make.thing())
    assert len(run(index, body).drafts) == 1
    assert run(index, body, roles=(), cluster_roles=()).drafts == ()


def test_a_precondition_that_holds_only_for_the_old_object_does_not_fire(make):
    index = make.index(make.policy(preconditions=condition("{{ request.object.data.mode }}")))
    old, new = make.update(make.thing(data={"mode": "on"}), data={"mode": "off"})
    assert run(index, make.review("UPDATE", new, old)).drafts == ()
    assert len(run(index, make.review("UPDATE", old, new)).drafts) == 1


def test_on_delete_a_precondition_sees_the_old_object(make):
    index = make.index(
        make.policy(
            resources={"kinds": ["ConfigMap"], "operations": ["DELETE"]},
            preconditions=condition("{{ request.object.data.mode }}"),
        )
    )
    assert (
        len(run(index, make.review("DELETE", None, make.thing(data={"mode": "on"}))).drafts) == 1
    )
    assert run(index, make.review("DELETE", None, make.thing(data={"mode": "off"}))).drafts == ()


def test_a_precondition_on_the_roles_of_the_user_is_left_to_the_controller(make):
    roles = {"all": [{"key": "{{ request.roles }}", "operator": "AnyIn", "value": ["a:b"]}]}
    index = make.index(make.policy(preconditions=roles, spec={"background": False}))
    body = make.review(obj=make.thing())
    assert len(run(index, body).drafts) == 1
    assert len(run(index, body, roles=("a:b",), cluster_roles=()).drafts) == 1
    assert run(index, body, roles=(), cluster_roles=()).drafts == ()


def test_resource_filters_take_precedence_over_policies(make):
    index = make.index(make.policy())
    filters = default_filters("kyverno")
    assert (
        run(index, make.review(obj=make.thing(namespace="kyverno")), filters=filters).drafts == ()
    )
    nodes = {"username": "system:node:x", "groups": ["system:nodes"]}
    assert run(index, make.review(obj=make.thing(), userInfo=nodes), filters=filters).drafts == ()
    assert len(run(index, make.review(obj=make.thing()), filters=filters).drafts) == 1


def test_resource_filters_do_not_apply_to_other_languages(make):
    """This includes the shipped ConfigMap's filter for the bindings of Pods."""
    zone = {"select": "$.syntheticRefs.node.metadata.labels.zone"}
    patch = {"op": "add", "path": "/metadata/labels/zone", "value": "x"}
    rule = modrule(type="Patch", match=[POD, zone], patch=[patch])
    index = make.index(make.policy(resources={"kinds": ["Pod/binding"]}), rule)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web-1", "namespace": "shop"},
        "target": {"kind": "Node", "name": "n1"},
    }
    body = make.review(
        obj=binding,
        kind={"group": "", "version": "v1", "kind": "Binding"},
        resource={"group": "", "version": "v1", "resource": "pods"},
        subResource="binding",
        name="web-1",
        namespace="shop",
    )
    pod = TypeName(version="v1", name="Pod")
    filters = parse_filters(resources="[Pod/binding,*,*]")
    intent = run(index, body, parent=pod, labels={}, filters=filters)
    assert [rule for _, rule in rules_of(intent)] == ["node"]
    assert intent.drafts[0].spec.recorded["object"]["target"] == {"kind": "Node", "name": "n1"}
    assert len(run(index, body, parent=pod, labels={}).drafts) == 2


def test_a_subresource_is_matched_by_the_kind_of_its_parent(make):
    index = make.index(make.policy(resources={"kinds": ["Deployment/scale"]}))
    scale = make.thing(kind="Scale", api_version="autoscaling/v1", spec={"replicas": 3})
    body = make.review(
        "UPDATE",
        scale,
        scale,
        subResource="scale",
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
    )
    parent = TypeName(group="apps", version="v1", name="Deployment")
    (draft,) = run(index, body, parent=parent).drafts
    assert draft.spec.trigger.subresource == "scale"
    assert draft.spec.resource.kind == "Scale"


def test_a_trigger_too_large_to_record_is_refused_with_size_and_cure(make):
    rule = {
        "resources": {"kinds": ["ConfigMap"], "operations": ["DELETE"]},
        "patch": {"metadata": {"labels": {"x": "{{ request.object.data.big }}"}}},
    }
    old = make.thing(data={"big": "x" * 2000})
    intent = run(
        make.index(make.policy(**rule)), make.review("DELETE", None, old), max_recorded=1000
    )
    assert intent.drafts == ()
    (text,) = intent.refused
    assert "rule copy of policy set-team" in text
    assert "1000" in text
    assert "--max-recorded" in text
    strict = respond("Fail", intent.refused, ())
    assert not strict.allowed
    assert strict.code == 422
    lax = respond("Ignore", intent.refused, ())
    assert lax.allowed
    assert lax.warnings


def test_a_failed_recording_is_answered_according_to_the_failure_policy(make):
    (draft,) = run(make.index(make.policy()), make.review(obj=make.thing())).drafts
    lost = (Unrecorded(draft=draft, reason="unavailable", message="connection refused"),)
    strict = respond("Fail", (), lost)
    assert not strict.allowed
    assert strict.code == 503
    assert "could not record the work of rule copy of policy set-team" in strict.message
    assert "connection refused" in strict.message
    assert strict.message.endswith("try again")
    lax = respond("Ignore", (), lost)
    assert lax.allowed
    assert "connection refused" in lax.warnings[0]
    assert respond("Fail", (), ()).allowed


def test_the_repr_of_a_draft_does_not_contain_secret_data(make):
    rule = {
        "resources": {"kinds": ["Secret"], "operations": ["DELETE"]},
        "patch": {"metadata": {"labels": {"x": "{{ request.object.data.token }}"}}},
    }
    old = make.thing(kind="Secret", data={"token": "aHVudGVyMg=="})
    (draft,) = run(make.index(make.policy(**rule)), make.review("DELETE", None, old)).drafts
    assert "aHVudGVyMg" not in repr(draft)
    assert orjson.loads(draft.secret)["object"]["data"] == {"token": "aHVudGVyMg=="}


def excepting(*, rules=("copy",), resources=None, **spec):
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "spec": {
            "match": {"any": [{"resources": resources or {"kinds": ["ConfigMap"]}}]},
            "exceptions": [{"policyName": "set-team", "ruleNames": list(rules)}],
            **spec,
        },
    }


class TestExceptions:
    @pytest.mark.parametrize(
        ("exception", "count"),
        [
            (excepting(), 0),
            (excepting(rules=["c?py"]), 0),
            (excepting(rules=["other"]), 1),
            (excepting(resources={"kinds": ["Pod"]}), 1),
            (excepting(resources={"kinds": ["ConfigMap"], "namespaces": ["b"]}), 1),
            (excepting(conditions=condition("{{ request.object.data.v }}", "x")), 0),
            (excepting(conditions=condition("{{ request.object.data.v }}", "y")), 1),
            (excepting(conditions=condition("{{ request.object.data.none }}")), 1),
            # Conditions that read a context entry of the rule are left to the controller.
            (excepting(conditions=condition("{{ settings.data.v }}")), 1),
        ],
    )
    def test_an_excepted_trigger_is_not_recorded(self, make, exception, count):
        body = make.review(obj=make.thing(data={"v": "x"}))
        intent = run(make.index(make.policy()), body, exceptions=[exception])
        assert len(intent.drafts) == count

    def test_users_share_a_request_only_if_no_exception_and_no_rule_depends_on_them(self, make):
        def name(user, *exceptions):
            old, new = make.update(make.thing(), data={"v": "y"})
            body = make.review("UPDATE", new, old, userInfo={"username": user})
            policy = make.policy(skipBackgroundRequests=False)
            (draft,) = run(make.index(policy), body, exceptions=exceptions).drafts
            return draft.name

        # Whether it applies may depend on the user, which the controller decides.
        undecided = excepting(conditions=condition("{{ settings.data.v }}"))
        assert name("jane") == name("joe") != name(OWN)
        assert name("jane", undecided) == name("jane", undecided) != name("joe", undecided)

    def test_an_exception_in_a_namespace_with_unknown_labels_is_left_to_the_controller(self, make):
        resources = {"kinds": ["ConfigMap"], "namespaceSelector": {"matchLabels": {"a": "b"}}}
        exceptions, body = [excepting(resources=resources)], make.review(obj=make.thing())
        index = make.index(make.policy())
        for labels, count in ((None, 1), ({}, 1), ({"a": "b"}, 0)):
            assert len(run(index, body, labels=labels, exceptions=exceptions).drafts) == count

    def test_a_deletion_can_be_excepted(self, make):
        index = make.index(
            make.policy(resources={"kinds": ["ConfigMap"], "operations": ["DELETE"]})
        )
        body = make.review("DELETE", None, make.thing())
        assert run(index, body, exceptions=[excepting()]).drafts == ()

    def test_an_exception_for_targets_only_does_not_except_triggers(self, make):
        exception = excepting()
        known = ExceptionIndex(exception_settings=ExceptionSettings(enabled=True, namespaces="*"))
        marks = {"kube-retrofit.dev/excepts": "targets"}
        known.on_event(
            "ADDED",
            {**exception, "metadata": {"name": "e", "namespace": "a", "annotations": marks}},
        )
        index = make.index(make.policy())
        (found,) = known.of(index.policies()[0].programs[0])
        assert (found.triggers, found.targets) == (False, True)
        request = parse_review(make.review(obj=make.thing()))
        intent = decide(
            request,
            index.rules(Known(kind="ConfigMap", subresource="", namespace="a")),
            parent=None,
            namespace_labels={},
            limits=Limits(controller_users=(OWN,), max_recorded=1 << 20, filters=NO_FILTERS),
            exceptions=known.of,
        )
        assert len(intent.drafts) == 1


def one_of(make, *rules):
    policy = make.policy(spec={"applyRules": "One"})
    (rule,) = policy["spec"]["rules"]
    policy["spec"]["rules"] = [{**rule, **fields} for fields in rules]
    return make.index(policy)


READS_MORE = {"preconditions": condition("{{ settings.data.v }}")}
SETTINGS = {"context": [{"name": "settings", "configMap": {"name": "s", "namespace": "a"}}]}


class TestOne:
    """Only the first rule of a policy with ``applyRules: One`` that fires is recorded."""

    def found(self, index, body, **given):
        return [(item.spec.rule, item.spec.unless) for item in run(index, body, **given).drafts]

    def test_only_the_first_of_two_matching_rules_is_recorded(self, make):
        index = one_of(make, {"name": "a"}, {"name": "b"})
        assert self.found(index, make.review(obj=make.thing())) == [("a", ())]

    @pytest.mark.parametrize(
        "first",
        [
            {"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}},
            {"preconditions": condition("{{ request.name }}", "other")},
        ],
    )
    def test_a_rule_that_does_not_fire_is_passed_over(self, make, first):
        index = one_of(make, {"name": "a", **first}, {"name": "b"}, {"name": "c"})
        assert self.found(index, make.review(obj=make.thing())) == [("b", ())]

    def test_rules_with_kind_wildcards_keep_their_order_in_the_policy(self, make):
        wild = {"match": {"any": [{"resources": {"kinds": ["Config*"]}}]}}
        index = one_of(make, {"name": "a", **wild}, {"name": "b"})
        assert self.found(index, make.review(obj=make.thing())) == [("a", ())]

    def test_a_rule_that_is_excepted_is_passed_over(self, make):
        index = one_of(make, {"name": "a"}, {"name": "b"})
        body = make.review(obj=make.thing())
        found = self.found(index, body, exceptions=[excepting(rules=["a"])])
        assert found == [("b", ())]

    def test_a_rule_left_to_the_controller_does_not_end_the_search(self, make):
        pending = {**SETTINGS, **READS_MORE}
        index = one_of(
            make, {"name": "a", **pending}, {"name": "b", **pending}, {"name": "c"}, {"name": "d"}
        )
        found = self.found(index, make.review(obj=make.thing()))
        assert found == [("a", ()), ("b", ("a",)), ("c", ("a", "b"))]

    def test_fields_that_an_earlier_rule_reads_are_recorded_for_later_rules(self, make):
        reads = {"all": [{**READS_MORE["preconditions"]["all"][0]}]}
        reads["all"].append(
            {"key": "{{ request.oldObject.data.v }}", "operator": "Equals", "value": "x"}
        )
        index = one_of(make, {"name": "a", **SETTINGS, "preconditions": reads}, {"name": "b"})
        old, new = make.thing(data={"v": "x", "w": "1"}), make.thing(data={"v": "y"})
        intent = run(index, make.review("UPDATE", new, old))
        assert [item.spec.recorded for item in intent.drafts] == [
            {"oldObject": {"data": {"v": "x"}}}
        ] * 2

    def test_own_writes_pass_over_rules_that_skip_background_requests(self, make):
        index = one_of(make, {"name": "a"}, {"name": "b", "skipBackgroundRequests": False})
        body = make.review(obj=make.thing(), userInfo={"username": OWN})
        assert self.found(index, body) == [("b", ())]

    def test_apply_rules_one_does_not_extend_across_policies(self, make):
        index = make.index(
            make.policy("one", uid="1", spec={"applyRules": "One"}),
            make.policy("two", uid="2", spec={"applyRules": "One"}),
        )
        assert len(run(index, make.review(obj=make.thing())).drafts) == 2


def test_no_expression_is_compiled_for_a_request(make):
    index = make.index(make.policy())
    first = run(index, make.review(obj=make.thing()))
    assert rules_of(first)

    with counted(Parser.parse) as calls:
        for number in range(20):
            intent = run(index, make.review(obj=make.thing(name=f"n{number}")))
            assert rules_of(intent) == rules_of(first)
    assert not calls


BOMB = "length(join('', map(&to_upper(@), request.object.data.*)))"
MANY = {f"k{at}": "x" * 1_000 for at in range(200)}


def bombs(count):
    return {
        "all": [
            {"key": "{{ " + BOMB + " }}", "operator": "GreaterThan", "value": 0}
            for _ in range(count)
        ]
    }


def test_all_rules_of_a_request_share_one_allowance(make):
    index = make.index(
        *(make.policy(f"p{at}", uid=str(at), preconditions=bombs(50)) for at in range(3)),
        make.policy("z", uid="z"),
    )
    began = time.process_time()
    intent = run(index, make.review(obj=make.thing(data=MANY)))
    assert time.process_time() - began < 2.0
    # No request is lost: the controller decides on the rules that exceeded the allowance.
    assert [policy for policy, _ in rules_of(intent)] == ["p0", "p1", "p2", "z"]
    assert intent.costly.origin.policy.key == "p0"


def test_the_most_costly_rule_of_a_request_is_named(make):
    cheap = make.policy("cheap", uid="c", preconditions=condition("{{ request.name }}", "x"))
    costly = make.policy("costly", uid="x", preconditions=bombs(150))
    intent = run(make.index(cheap, costly), make.review(obj=make.thing(data=MANY)))
    assert intent.costly.origin.policy.key == "costly"


def test_a_spared_rule_is_left_to_the_controller(make):
    never = {"all": [{"key": "a", "operator": "Equals", "value": "b"}]}
    index, body = make.index(make.policy(preconditions=never)), make.review(obj=make.thing())
    assert run(index, body).drafts == ()
    assert rules_of(run(index, body, spared=lambda _: True)) == [("set-team", "copy")]
    # Its match still decides which objects fire it.
    elsewhere = make.review(obj=make.thing(namespace="elsewhere"))
    only = {"kinds": ["ConfigMap"], "namespaces": ["a"]}
    index = make.index(make.policy(resources=only, preconditions=never))
    assert run(index, elsewhere, spared=lambda _: True).drafts == ()


def test_matching_annotations_by_wildcard_costs_steps_for_every_annotation(make):
    wild = {f"*-{at}-*": "?*" for at in range(300)}
    resources = {"kinds": ["ConfigMap"], "annotations": wild}
    index = make.index(make.policy(resources=resources))
    notes = {f"a{at}": "v" for at in range(20_000)}
    began = time.process_time()
    intent = run(index, make.review(obj=make.thing(metadata={"annotations": notes})))
    assert time.process_time() - began < 1.0
    assert rules_of(intent) == [("set-team", "copy")]
    assert intent.costly.origin.policy.key == "set-team"
