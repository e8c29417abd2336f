"""Work for a policy that names an account is done as that account from the first read on."""

from collections.abc import Awaitable, Callable

import pytest

from reconciler.api.account import NOBODY, ServiceAccount
from reconciler.api.kinds import policy_named
from reconciler.api.meta import ANNOTATION_SERVICE_ACCOUNT, Object
from reconciler.api.updaterequest import Source, State
from reconciler.errors import Forbidden, NotFound
from reconciler.requests.naming import sweep_name
from reconciler.services.catalog.exceptions import ExceptionSettings
from reconciler.services.rollout.delegation import Delegation
from reconciler.services.rollout.rollout import Rollout
from reconciler.services.upkeep.permission_watch import PermissionWatch
from tests.unit.rights import Account
from tests.unit.services.configurations import new_rollout
from tests.unit.services.conftest import Make, World

P = policy_named("p")
BOT = ServiceAccount(namespace="a", name="bot")


def naming(policy, account):
    """Return the policy with the annotation that names an account."""
    policy["metadata"]["annotations"] = {ANNOTATION_SERVICE_ACCOUNT: account}
    return policy


@pytest.fixture
def target(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object("Secret", "s"))


@pytest.fixture
def trigger(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object())


async def test_all_calls_are_made_as_the_account_of_the_policy(world, make, target, trigger):
    policy = world.install(naming(make.policy(), "a/bot"))
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    assert (await world.status()).state is State.COMPLETED
    calls = ["get ConfigMap", "get Secret", "change Secret"]
    assert world.wire.users == [f"a:bot {call}" for call in calls]


async def test_a_sweep_lists_triggers_as_the_account_of_the_policy(world, make, target, trigger):
    policy = world.install(naming(make.policy(on_change=True), "a/bot"))
    world.dispatcher.on_stored(await world.ask(policy, trigger, sweep=True))
    await world.settle()
    assert (await world.status()).state is State.COMPLETED
    assert "a:bot list ConfigMap" in world.wire.users
    assert {call.partition(" ")[0] for call in world.wire.users} == {"a:bot"}


async def test_targets_read_by_one_account_are_not_reused_for_another(
    world, make, target, trigger
):
    patches = [{"metadata": {"labels": {name: "yes"}}} for name in ("one", "two")]
    first = world.install(naming(make.policy("one", patch=patches[0]), "a/bot"))
    second = world.install(make.policy("two", patch=patches[1]))
    for policy, name in ((first, "ur-1"), (second, "ur-2")):
        world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
    await world.settle()
    reads = [call for call in world.wire.users if call.endswith("Secret")]
    assert sorted(reads) == [
        " change Secret",
        " get Secret",
        "a:bot change Secret",
        "a:bot get Secret",
    ]
    stored = await world.read(target)
    assert stored["metadata"]["labels"] == {"one": "yes", "two": "yes"}


async def test_a_changed_account_annotation_applies_without_a_new_generation(world, make):
    policy = world.install(make.policy())
    changed = await world.edit(policy, annotations={ANNOTATION_SERVICE_ACCOUNT: "a/bot"})
    before = world.index.entry(P).terms
    world.index.apply(changed)
    assert world.index.entry(P).terms != before
    assert world.index.get(P).programs[0].origin.account == BOT
    # An older version from a late list changes no rights.
    world.index.apply(policy)
    assert world.index.account(P) == BOT


async def test_an_earlier_version_of_a_rule_keeps_the_account_it_was_accepted_with(world, make):
    policy = world.install(make.policy())
    named = await world.edit(policy, annotations={ANNOTATION_SERVICE_ACCOUNT: "a/bot"})
    world.index.apply(named)
    changed = await world.edit(
        policy,
        annotations={ANNOTATION_SERVICE_ACCOUNT: "a/other"},
        spec={**policy["spec"], "background": True},
    )
    world.index.apply(changed)
    was = world.index.as_it_was(policy["metadata"]["uid"], "r")
    assert (was.origin.account, world.index.account(P).name) == (BOT, "other")


async def test_requests_of_a_policy_with_an_invalid_account_stay_pending(
    world, make, target, trigger
):
    policy = world.install(naming(make.policy(), "bot"))
    assert world.index.account(P) == NOBODY
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    status = await world.status()
    assert (status.state, status.reason) == (State.PENDING, "InvalidAccount")
    assert "NAMESPACE/NAME" in status.message
    assert world.wire.users == []
    problems = await Delegation(index=world.index, access=Account(), clock=world.clock).problems(
        world.index.policies()
    )
    assert "NAMESPACE/NAME" in problems[P]


async def test_a_waiting_request_resumes_once_its_account_has_the_missing_right(
    world, make, target, trigger
):
    policy = world.install(naming(make.policy(), "a/bot"))

    def refuse(_before, _after):
        raise Forbidden("no", permission="patch secrets in namespace a")

    world.wire.before_change = refuse
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    bot = Account(lacks={"patch secrets", "update secrets"})
    access = Account(named={str(BOT): bot})
    grants = PermissionWatch(waiting=world.dispatcher, access=access, clock=world.clock)
    await grants.look()
    # It does not matter that all other accounts have the right.
    assert (access.asked, (await world.status()).attempts) == ([], 1)
    bot.lacks.clear()
    world.wire.before_change = lambda *_: None
    await grants.look()
    await world.settle()
    assert (await world.status()).state is State.COMPLETED


async def test_a_missing_right_names_its_account_where_the_error_text_is_withheld(
    world, make, target
):
    trigger = world.cluster.add(make.object("Secret", "trigger"))
    policy = world.install(naming(make.policy(kinds=("Secret",)), "a/bot"))

    def refuse(_before, _after):
        raise Forbidden("of u: no", permission="patch secrets in namespace a")

    world.wire.before_change = refuse
    world.dispatcher.on_stored(await world.ask(policy, trigger))
    await world.settle()
    assert (await world.status()).message.endswith(
        "grant: patch secrets in namespace a to ServiceAccount a:bot"
    )


async def test_the_right_to_impersonate_is_checked_again_while_it_is_missing(world, make):
    world.install(naming(make.policy(), "a/bot"))
    bot = Account(lacks={"impersonate serviceaccounts"})
    access = Account(named={str(BOT): bot})
    delegation = Delegation(index=world.index, access=access, clock=world.clock)
    reported = await delegation.problems(world.index.policies())
    assert "grant: impersonate serviceaccounts in namespace a named bot" in reported[P]
    bot.lacks.clear()
    world.clock.tick(5)
    assert await delegation.problems(world.index.policies()) == {}
    asked = len(bot.asked)
    assert await delegation.problems(world.index.policies()) == {}
    assert len(bot.asked) == asked


@pytest.fixture
def rollout(world: World) -> Rollout:
    return new_rollout(world)


@pytest.fixture
def status_of(world: World, rollout: Rollout) -> Callable[[Object], Awaitable[Object]]:
    """Return a function that reconciles the rollout and returns the status of a policy."""

    async def look(policy):
        world.index.apply(await world.read(policy))
        await rollout.reconcile()
        return (await world.read(policy))["status"]

    return look


async def test_a_policy_whose_account_may_not_be_impersonated_is_not_ready(
    world, make, rollout, status_of
):
    policy = world.install(naming(make.policy(on_change=True), "a/bot"))
    bot = rollout.webhook_writer.cluster.access.of(BOT)
    bot.lacks.add("impersonate serviceaccounts")
    status = await status_of(policy)
    assert not status["ready"]
    assert "may not work as ServiceAccount a:bot" in status["conditions"][0]["message"]
    name = sweep_name(policy["metadata"]["uid"], 1, "r")
    with pytest.raises(NotFound):
        await world.requests.get(name)
    bot.lacks.clear()
    world.clock.tick(5)
    assert (await status_of(policy))["ready"]
    assert (await world.requests.get(name)).spec.sweep


async def test_a_policy_with_an_invalid_account_is_not_ready(world, make, status_of):
    status = await status_of(world.install(naming(make.policy(), "bot")))
    assert not status["ready"]
    assert "NAMESPACE/NAME" in status["conditions"][0]["message"]


async def test_namespace_labels_are_read_as_the_account_for_rules_but_not_for_exceptions(
    world, make, target, trigger
):
    world.cluster.add(make.object("Namespace", "a", ""))
    wanted = {
        "namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
    }
    policy = world.install(naming(make.policy(resources=wanted), "a/bot"))
    exceptions = world.processor.exceptions
    exceptions.exception_settings = ExceptionSettings(enabled=True, namespaces="*")
    exceptions.on_event(
        "ADDED",
        {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "team"},
            "spec": {
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"], **wanted}}]},
                "exceptions": [{"policyName": "p", "ruleNames": ["r"]}],
            },
        },
    )
    world.dispatcher.on_stored(await world.ask(policy, trigger, source=Source.MANUAL))
    await world.settle()
    assert (await world.status()).reason == "Excepted"
    reads = [call for call in world.wire.users if call.endswith("Namespace")]
    assert reads == ["a:bot get Namespace", " get Namespace"]
