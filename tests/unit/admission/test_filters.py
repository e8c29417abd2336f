"""Resource filters and excluded users."""

import pytest

from admission.filters import default_filters, parse_filters, read_settings
from admission.following import FilterFeed
from reconciler.engine.match import Subject, UserInfo
from reconciler.errors import InvalidSetting


def subject(kind="ConfigMap", name="x", namespace="a", **rest):
    user = UserInfo(username=rest.pop("username", "jane"), groups=rest.pop("groups", ()))
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
        ("[ConfigMap,a,x-*] [Secret,*,*]", subject(name="x-1"), True),
        ("[ConfigMap,a,x-*] [Secret,*,*]", subject(name="y-1"), False),
        ("[Secret]", subject("Secret"), True),
        ("", subject(), False),
    ],
)
def test_resource_filters(filters, found, excluded):
    assert parse_filters(resources=filters).exclude(found) is excluded


@pytest.mark.parametrize("text", ["Event,*,*", "[a,b,c,d]", "[,*,*]", "[a,*,*] and more"])
def test_a_malformed_filter_is_named(text):
    with pytest.raises(InvalidSetting, match="resourceFilters"):
        parse_filters(resources=text)


def test_excluded_users_and_groups_with_exceptions():
    filters = parse_filters(
        exclude_groups="system:nodes, ops-*, !ops-oncall", exclude_usernames="robot-?"
    )
    assert filters.exclude(subject(groups=("system:nodes",)))
    assert filters.exclude(subject(groups=("devs", "ops-a")))
    assert not filters.exclude(subject(groups=("ops-a", "ops-oncall")))
    assert filters.exclude(subject(username="robot-7"))
    assert not filters.exclude(subject(username="robot-77"))
    assert not filters.exclude(subject())


def test_the_machinery_of_the_cluster_triggers_nothing_by_default():
    filters = default_filters("kyverno")
    assert filters.exclude(subject("Event"))
    assert filters.exclude(subject("Event", group="events.k8s.io"))
    assert filters.exclude(subject("UpdateRequest", group="kyverno.io"))
    assert filters.exclude(subject("ConfigMap", namespace="kyverno"))
    assert filters.exclude(subject("Lease", namespace="kube-node-lease"))
    assert filters.exclude(subject(groups=("system:nodes",)))
    assert not filters.exclude(subject("Node", namespace=""))
    assert not filters.exclude(subject("ConfigMap", namespace="default"))


class TestSettings:
    def test_a_key_that_is_absent_keeps_its_default(self):
        filters = read_settings({"excludeUsernames": "robot-*"}, "kyverno")
        assert filters.exclude(subject(namespace="kube-system"))
        assert filters.groups.excludes(["system:nodes"])
        assert filters.usernames.excludes(["robot-1"])

    def test_a_key_that_is_there_replaces_it(self):
        filters = read_settings(
            {"resourceFilters": "[Secret,*,*]", "excludeGroups": ""}, "kyverno"
        )
        assert not filters.exclude(subject(namespace="kube-system"))
        assert filters.exclude(subject("Secret"))
        assert filters.exclude(subject("UpdateRequest", namespace="kyverno"))
        assert not filters.groups.excludes(["system:nodes"])

    def test_what_cannot_be_read_leaves_the_old_ones(self):
        feed = FilterFeed("kyverno", default_filters("kyverno"))
        feed.take("MODIFIED", {"data": {"resourceFilters": "[Secret,*,*]"}})
        held = feed.current
        feed.take("MODIFIED", {"data": {"resourceFilters": "Secret"}})
        assert feed.current is held
        feed.take("DELETED", {})
        assert not feed.current.exclude(subject("Secret"))
