from typing import Any

import pytest

from reconciler.dialects.kyverno.match import Matcher, compile_match
from reconciler.engine.match import Decision, KindSelector, Listing, Subject, UserInfo, parse_kind
from reconciler.errors import InvalidPolicy

ALICE = UserInfo(username="alice", groups=("dev",), roles=("a:editor",), cluster_roles=("view",))


def compiled(match: Any, exclude: Any = None, **options: Any) -> Matcher:
    return compile_match(match, exclude, location="spec.rules[0]", **options)


def resources(*kinds: str, **fields: Any) -> dict[str, Any]:
    return {"resources": {"kinds": list(kinds or ("Pod",)), **fields}}


def subject(**fields: Any) -> Subject:
    metadata = {
        "labels": fields.pop("labels", {"app": "web", "tier": "front"}),
        "annotations": fields.pop("annotations", {"team.io/owner": "web-1"}),
        "generateName": fields.pop("generate_name", ""),
    }
    defaults: dict[str, Any] = {
        "obj": {"metadata": metadata},
        "group": "",
        "version": "v1",
        "kind": "Pod",
        "name": "web-1",
        "namespace": "prod",
        "operation": "CREATE",
        "namespace_labels": {"env": "prod"},
    }
    return Subject(**(defaults | fields))


def decide(matcher: Matcher, **fields: Any) -> Decision:
    return matcher.evaluate(subject(**fields)).decision


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Pod", ("*", "*", "Pod", "")),
        ("*", ("*", "*", "*", "")),
        ("*/*", ("*", "*", "*", "*")),
        ("apps/*", ("apps", "*", "*", "")),
        ("networking.k8s.io/*", ("networking.k8s.io", "*", "*", "")),
        ("Pod/*", ("*", "*", "Pod", "*")),
        ("*/scale", ("*", "*", "*", "scale")),
        ("*/Pod", ("*", "*", "Pod", "")),
        ("v1/Pod", ("*", "v1", "Pod", "")),
        ("Node.status", ("*", "*", "Node", "status")),
        ("v1/Node/status", ("*", "v1", "Node", "status")),
        ("networking.k8s.io/v1/Ingress", ("networking.k8s.io", "v1", "Ingress", "")),
        ("apps/v1/Deployment.scale", ("apps", "v1", "Deployment", "scale")),
        ("a/b/c/d/e", ("", "", "", "")),
    ],
)
def test_a_kind_is_parsed_into_group_version_kind_and_subresource(
    text: str, parts: tuple[str, str, str, str]
) -> None:
    group, version, kind, subresource = parts
    wanted = KindSelector(group=group, version=version, kind=kind, subresource=subresource)
    assert parse_kind(text) == wanted


@pytest.mark.parametrize(
    ("kind", "fields", "matched"),
    [
        ("Pod", {}, True),
        ("pod", {}, False),
        ("P*", {}, True),
        ("v1/Pod", {}, True),
        ("v2/Pod", {}, False),
        ("apps/*/Pod", {}, False),
        ("Pod", {"subresource": "status"}, False),
        ("Pod/status", {"subresource": "status"}, True),
        ("Pod/*", {"subresource": "exec"}, True),
        ("Pod", {"subresource": "ephemeralcontainers"}, True),
        ("apps/v1/Pod", {"subresource": "ephemeralcontainers"}, False),
        ("Other", {"kind": "Other", "subresource": "ephemeralcontainers"}, False),
        ("*/*", {"subresource": "eviction"}, True),
        ("*/scale", {"group": "apps", "kind": "Deployment", "subresource": "scale"}, True),
    ],
)
def test_a_kind_matches_resources_and_subresources(
    kind: str, fields: dict[str, Any], matched: bool
) -> None:
    assert (decide(compiled(resources(kind)), **fields) is Decision.MATCH) is matched


@pytest.mark.parametrize(
    ("part", "fields", "matched"),
    [
        ({"name": "web-*"}, {}, True),
        ({"name": "web"}, {}, False),
        ({"names": ["api", "web-?"]}, {}, True),
        ({"names": ["gen-"]}, {"name": "", "generate_name": "gen-"}, True),
        ({"namespaces": ["dev", "pro*"]}, {}, True),
        ({"namespaces": ["dev"]}, {}, False),
        ({"kinds": ["Namespace"], "namespaces": ["web-1"]}, {"kind": "Namespace"}, True),
        ({"annotations": {"team.io/*": "web-?"}}, {}, True),
        ({"annotations": {"team.io/owner": "db*"}}, {}, False),
        ({"annotations": {"other": "*"}}, {}, False),
        ({"selector": {"matchLabels": {"app": "web"}}}, {}, True),
        ({"selector": {"matchLabels": {"app": "w?b", "t*": "front"}}}, {}, True),
        ({"selector": {"matchLabels": {"app": "db*"}}}, {}, False),
        ({"selector": {"matchLabels": {"*": "*"}}}, {"labels": None}, False),
        ({"selector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}, {}, True),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, {}, True),
        (
            {
                "selector": {
                    "matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["y"]}]
                }
            },
            {},
            True,
        ),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, {}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "dev"}}}, {}, False),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]
                }
            },
            {"namespace": "", "namespace_labels": None},
            True,
        ),
        (
            {"kinds": ["Namespace"], "namespaceSelector": {"matchLabels": {"env": "prod"}}},
            {"kind": "Namespace"},
            False,
        ),
        ({"operations": ["UPDATE"]}, {}, False),
        ({"operations": ["CREATE", "UPDATE"]}, {}, True),
        ({"operations": ["CREATE"]}, {"operation": ""}, False),
    ],
)
def test_each_field_of_resources_restricts_the_match(
    part: dict[str, Any], fields: dict[str, Any], matched: bool
) -> None:
    part = {"kinds": ["Pod"], **part}
    assert (decide(compiled({"resources": part}), **fields) is Decision.MATCH) is matched


def test_any_requires_one_part_and_all_requires_every_part() -> None:
    parts = [resources(names=["web-*"]), resources(namespaces=["dev"])]
    assert decide(compiled({"any": parts})) is Decision.MATCH
    assert decide(compiled({"all": parts})) is Decision.NO_MATCH
    assert decide(compiled({"all": parts}), namespace="dev") is Decision.MATCH


def test_an_exclude_block_removes_matching_resources() -> None:
    parts = [{"resources": {"names": ["web-*"]}}, {"resources": {"namespaces": ["dev"]}}]
    pods = {"any": [resources()]}
    one = compiled(pods, {"any": parts}).evaluate(subject())
    assert one.decision is Decision.NO_MATCH
    assert one.reasons == ("resource excluded since one of the criteria excluded it",)
    assert decide(compiled(pods, {"all": parts})) is Decision.MATCH
    assert decide(compiled(pods, {"all": parts}), namespace="dev") is Decision.NO_MATCH
    assert decide(compiled(pods, parts[0])) is Decision.NO_MATCH
    empty: list[Any] = [None, {}, {"any": []}, {"resources": {"names": []}}]
    for nothing in (*empty, {"all": [parts[0], {}]}):
        assert decide(compiled(pods, nothing)) is Decision.MATCH


def test_every_failing_part_is_reported() -> None:
    matcher = compiled(resources(name="db", namespaces=["dev"], annotations={"a": "b"}))
    assert matcher.evaluate(subject()).reasons == (
        "name does not match",
        "namespace does not match",
        "annotations does not match",
    )
    assert matcher.evaluate(subject(kind="Node")).reasons == ("kind does not match [Pod]",)
    assert compiled(resources(operations=["UPDATE"])).evaluate(subject()).reasons == (
        "operation does not match [UPDATE]",
    )


@pytest.mark.parametrize(
    ("part", "matched"),
    [
        ({"roles": ["a:editor", "b:none"]}, True),
        ({"roles": ["a:edit*"]}, False),
        ({"clusterRoles": ["view"]}, True),
        ({"clusterRoles": ["admin"]}, False),
        ({"subjects": [{"kind": "User", "name": "al*"}]}, True),
        ({"subjects": [{"kind": "User", "name": "bob"}, {"kind": "Group", "name": "dev"}]}, True),
        ({"subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}]}, False),
        ({"roles": ["a:editor"], "clusterRoles": ["admin"]}, False),
    ],
)
def test_roles_and_subjects_are_matched_against_the_user(
    part: dict[str, Any], matched: bool
) -> None:
    matcher = compiled({**resources(), **part})
    assert (decide(matcher, user=ALICE) is Decision.MATCH) is matched
    assert matcher.needs.user


def test_a_service_account_subject_matches_its_username() -> None:
    user = UserInfo(username="system:serviceaccount:tools:robot-1")
    account = {"kind": "ServiceAccount", "name": "robot-*", "namespace": "tools"}
    assert decide(compiled({**resources(), "subjects": [account]}), user=user) is Decision.MATCH


@pytest.mark.parametrize("user", [None, UserInfo(), UserInfo(roles=None, cluster_roles=None)])
def test_without_a_user_match_ignores_user_parts_and_exclude_has_no_effect(
    user: UserInfo | None,
) -> None:
    part = {"clusterRoles": ["admin"]}
    assert decide(compiled({**resources(), **part}), user=user) is Decision.MATCH
    assert decide(compiled(resources(), part), user=user) is Decision.MATCH


def test_missing_information_leaves_a_match_undecided() -> None:
    unknown = UserInfo(username="alice", roles=None, cluster_roles=None)
    selector = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    by_namespace = resources(**selector)
    by_role = {**resources(), "roles": ["a:editor"]}
    verdict = compiled(by_namespace).evaluate(subject(namespace_labels=None))
    assert verdict.decision is Decision.UNDECIDED
    assert verdict.reasons == ("the labels of the namespace are not known yet",)
    assert decide(compiled(by_role), user=unknown) is Decision.UNDECIDED

    both = {"any": [by_role, by_namespace]}
    assert decide(compiled(both), user=unknown) is Decision.MATCH
    assert decide(compiled({"all": both["any"]}), user=unknown) is Decision.UNDECIDED
    known_false = resources(name="other", **selector)
    assert decide(compiled(known_false), namespace_labels=None) is Decision.NO_MATCH

    exclude = {"resources": selector}
    assert decide(compiled(resources(), exclude), namespace_labels=None) is Decision.UNDECIDED
    assert decide(compiled(resources(), exclude)) is Decision.NO_MATCH
    assert decide(compiled(by_role, exclude), user=unknown) is Decision.NO_MATCH


def test_a_deletion_matches_only_rules_that_list_delete() -> None:
    silent = compiled({"any": [resources()]})
    listed = compiled({"any": [resources("Secret", operations=["DELETE"]), resources()]})
    assert decide(silent, operation="DELETE") is Decision.NO_MATCH
    assert decide(listed, operation="DELETE") is Decision.MATCH
    excluded = compiled({"any": [resources()]}, {"any": [resources(operations=["DELETE"])]})
    assert decide(excluded, operation="DELETE") is Decision.NO_MATCH


def test_a_namespaced_policy_matches_only_its_own_namespace() -> None:
    matcher = compiled(resources(), namespace="team")
    verdict = matcher.evaluate(subject())
    assert verdict.decision is Decision.NO_MATCH
    assert verdict.reasons == ("policy and resource namespaces mismatch",)
    assert decide(matcher, namespace="team") is Decision.MATCH
    assert decide(matcher, namespace="") is Decision.NO_MATCH


def test_an_empty_object_never_matches() -> None:
    assert compiled(resources("*")).evaluate(subject(obj={})).reasons == ("resource is empty",)


def test_a_matcher_reports_the_kinds_and_data_that_the_webhook_needs() -> None:
    matcher = compiled(
        {
            "any": [
                resources("Pod", "apps/v1/Deployment", operations=["CREATE"], namespaces=["a"]),
                resources("Secret", selector={"matchLabels": {"a": "b"}}),
            ]
        },
        {
            "clusterRoles": ["admin"],
            "resources": {"namespaceSelector": {"matchLabels": {"a": "b"}}},
        },
    )
    assert [(scope.selector.kind, scope.operations) for scope in matcher.kinds()] == [
        ("Pod", ("CREATE",)),
        ("Deployment", ("CREATE",)),
        ("Secret", ()),
    ]
    assert matcher.operations_listed
    assert matcher.needs.user
    assert matcher.needs.namespace_labels


def test_a_matcher_reports_the_listings_of_existing_objects() -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["b", "a"]},
        {"key": "old", "operator": "DoesNotExist"},
    ]
    labels = {"app": "web", "team": "*", "x*": "y"}
    selector = {"matchLabels": labels, "matchExpressions": expressions}
    matcher = compiled(
        {
            "any": [
                resources(namespaces=["a", "b"], names=["x"], selector=selector),
                resources("Secret", namespaces=["a-*"]),
                resources("Node", operations=["UPDATE"]),
            ]
        }
    )
    pods, secrets = matcher.listings()
    assert (pods.kinds, pods.namespaces, pods.names) == (
        (parse_kind("Pod"),),
        ("a", "b"),
        ("x",),
    )
    assert pods.label_selector == "app=web,team,tier in (a,b),!old"
    assert secrets == Listing(kinds=(parse_kind("Secret"),), namespaces=None, names=None)
    every = {"all": [resources(namespaces=["a", "b"]), resources(namespaces=["b", "c"])]}
    assert [item.namespaces for item in compiled(every).listings()] == [("b",)]
    assert [item.namespaces for item in compiled(resources(), namespace="t").listings()] == [
        ("t",)
    ]


@pytest.mark.parametrize(
    ("match", "location", "reason"),
    [
        (None, "match", "match resources not specified"),
        ({}, "match", "match resources not specified"),
        (
            {"any": [resources()], "all": [resources()]},
            "match",
            "Can't specify any and all together",
        ),
        ({"any": [resources()], "roles": ["a:b"]}, "match", "with match resources"),
        ({"any": {"resources": {}}}, "match.any", "expected a list"),
        ({"any": ["Pod"]}, "match.any[0]", "expected an object"),
        ({"some": []}, "match.some", "unknown field"),
        (
            {"any": [{"clusterRoles": ["a"]}]},
            "match.any[0].resources.kinds",
            "at least one element",
        ),
        (resources(kind="Pod"), "match.resources.kind", "unknown field"),
        (resources("a/b/c/d/e"), "match.resources.kinds[0]", "is not a kind"),
        (resources("{{ x }}"), "match.resources.kinds[0]", "should not have variables"),
        (
            {"resources": {"kinds": "Pod"}},
            "match.resources.kinds",
            "expected a list, got a string",
        ),
        ({"resources": {"kinds": [1]}}, "match.resources.kinds[0]", "expected a string"),
        (resources(name="a", names=["b"]), "match.resources", "Both name and names can not be"),
        (resources(name=1), "match.resources.name", "expected a non-empty string"),
        (resources(operations=["PATCH"]), "match.resources.operations[0]", "unknown operation"),
        (resources(annotations={"a": 1}), "match.resources.annotations.a", "in quotes"),
        (resources(annotations=[]), "match.resources.annotations", "expected an object"),
        (resources(selector={}), "match.resources.selector", "requirements are not specified"),
        (
            resources(selector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
            "match.resources.selector.matchExpressions[0].operator",
            "not a valid label selector operator",
        ),
        (
            resources(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "match.resources.namespaceSelector.matchExpressions[0].values",
            "at least one value",
        ),
        (
            resources(
                selector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["w*"]}]}
            ),
            "match.resources.selector.matchExpressions[0]",
            "'w*' is not a valid label value",
        ),
        (
            resources(selector={"matchLabels": {"a/b/c": "*"}}),
            "match.resources.selector.matchLabels",
            "'a/b/c' is not a valid label key",
        ),
        *(
            (
                resources(selector={"matchExpressions": [{"key": key, "operator": "Exists"}]}),
                "match.resources.selector.matchExpressions[0]",
                f"'{key}' is not a valid label key",
            )
            for key in ("x..io/a", "x-.io/a", f"{'x' * 254}/a", "/a", "X/a", "x/")
        ),
        ({**resources(), "roles": ["editor"]}, "match.roles[0]", "namespace:name"),
        (
            {**resources(), "subjects": [{"kind": "Robot"}]},
            "match.subjects[0].kind",
            "expected one",
        ),
        ({**resources(), "subjects": [{"kind": "User"}]}, "match.subjects[0].name", "non-empty"),
        (
            {**resources(), "subjects": [{"kind": "ServiceAccount", "name": "a"}]},
            "match.subjects[0].namespace",
            "non-empty",
        ),
    ],
)
def test_an_invalid_match_is_refused_with_its_location(
    match: Any, location: str, reason: str
) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        compiled(match)
    assert caught.value.location == f"spec.rules[0].{location}"
    assert reason in caught.value.reason


def test_user_filters_and_namespace_filters_are_refused_where_not_allowed() -> None:
    with pytest.raises(InvalidPolicy, match=r"exclude\.clusterRoles: .*spec.background=false"):
        compiled(resources(), {"clusterRoles": ["a"]}, user_info=False)
    with pytest.raises(InvalidPolicy, match="Filtering namespaces not allowed"):
        compiled(resources(namespaces=["a"]), namespace="team")
