"""Who writes a policy needs the rights that it works with."""

import pytest

from admission.policies import ASKED_AUTHORS, PolicyWebhook
from admission.review import parse_review
from tests.unit.rights import Account

SECRET = {"apiVersion": "v1", "kind": "Secret", "name": "s"}
ANN = {"username": "ann", "groups": ["team"]}


@pytest.fixture
def written(make):
    """Give the answer to a policy that somebody writes who lacks some rights."""

    async def run(policy, *lacks, old=None, asked="policies", controller=()):
        author, seen = Account(lacks=set(lacks)), []

        def about(user):
            seen.append(user["username"])
            return author

        means = make.means(Account(lacks=set(controller)))
        webhook = PolicyWebhook(means, about=about, asked=ASKED_AUTHORS[asked])
        review = make.review("CREATE" if old is None else "UPDATE", policy, old, userInfo=ANN)
        answer = await webhook.review(parse_review(review))
        return answer, author

    return run


def secrets(make, namespace="shop", context=(), target=None, **rule):
    policy = make.policy(namespace=namespace, **rule)
    made = policy["spec"]["rules"][0]
    made["mutate"]["targets"] = [target or SECRET]
    made["context"] = list(context)
    return policy


async def test_who_may_all_of_it_may_write_it(make, written):
    answer, author = await written(secrets(make))
    assert answer.allowed
    assert "update secrets in namespace shop named s" in author.asked


async def test_who_may_less_than_the_policy_does_not(make, written):
    answer, _ = await written(secrets(make), "update secrets", "patch secrets")
    assert (answer.allowed, answer.code) == (False, 403)
    assert "spec.rules[0].mutate.targets[0]: 'ann' may not update secrets" in answer.message
    assert "only what its author may do" in answer.message


async def test_a_missing_right_of_the_controller_comes_first(make, written):
    answer, author = await written(secrets(make), "get", controller={"update", "patch"})
    assert "service account" in answer.message
    assert not author.asked


@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        ({"configMap": {"name": "c"}}, "get configmaps in namespace shop named c"),
        (
            {"apiCall": {"urlPath": "/api/v1/namespaces/shop/secrets/s"}},
            "get secrets in namespace shop named s",
        ),
        (
            {"apiCall": {"urlPath": "/api/v1/namespaces/shop/secrets"}},
            "list secrets in namespace shop",
        ),
        (
            {"apiCall": {"urlPath": "/apis/apps/v1/namespaces/shop/{{ request.name }}/x"}},
            "get *.apps in namespace shop named x",
        ),
        (
            {"apiCall": {"urlPath": "/apis/{{ request.object.data.path }}"}},
            "get *.* in namespace shop",
        ),
    ],
)
async def test_what_its_entries_read_counts(make, written, entry, missing):
    answer, author = await written(secrets(make, context=[{"name": "e", **entry}]), missing)
    assert missing in author.asked
    assert not answer.allowed
    assert "spec.rules[0].context[0]: 'ann' may not" in answer.message


async def test_a_kind_that_only_a_value_tells_needs_all_kinds(make, written):
    policy = secrets(make, target={**SECRET, "kind": "{{ request.object.data.kind }}"})
    answer, _ = await written(policy, "update *.*", "patch *.*")
    assert (answer.allowed, answer.code) == (False, 403)


async def test_all_kinds_as_triggers_need_all_kinds(make, written):
    policy = secrets(make)
    policy["spec"]["rules"][0]["match"] = {"any": [{"resources": {"kinds": ["*"]}}]}
    answer, _ = await written(policy, "get *.*")
    assert (answer.allowed, answer.code) == (False, 403)


async def test_nothing_is_asked_where_the_spec_stays(make, written):
    policy = secrets(make)
    changed = {**policy, "metadata": {**policy["metadata"], "labels": {"a": "b"}}}
    answer, author = await written(changed, "get", old=policy)
    assert answer.allowed
    assert not author.asked


@pytest.mark.parametrize(
    ("asked", "namespace", "allowed"),
    [
        ("policies", "", True),
        ("all", "", False),
        ("all", "shop", False),
        ("none", "shop", True),
    ],
)
async def test_whose_policies(make, written, asked, namespace, *, allowed):
    target = {**SECRET, "namespace": "shop"}
    policy = secrets(make, namespace=namespace, target=target)
    answer, _ = await written(policy, "get secrets", asked=asked)
    assert answer.allowed is allowed
