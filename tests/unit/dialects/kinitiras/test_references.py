"""References in kinitiras policies: what they load, and the values they take from the answer."""

from collections.abc import Hashable
from typing import Any

import pytest

from reconciler.api.rights import ANY, Need, ReadNeed, Right
from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.dialects.kinitiras.labelled import ANNOTATION
from reconciler.engine.context import Context, request_context
from reconciler.engine.loads import (
    LoadFailure,
    NeedsLoad,
    ObjectLoad,
    SecretName,
    ServiceLoad,
    TokenSource,
)
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import SHIPPED
from reconciler.engine.program import Program
from reconciler.errors import EvaluationError, InvalidPolicy

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "labels": {"app": "web"},
        "annotations": {"owned": "blue/../../x", "n": "1 2"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1"},
            {"apiVersion": "v1", "kind": "Node", "name": "n", "controller": True},
        ],
    },
    "spec": {},
}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}
HTTP = {"url": "http://teams.shop.svc/owner/{{metadata.labels.app}}", "method": "GET"}


def policy(kind: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "p", "annotations": {ANNOTATION: "all"}}
    if namespace:
        meta["namespace"] = namespace
    head = {"apiVersion": "policy.kcloudlabs.io/v1alpha1", "kind": kind, "metadata": meta}
    return {**head, "spec": spec}


def program(reference: dict[str, Any], namespace: str = "") -> Program:
    """Return a rule that writes the value of a reference to an annotation."""
    template = {"type": "annotations", "operation": "add", "path": "a", "valueRef": reference}
    spec = {"overrideRules": [{"overriders": {"template": template}}]}
    kind = "OverridePolicy" if namespace else "ClusterOverridePolicy"
    (found,) = KINITIRAS.compile(policy(kind, spec, namespace)).programs
    return found


def k8s(path: str = "/metadata/name", **selector: Any) -> dict[str, Any]:
    return {"from": "k8s", "path": path, "k8s": {**DEPLOYMENT, **selector}}


def http(path: str = "data.owner", **asked: Any) -> dict[str, Any]:
    return {"from": "http", "path": path, "http": {**HTTP, **asked}}


def context(obj: dict[str, Any] = POD, *, operation: str = "CREATE") -> Context:
    return request_context(
        operation=operation,
        obj=obj,
        old_object=None,
        name=obj["metadata"]["name"],
        namespace=obj["metadata"].get("namespace", ""),
        kind=("", "v1", "Pod"),
        user_info=None,
    )


def asked(rule: Program, obj: dict[str, Any] = POD) -> Any:
    """Return the one load that a rule needs, or None."""
    try:
        rule.mutation.apply(None, context(obj), obj, SHIPPED)
    except NeedsLoad as need:
        (load,) = need.loads
        return load
    return None


def annotation(rule: Program, answer: Any, obj: dict[str, Any] = POD) -> Any:
    """Return the annotation that a rule writes for an answer to its load."""
    read = context(obj).with_loads({asked(rule, obj): answer})
    found = rule.mutation.apply(None, read, obj, SHIPPED)
    assert not isinstance(found, Unmet)
    return found["metadata"].get("annotations", {}).get("a")


class TestObjects:
    @pytest.mark.parametrize(
        ("selector", "namespace", "name", "labels"),
        [
            ({"namespace": "a", "name": "b"}, "a", "b", ""),
            ({"name": "{{metadata.labels.app}}-x"}, "shop", "web-x", ""),
            ({"namespace": "{{metadata.namespace}}", "name": "b"}, "shop", "b", ""),
            (
                {"labelSelector": {"matchLabels": {"app": "{{metadata.labels.app}}"}}},
                "",
                "",
                "app in (web)",
            ),
            (
                {
                    "namespace": "a",
                    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                },
                "a",
                "",
                "app",
            ),
        ],
    )
    def test_a_reference_loads_the_object_that_it_names_or_selects(
        self, selector, namespace, name, labels
    ):
        load = ObjectLoad(
            api_version="apps/v1",
            kind="Deployment",
            namespace=namespace,
            name=name,
            labels=labels,
        )
        assert asked(program(k8s(**selector))) == load

    def test_the_value_is_read_from_a_path_of_the_loaded_object(self):
        rule = program(k8s("/spec/replicas", name="b"))
        assert annotation(rule, {"spec": {"replicas": 3}}) == "3"
        assert annotation(rule, {"spec": {}}) is None
        assert annotation(program(k8s(labelSelector={"matchLabels": {"a": "b"}})), None) is None

    @pytest.mark.parametrize(
        "selector",
        [{"name": "{{metadata.labels.none}}"}, {"name": "b", "namespace": "{{metadata.none}}"}],
    )
    def test_no_object_is_read_if_a_placeholder_resolves_to_nothing(self, selector):
        assert asked(program(k8s(**selector))) is None

    @pytest.mark.parametrize(
        "selector",
        [
            {"name": "{{metadata.annotations.owned}}"},
            {"namespace": "{{metadata.annotations.owned}}", "name": "b"},
            {"labelSelector": {"matchLabels": {"app": "{{metadata.annotations.n}}"}}},
        ],
    )
    def test_a_value_of_the_object_cannot_redirect_a_reference(self, selector):
        with pytest.raises(EvaluationError) as caught:
            asked(program(k8s(**selector)))
        assert caught.value.without_values.startswith("k8s.")
        assert "blue" not in str(caught.value)

    def test_an_object_that_cannot_be_read_is_reported_by_name(self):
        with pytest.raises(EvaluationError, match="Deployment shop/b cannot be read: not found"):
            annotation(program(k8s(name="b")), LoadFailure("not found"))

    def test_a_namespaced_policy_reads_its_own_namespace_only(self):
        load = asked(program(k8s(name="b"), "shop"))
        assert (load.namespace, load.confined) == ("shop", True)
        load = asked(program(k8s(labelSelector={"matchLabels": {"a": "b"}}), "shop"))
        assert (load.namespace, load.confined) == ("shop", True)
        with pytest.raises(InvalidPolicy, match="can read only that namespace"):
            program(k8s(name="b", namespace="other"), "shop")
        elsewhere = {**POD, "metadata": {**POD["metadata"], "namespace": "other"}}
        with pytest.raises(EvaluationError, match="can read only that namespace"):
            asked(program(k8s(name="b", namespace="{{metadata.namespace}}"), "shop"), elsewhere)

    def test_a_namespaced_policy_reads_no_secrets(self):
        secret = {"from": "k8s", "path": "data", "k8s": {"apiVersion": "v1", "kind": "Secret"}}
        secret["k8s"] = {"apiVersion": "v1", "kind": "Secret", "name": "s"}
        with pytest.raises(InvalidPolicy, match="must not read Secrets"):
            program(secret, "shop")
        assert asked(program(secret)).kind == "Secret"

    @pytest.mark.parametrize(
        ("selector", "place", "reason"),
        [
            ({}, "k8s", "expected a name or a labelSelector"),
            ({"kind": "Deploy*", "name": "b"}, "k8s.kind", "a value such as Deployment"),
            ({"apiVersion": "apps", "name": "b"}, "k8s.apiVersion", "a value such as apps/v1"),
            ({"name": "b", "fieldSelector": {"a": 1}}, "k8s.fieldSelector", "only a name"),
            ({"name": 1}, "k8s.name", "expected a string, got a number"),
            (
                {"labelSelector": {"matchLabels": {"a b": "c"}}},
                "labelSelector.matchLabels",
                "not a valid label key",
            ),
        ],
    )
    def test_an_invalid_reference_is_refused_with_its_location(self, selector, place, reason):
        with pytest.raises(InvalidPolicy) as caught:
            program(k8s(**selector))
        assert caught.value.location.endswith(place)
        assert reason in caught.value.reason

    def test_the_needed_rights_follow_from_the_text_of_the_reference(self):
        place = "spec.overrideRules[0].overriders.template.valueRef"
        found = program(k8s(name="b", namespace="a")).binding
        assert found.loads
        needed = {"location": place, "api_version": "apps/v1", "kind": "Deployment"}
        assert list(found.read_rights()) == [
            ReadNeed(**needed, verb="get", namespace="a", name="b")
        ]
        found = program(k8s(labelSelector={"matchLabels": {"a": "b"}})).binding
        assert list(found.read_rights()) == [ReadNeed(**needed, verb="list")]


class TestOwners:
    def test_the_first_owner_is_read(self):
        rule = program({"from": "owner", "path": "/metadata/labels/team"})
        load = ObjectLoad(
            api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web", confined=False
        )
        assert asked(rule) == load
        owner = {"metadata": {"uid": "u1", "labels": {"team": "blue"}}}
        assert annotation(rule, owner) == "blue"
        assert annotation(rule, {"metadata": {"labels": {}}}) is None

    def test_a_namespaced_policy_reads_only_a_namespaced_owner(self):
        load = asked(program({"from": "owner", "path": "a"}, "shop"))
        assert (load.namespace, load.confined) == ("shop", True)

    def test_an_object_with_another_uid_is_not_the_owner(self):
        rule = program({"from": "owner", "path": "/metadata/labels/team"})
        with pytest.raises(EvaluationError, match="has another uid"):
            annotation(rule, {"metadata": {"uid": "u2", "labels": {"team": "blue"}}})

    @pytest.mark.parametrize(
        ("owners", "reason"),
        [
            (None, "restrict resourceSelectors to objects with an owner"),
            ([], "restrict resourceSelectors to objects with an owner"),
            ([{"apiVersion": "v1", "kind": "*", "name": "a"}], "in ownerReferences is invalid"),
            ([{"apiVersion": "v1", "kind": "Secret", "name": "a"}], "a Secret is never read"),
            ([{"apiVersion": "v1", "kind": "Pod", "name": "../x"}], "no object has such a name"),
        ],
    )
    def test_an_invalid_or_missing_owner_is_an_error(self, owners, reason):
        pod = {**POD, "metadata": {**POD["metadata"], "ownerReferences": owners}}
        with pytest.raises(EvaluationError, match="owner: ") as caught:
            asked(program({"from": "owner", "path": "/metadata/name"}), pod)
        assert reason in str(caught.value)
        assert "owner" in caught.value.without_values

    def test_the_right_to_read_an_owner_covers_any_kind(self):
        (need,) = program({"from": "owner", "path": "a"}, "shop").binding.read_rights()
        assert isinstance(need, Need)
        assert need.options == (Right(verb="get", group=ANY, resource=ANY, namespace="shop"),)


class TestServices:
    def test_a_service_is_called_with_values_of_the_object(self):
        rule = program(
            http(
                params={"name": "{{metadata.name}}", "n": "{{metadata.annotations.n}}"},
                header={"X-A": "b"},
            )
        )
        assert asked(rule) == ServiceLoad(
            method="GET",
            url="http://teams.shop.svc/owner/web?name=web-1&n=1+2",
            headers=(("X-A", "b"),),
        )
        assert annotation(rule, {"data": {"owner": "blue"}}) == "blue"
        assert annotation(rule, {"data": {}}) is None

    def test_a_path_into_an_answer_may_begin_with_body(self):
        assert annotation(program(http("body.data.owner")), {"data": {"owner": "b"}}) == "b"
        assert annotation(program(http("body.owner")), {"body": {"owner": "c"}}) == "c"

    def test_a_body_is_posted_without_filling_placeholders(self):
        load = asked(program(http(method="POST", body={"b": "{{metadata.name}}", "a": 1})))
        assert (load.method, load.body) == ("POST", '{"a": 1, "b": "{{metadata.name}}"}')

    def test_a_value_of_the_object_cannot_leave_its_url_segment(self):
        url = "http://teams.shop.svc/{{metadata.annotations.owned}}"
        with pytest.raises(EvaluationError, match="would lead elsewhere") as caught:
            asked(program(http(url=url)))
        assert "blue" not in str(caught.value)

    def test_no_service_is_called_if_a_placeholder_resolves_to_nothing(self):
        assert asked(program(http(params={"a": "{{metadata.labels.none}}"}))) is None

    def test_a_namespaced_policy_calls_its_own_services_only(self):
        assert asked(program(http(), "shop")).namespace == "shop"
        with pytest.raises(InvalidPolicy, match="of its own namespace only"):
            program(http(url="http://teams.other.svc/"), "shop")
        url = "http://teams.{{metadata.namespace}}.svc/"
        with pytest.raises(EvaluationError, match="of its own namespace only"):
            asked(program(http(url=url), "other"))

    def test_a_static_token_is_sent_and_another_is_fetched_with_credentials(self):
        load = asked(program(http(auth={"staticToken": "s3cret", "username": "u"})))
        assert load.headers == (("Authorization", "Bearer s3cret"),)
        auth = {"username": "u", "password": "p4ss", "authUrl": "http://auth.shop.svc/t"}
        load = asked(program(http(auth={**auth, "expireDuration": "2m", "token": "old"})))
        assert load.token == TokenSource(
            url="http://auth.shop.svc/t", username="u", password="p4ss", seconds=120.0
        )
        assert "p4ss" not in repr(load)
        assert asked(program(http(auth=auth))).token.seconds == 300.0

    def test_credentials_can_be_read_from_a_secret(self):
        rule = program(http(auth={"secretRef": {"name": "teams"}, "expireDuration": "1m"}), "shop")
        assert asked(rule).token == TokenSource(seconds=60.0, secret=SecretName("shop", "teams"))
        (need,) = rule.binding.read_rights()
        assert (need.verb, need.kind, need.namespace, need.name) == (
            "get",
            "Secret",
            "shop",
            "teams",
        )
        assert need.location.endswith("valueRef.http.auth.secretRef")
        url = "http://auth.shop.svc/t"
        elsewhere = {"name": "teams", "namespace": "auth"}
        rule = program(http(auth={"secretRef": elsewhere, "authUrl": url}))
        assert asked(rule).token == TokenSource(
            url=url, seconds=300.0, secret=SecretName("auth", "teams")
        )

    @pytest.mark.parametrize(
        ("secret", "place", "reason"),
        [
            (
                {"name": "s", "namespace": "other"},
                "secretRef.namespace",
                "read only that namespace",
            ),
            ({"name": "../x"}, "secretRef.name", "expected the name of a Secret"),
            ({"name": "{{metadata.name}}"}, "secretRef.name", "expected the name of a Secret"),
            ({}, "secretRef.name", "expected the name of a Secret"),
            ({"name": "s", "key": "x"}, "secretRef.key", "unknown field"),
        ],
    )
    def test_a_namespaced_policy_can_use_only_valid_secrets_of_its_namespace(
        self, secret, place, reason
    ):
        with pytest.raises(InvalidPolicy) as caught:
            program(http(auth={"secretRef": secret}), "shop")
        assert caught.value.location.endswith(place)
        assert reason in caught.value.reason

    @pytest.mark.parametrize(
        "url",
        [
            "http://{{metadata.labels.app}}.shop.svc/x",
            "http://teams.{{metadata.namespace}}.svc",
            "{{metadata.annotations.url}}/x",
            "http://teams{{metadata.annotations.url}}",
        ],
    )
    def test_a_url_that_receives_credentials_has_no_placeholder_in_its_host(self, url):
        auth = {"secretRef": {"name": "s", "namespace": "shop"}}
        with pytest.raises(InvalidPolicy, match="the host takes no placeholder"):
            program(http(url=url, auth=auth))

    @pytest.mark.parametrize(
        ("given", "place", "reason"),
        [
            ({"auth": {"secretRef": {"name": "s"}}}, "secretRef.namespace", "of a Secret"),
            (
                {"auth": {"secretRef": {"name": "s", "namespace": "n"}, "staticToken": "p4ss"}},
                "auth.staticToken",
                "secretRef provides it as well",
            ),
            ({"url": ""}, "http.url", "expected the URL of a service"),
            ({"url": "ftp://a.b.svc"}, "http.url", "begins with http:// or https://"),
            ({"url": "http://a.svc/?{{metadata.name}}=1"}, "http.url", "name of a parameter"),
            ({"method": "PUT"}, "http.method", "expected one of GET, POST"),
            ({"header": {"Host": "a"}}, "http.header.Host", "set by the connection"),
            ({"header": {"a": 1}}, "http.header.a", "put the value in quotes"),
            ({"auth": {"username": "u"}}, "auth.authUrl", "expected a secretRef, a staticToken"),
            (
                {"auth": {"username": "u", "password": "p", "authUrl": "http://{{a}}"}},
                "auth.authUrl",
                "takes no placeholder",
            ),
            (
                {
                    "auth": {
                        "username": "u",
                        "password": "p",
                        "authUrl": "http://a.b.svc",
                        "expireDuration": "5 minutes",
                    }
                },
                "auth.expireDuration",
                "expected a duration",
            ),
            ({"cookie": "a"}, "http.cookie", "unknown field"),
        ],
    )
    def test_an_invalid_reference_is_refused_with_its_location(self, given, place, reason):
        with pytest.raises(InvalidPolicy) as caught:
            program(http(**given))
        assert caught.value.location.endswith(place)
        assert reason in caught.value.reason
        assert "p4ss" not in str(caught.value)


def test_a_condition_loads_both_of_its_sides_at_once() -> None:
    condition = {
        "cond": "Gte",
        "message": "no",
        "dataRef": k8s("/spec/replicas", name="a", namespace="b"),
        "valueRef": http("most"),
    }
    rule = {"template": {"type": "condition", "condition": condition}}
    compiled = KINITIRAS.compile(policy("ClusterValidatePolicy", {"validateRules": [rule]}))
    (refusing,) = compiled.programs
    assert refusing.condition is not None
    with pytest.raises(NeedsLoad) as needed:
        refusing.condition.evaluate(context(operation="DELETE"))
    data, wanted = needed.value.loads
    answers: dict[Hashable, Any] = {data: {"spec": {"replicas": 3}}, wanted: {"most": 2}}
    assert refusing.condition.evaluate(context().with_loads(answers)).passed
    answers[wanted] = {}
    assert not refusing.condition.evaluate(context().with_loads(answers)).passed
    assert len(list(refusing.binding.read_rights())) == 1
