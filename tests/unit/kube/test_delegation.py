"""The adapters for the accounts that policies name: the impersonated user, and separate caches."""

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import CONFIG_MAPS
from reconciler.api.rights import Right
from reconciler.engine.loads import ConfigMapLoad
from reconciler.kube.access import PolicyAccess, ProgramAccess
from reconciler.kube.delegation import MOST, PerAccount
from reconciler.kube.loader import KubeLoader
from reconciler.kube.reader import KubeReader
from reconciler.kube.writer import KubeWriter
from reconciler.memory.cluster import MemoryCluster

BOT, OTHER = (ServiceAccount(namespace="shop", name=name) for name in ("bot", "other"))
PATH = "/api/v1/namespaces/shop/configmaps/c"
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "shop", "resourceVersion": "7"},
}
NOT_ALLOWED = {
    "kind": "Status",
    "reason": "Forbidden",
    "message": 'configmaps "c" is forbidden: User "u" cannot patch resource "configmaps"',
}
SELF = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SUBJECT = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
GET = Right(verb="get", group="", resource="secrets", namespace="shop")
ALLOWED = {"status": {"allowed": True}}


def users(api):
    """Return the impersonated user of each call."""
    return [item.headers.get("Impersonate-User") for item in api.seen]


def test_the_least_recently_used_adapter_is_dropped():
    made = []
    adapters = PerAccount(lambda user: made.append(user) or object())
    accounts = [ServiceAccount(namespace="n", name=f"a{number}") for number in range(MOST + 1)]
    first, second = adapters.of(accounts[0]), adapters.of(accounts[1])
    for account in accounts[2:MOST]:
        adapters.of(account)
    assert adapters.of(accounts[0]) is first
    adapters.of(accounts[MOST])
    assert adapters.of(accounts[0]) is first
    assert adapters.of(accounts[1]) is not second
    assert len(made) == MOST + 2


async def test_reads_and_context_entries_are_requested_as_the_account(api, client):
    api.answer(f"GET {PATH}", CONFIG_MAP)
    reader, loader = KubeReader(client), KubeLoader(client, (), kinds=MemoryCluster())
    for account in (None, BOT, OTHER):
        await reader.acting_as(account).get(CONFIG_MAPS, "shop", "c")
        await loader.acting_as(account).load(ConfigMapLoad(namespace="shop", name="c"))
    own = [None, BOT.user, OTHER.user]
    assert users(api) == [user for user in own for _ in range(2)]


async def test_a_missing_right_of_one_account_does_not_affect_another(api, client, clock):
    api.answer(f"PATCH {PATH}", (403, NOT_ALLOWED), CONFIG_MAP)
    api.answer(f"PUT {PATH}", CONFIG_MAP)
    writer = KubeWriter(client, clock)
    after = {**CONFIG_MAP, "data": {"k": "v"}}
    for account in (BOT, BOT, OTHER):
        await writer.acting_as(account).change(CONFIG_MAPS, CONFIG_MAP, after)
    assert [(item.method, user) for item, user in zip(api.seen, users(api), strict=True)] == [
        ("PATCH", BOT.user),
        ("PUT", BOT.user),
        ("PUT", BOT.user),
        ("PATCH", OTHER.user),
    ]


async def test_access_is_reviewed_as_the_account_but_impersonation_as_the_controller(api, client):
    api.answer(SELF, ALLOWED)
    access = ProgramAccess(client, namespace="kyverno", worker="w")
    assert await access.of(BOT).may(GET)
    # The right to impersonate, as a status reports it: without the name of the account.
    lacked = Right(verb="impersonate", group="", resource="serviceaccounts", namespace="shop")
    assert await access.of(BOT).may(lacked)
    assert await access.of(None).may(GET)
    assert users(api) == [BOT.user, None, "w"]
    assert api.seen[1].body["spec"]["resourceAttributes"]["name"] == "bot"


async def test_a_right_is_not_granted_if_the_review_is_forbidden(api, client):
    api.answer(SELF, (403, NOT_ALLOWED))
    access = ProgramAccess(client, namespace="kyverno", worker="w")
    assert not await access.of(BOT).may(GET)


async def test_admission_checks_the_account_and_the_controller_that_impersonates_it(api, client):
    api.answer(SUBJECT, ALLOWED)
    shared, controller = (
        ServiceAccount(namespace="kyverno", name=name) for name in ("shared", "controller")
    )
    access = PolicyAccess(client, shared=shared, controller=controller)
    assert await access.may(GET)
    assert await access.of(BOT).may(GET)
    assert await access.of(BOT).may(BOT.impersonation)
    asked = [item.body["spec"] for item in api.seen]
    assert [item["user"] for item in asked] == [shared.user, BOT.user, controller.user]
    assert "system:serviceaccounts:shop" in asked[1]["groups"]
    assert asked[2]["resourceAttributes"]["verb"] == "impersonate"
    assert users(api) == [None, None, None]
