"""Resource filters and excluded users."""

import pytest

from reconciler.api.meta import Kind
from reconciler.engine.match import Subject, UserInfo
from reconciler.errors import InvalidSetting
from reconciler.services.catalog.settings import SettingsHolder, default_filters
from tests.filters import parse_filters


def subject(kind="ConfigMap", name="x", namespace="a", **rest):
    user = UserInfo(
        username=rest.pop("username", "jane"),
        groups=rest.pop("groups", ()),
        roles=rest.pop("roles", ()),
        cluster_roles=rest.pop("cluster_roles", ()),
    )
    return Subject(
        obj={"metadata": {"name": name}},
        group=rest.pop("group", ""),
        version="v1",
        kind=kind,
        name=name,
        namespace=namespace,
        user=user,
        **rest,
    )


@pytest.mark.parametrize(
    ("filters", "found", "excluded"),
    [
        ("[Event,*,*]", subject("Event"), True),
        ("[Event,*,*]", subject("Pod"), False),
        ("[*/*,kube-system,*]", subject("Pod", namespace="kube-system"), True),
        ("[*/*,kube-system,*]", subject("Pod", namespace="kube-systems"), False),
        ("[*/*,kube-*,*]", subject("Pod", namespace="kube-public", subresource="exec"), True),
        ("[*,kube-system,*]", subject("Namespace", name="kube-system", namespace=""), True),
        ("[Pod/binding,*,*]", subject("Pod", subresource="binding"), True),
        ("[Pod/binding,*,*]", subject("Pod"), False),
        ("[Node/*,*,*]", subject("Node", namespace=""), True),
        ("[Node/?*,*,*]", subject("Node", namespace=""), False),
        ("[Node/?*,*,*]", subject("Node", namespace="", subresource="status"), True),
        ("[ConfigMap,a,x-*] [Secret,*,*]", subject(name="x-1"), True),
        ("[ConfigMap,a,x-*] [Secret,*,*]", subject(name="y-1"), False),
        ("[Secret]", subject("Secret"), True),
        ("", subject(), False),
    ],
)
def test_resource_filters_exclude_matching_objects(filters, found, excluded):
    assert parse_filters(resources=filters).exclude(found) is excluded


@pytest.mark.parametrize("text", ["Event,*,*", "[a,b,c,d]", "[,*,*]", "[a,*,*] and more"])
def test_a_malformed_filter_is_reported_with_the_expected_form(text):
    with pytest.raises(InvalidSetting, match=r"\[kind,namespace,name\]"):
        parse_filters(resources=text)


def test_excluded_users_and_groups_may_have_exceptions():
    filters = parse_filters(
        exclude_groups="system:nodes, ops-*, !ops-oncall", exclude_usernames="robot-?"
    )
    assert filters.exclude(subject(groups=("system:nodes",)))
    assert filters.exclude(subject(groups=("devs", "ops-a")))
    assert not filters.exclude(subject(groups=("ops-a", "ops-oncall")))
    assert filters.exclude(subject(username="robot-7"))
    assert not filters.exclude(subject(username="robot-77"))
    assert not filters.exclude(subject())


def test_cluster_components_trigger_nothing_by_default():
    filters = default_filters("kyverno")
    assert filters.exclude(subject("Event"))
    assert filters.exclude(subject("Event", group="events.k8s.io"))
    assert filters.exclude(subject("UpdateRequest", group="kyverno.io"))
    assert filters.exclude(subject("ConfigMap", namespace="kyverno"))
    assert filters.exclude(subject("Lease", namespace="kube-node-lease"))
    assert filters.exclude(subject(groups=("system:nodes",)))
    assert not filters.exclude(subject("Node", namespace=""))
    assert not filters.exclude(subject("ConfigMap", namespace="default"))


def test_update_requests_never_trigger_anything():
    assert parse_filters().exclude(subject("UpdateRequest", group="kyverno.io"))


def test_excluded_roles_are_those_of_the_user():
    filters = parse_filters(
        exclude_roles="team-a:robot-*", exclude_cluster_roles="cluster-*,!cluster-guest"
    )
    assert filters.exclude(subject(roles=("team-a:robot-1",)))
    assert not filters.exclude(subject(roles=("team-b:robot-1",)))
    assert filters.exclude(subject(cluster_roles=("view", "cluster-admin")))
    assert not filters.exclude(subject(cluster_roles=("cluster-admin", "cluster-guest")))
    assert not filters.exclude(subject(roles=None, cluster_roles=None))


@pytest.mark.parametrize(
    ("key", "sender"),
    [
        ("excludeGroups", {"groups": ("x",)}),
        ("excludeUsernames", {"username": "x"}),
        ("excludeRoles", {"roles": ("x",)}),
        ("excludeClusterRoles", {"cluster_roles": ("x",)}),
    ],
)
def test_each_key_of_the_settings_excludes_by_one_property_of_the_user(key, sender):
    holder = SettingsHolder.of("kyverno")
    holder.load({key: "x"})
    filters = holder.current.filters
    assert filters.exclude(subject(**sender))
    assert filters.why_excluded(subject(**sender)) == f"{key} excludes the sender"
    others = {"groups": ("x",), "username": "x", "roles": ("x",), "cluster_roles": ("x",)}
    for name in sender:
        del others[name]
    assert not filters.exclude(subject(**others))
    assert not filters.why_excluded(subject(**others))


@pytest.mark.parametrize(
    ("kind", "namespace", "text"),
    [
        ("Pod", "quiet", "[*/*,quiet,*]"),
        ("Pod", "team-a", "[Pod,team-a,*]"),
        ("Secret", "team-a", "[Se*,*,*]"),
        ("Service", "quiet", "[*/*,quiet,*]"),
        ("ConfigMap", "team-a", ""),
    ],
)
def test_the_first_filter_of_the_text_that_matches_is_named(kind, namespace, text):
    filters = parse_filters(
        resources="[*/*,quiet,*][Pod,quiet,*][Pod,team-a,*][Se*,*,*][Secret,*,*]"
    )
    found = filters.fitting(subject(kind=kind, namespace=namespace))
    assert found == text


def test_filters_match_a_target_by_kind_namespace_and_name():
    filters = parse_filters(resources="[Deployment,team-a,*][Namespace,kube-*,*][Pod/status,*,*]")
    deployment = Kind(
        group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True
    )
    namespace = Kind(
        group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False
    )
    pod = Kind(group="", version="v1", kind="Pod", plural="pods", namespaced=True)
    status = Kind(
        group="", version="v1", kind="Pod", plural="pods", namespaced=True, subresource="status"
    )
    assert filters.name(deployment, "team-a", "x")
    assert not filters.name(deployment, "team-b", "x")
    assert filters.name(namespace, "", "kube-system")
    assert not filters.name(namespace, "", "default")
    assert filters.name(status, "a", "x")
    assert not filters.name(pod, "a", "x")
