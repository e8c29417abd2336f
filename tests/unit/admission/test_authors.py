"""The author of a policy must have the rights that the policy uses."""

from collections.abc import Awaitable, Callable

import pytest
import yaml

from admission.decide import AdmissionResponse
from admission.policies import ASKED_AUTHORS, PolicyWebhook
from reconciler.api.meta import ANNOTATION_SERVICE_ACCOUNT
from reconciler.serving.review import parse_review
from tests.unit.admission.conftest import Make
from tests.unit.rights import Account

SECRET = {"apiVersion": "v1", "kind": "Secret", "name": "s"}
ANN = {"username": "ann", "groups": ["team"]}


@pytest.fixture
def written(make: type[Make]) -> Callable[..., Awaitable[tuple[AdmissionResponse, Account]]]:
    """Return the response to the write of a policy by an author who lacks the listed rights."""

    async def run(
        policy, *lacks, old=None, asked="policies", controller=(), accounts=None, **more
    ):
        author, seen = Account(lacks=set(lacks)), []

        def about(user):
            seen.append(user["username"])
            return author

        named = {name: Account(lacks=lack) for name, lack in (accounts or {}).items()}
        deps = make.deps(Account(lacks=set(controller), named=named))
        webhook = PolicyWebhook(deps, about=about, asked=ASKED_AUTHORS[asked])
        review = make.review(
            "CREATE" if old is None else "UPDATE", policy, old, userInfo=ANN, **more
        )
        response = await webhook.review(parse_review(review), make.deadline())
        return response, author

    return run


def secrets(make, namespace="shop", context=(), target=None, **rule):
    policy = make.policy(namespace=namespace, **rule)
    made = policy["spec"]["rules"][0]
    made["mutate"]["targets"] = [target or SECRET]
    made["context"] = list(context)
    return policy


async def test_an_author_with_all_rights_of_a_policy_may_write_it(make, written):
    response, author = await written(secrets(make))
    assert response.allowed
    assert "update secrets in namespace shop named s" in author.asked


async def test_an_author_who_lacks_a_right_of_the_policy_is_refused(make, written):
    response, _ = await written(secrets(make), "update secrets", "patch secrets")
    assert (response.allowed, response.code) == (False, 403)
    assert "spec.rules[0].mutate.targets[0]: 'ann' may not update secrets" in response.message
    assert "only what its author may do" in response.message


async def test_a_missing_right_of_the_controller_is_reported_before_the_authors(make, written):
    response, author = await written(secrets(make), "get", controller={"update", "patch"})
    assert "service account" in response.message
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
async def test_rights_to_read_the_context_entries_are_required(make, written, entry, missing):
    response, author = await written(secrets(make, context=[{"name": "e", **entry}]), missing)
    assert missing in author.asked
    assert not response.allowed
    assert "spec.rules[0].context[0]: 'ann' may not" in response.message


async def test_rights_to_read_entries_before_an_object_is_stored_are_required(make, written):
    entry = {"name": "e", "apiCall": {"urlPath": "/api/v1/namespaces/shop/secrets"}}
    policy = make.mutating(namespace="shop", context=[entry])
    response, _ = await written(policy, "list secrets")
    assert (response.allowed, response.code) == (False, 403)
    assert "spec.rules[0].context[0]: 'ann' may not list secrets in namespace shop" in (
        response.message
    )


async def test_the_right_to_read_a_secret_sent_to_a_service_is_required(make, written):
    auth = {"secretRef": {"name": "s"}}
    reference = {
        "from": "http",
        "path": "a",
        "http": {"url": "http://x.shop.svc", "auth": auth},
    }
    template = {"type": "labels", "operation": "add", "path": "a", "valueRef": reference}
    policy = {
        "apiVersion": "policy.kcloudlabs.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"overrideRules": [{"overriders": {"template": template}}]},
    }
    response, author = await written(policy, "get secrets")
    assert "get secrets in namespace shop named s" in author.asked
    assert (response.allowed, response.code) == (False, 403)
    assert "http.auth.secretRef: 'ann' may not get secrets in namespace shop" in response.message


async def test_a_target_kind_from_a_variable_needs_the_right_to_all_kinds(make, written):
    policy = secrets(make, target={**SECRET, "kind": "{{ request.object.data.kind }}"})
    response, _ = await written(policy, "update *.*", "patch *.*")
    assert (response.allowed, response.code) == (False, 403)


async def test_a_trigger_kind_wildcard_needs_the_right_to_all_kinds(make, written):
    policy = secrets(make)
    policy["spec"]["rules"][0]["match"] = {"any": [{"resources": {"kinds": ["*"]}}]}
    response, _ = await written(policy, "get *.*")
    assert (response.allowed, response.code) == (False, 403)


async def test_no_right_is_checked_if_the_spec_is_unchanged(make, written):
    policy = secrets(make)
    changed = {**policy, "metadata": {**policy["metadata"], "labels": {"a": "b"}}}
    response, author = await written(changed, "get", old=policy)
    assert response.allowed
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
async def test_the_setting_decides_for_which_policies_authors_are_checked(
    make, written, asked, namespace, *, allowed
):
    target = {**SECRET, "namespace": "shop"}
    policy = secrets(make, namespace=namespace, target=target)
    response, _ = await written(policy, "get secrets", asked=asked)
    assert response.allowed is allowed


def named(make, account="bot", **policy):
    made = secrets(make, **policy)
    made["metadata"]["annotations"] = {ANNOTATION_SERVICE_ACCOUNT: account}
    return made


IMPERSONATE = "impersonate serviceaccounts in namespace shop named bot"


async def test_an_author_who_may_impersonate_the_account_needs_no_other_right(make, written):
    response, author = await written(named(make), "get", "update", "patch")
    assert response.allowed
    assert author.asked == [IMPERSONATE]


async def test_an_author_who_may_not_impersonate_needs_all_rights_of_the_policy(make, written):
    assert (await written(named(make), "impersonate"))[0].allowed
    response, _ = await written(named(make), "impersonate", "get secrets")
    assert (response.allowed, response.code) == (False, 403)
    assert "'ann' may not get secrets in namespace shop" in response.message
    assert f"The right to {IMPERSONATE}" in response.message


@pytest.mark.parametrize(
    ("asked", "allowed"), [("policies", False), ("all", False), ("none", True)]
)
async def test_authors_of_cluster_policies_with_an_account_are_checked_too(
    make, written, asked, allowed
):
    policy = named(make, "shop/bot", namespace="")
    policy["spec"]["rules"][0]["mutate"]["targets"] = [{**SECRET, "namespace": "shop"}]
    response, _ = await written(policy, "impersonate", "get secrets", asked=asked)
    assert response.allowed is allowed


async def test_a_changed_account_is_checked_like_a_changed_spec(make, written):
    old = secrets(make)
    new = {**old, "metadata": {**old["metadata"], **named(make)["metadata"]}}
    response, _ = await written(new, "impersonate", "get secrets", old=old)
    assert "only what its author may do" in response.message
    taken_away, _ = await written(old, "get secrets", old=new)
    assert "only what its author may do" in taken_away.message


async def test_rights_of_an_account_are_not_shown_to_authors_who_may_not_use_it(make, written):
    response, _ = await written(
        named(make), "impersonate", "get secrets", accounts={"shop:bot": {"update secrets"}}
    )
    assert "shop:bot" not in response.message


async def test_missing_rights_of_the_account_are_refused_with_the_roles_to_apply(make, written):
    lacks = {"get secrets", "impersonate", "get configmaps"}
    entry = {"name": "e", "configMap": {"name": "c"}}
    policy = named(make, context=[entry])
    name = f"retrofit:shop:{policy['metadata']['name']}"
    response, _ = await written(policy, accounts={"shop:bot": lacks})
    message, _, roles = response.message.partition("\n\n")
    assert (response.allowed, response.code) == (False, 403)
    assert "targets[0]: auth check fails" in message
    assert "service account 'shop:bot': it may not get secrets in namespace shop" in message
    assert "context[0]: auth check fails" in message
    assert "'kyverno:kube-retrofit-controller': it may not impersonate" in message
    found = {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(roles)}
    own = found["Role", name]
    assert own["metadata"]["namespace"] == "shop"
    assert [rule["resources"] for rule in own["rules"]] == [["configmaps"], ["secrets"]]
    binding = found["RoleBinding", name]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "bot", "namespace": "shop"}]
    speaks = found["Role", f"{name}:impersonate"]
    assert speaks["rules"][0]["resourceNames"] == ["bot"]
    subject = found["RoleBinding", f"{name}:impersonate"]["subjects"][0]
    assert subject["name"] == "kube-retrofit-controller"


async def test_a_dry_run_gets_a_warning_about_missing_rights_of_the_account(make, written):
    lacks = {"get secrets", "impersonate"}
    response, _ = await written(named(make), accounts={"shop:bot": lacks}, dryRun=True)
    assert response.allowed
    reported = "\n".join(response.warnings)
    assert "unless a role grants ServiceAccount shop:bot get secrets in namespace shop" in reported
    assert "a role grants the controller impersonate serviceaccounts" in reported


async def test_an_invalid_account_is_refused_with_the_place_of_the_annotation(make, written):
    response, author = await written(named(make, "kube-system/default"))
    assert (response.allowed, response.code) == (False, 422)
    assert f"metadata.annotations[{ANNOTATION_SERVICE_ACCOUNT}]" in response.message
    assert author.asked == []
