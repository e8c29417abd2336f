"""Whether policies are in force, derived from the last written configuration."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from typing_extensions import override

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Kind, Object
from reconciler.api.updaterequest import render_time
from reconciler.engine.program import CompiledPolicy
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.ports.leases import Checkpoint
from reconciler.services.rollout.in_force import InForce
from reconciler.services.rollout.outages import Cause
from reconciler.services.rollout.webhook_config import POLICY_CONFIGURATION, RESOURCE_CONFIGURATION
from reconciler.services.rollout.webhook_writer import WebhookWriter
from tests.unit.services.configurations import MemoryCheckpoint, new_webhook_writer
from tests.unit.services.conftest import Make, World


class Served(MemoryKinds):
    """Discovery in which kinds appear and disappear."""

    def __init__(self) -> None:
        super().__init__()
        self.away: set[str] = set()

    @override
    async def find(self, api_version: str, kind: str) -> tuple[Kind, ...]:
        return () if kind in self.away else await super().find(api_version, kind)


@pytest.fixture
def kinds() -> Served:
    return Served()


@pytest.fixture
def webhook_writer(world: World, kinds: Served) -> WebhookWriter:
    return new_webhook_writer(world, kinds=kinds)


@pytest.fixture
def in_force(webhook_writer: WebhookWriter) -> InForce:
    return webhook_writer.in_force


@pytest.fixture
def policies(world: World, make: type[Make]) -> Callable[..., tuple[CompiledPolicy, ...]]:
    def run(*written):
        for policy in written or (make.policy(),):
            world.index.apply(world.cluster.add(policy))
        return world.index.policies()

    return run


@pytest.fixture
def serve(kinds: Served) -> Callable[..., Callable[[], None]]:
    def run(api_version: str, kind: str, plural: str) -> Callable[[], None]:
        group, version = api_version.split("/")
        kinds.serve(Kind(group=group, version=version, kind=kind, plural=plural, namespaced=True))
        return lambda: kinds.away.add(kind)

    return run


def spans(webhook_writer, world):
    """Return how many seconds ago each outage that is due began, and its cause."""
    now = webhook_writer.cluster.clock.now()
    due = webhook_writer.in_force.outages.due(now + timedelta(seconds=1))
    return [((now - item.since).total_seconds(), item.cause) for item in due]


async def test_a_first_installation_has_no_outage(world, webhook_writer, policies):
    await webhook_writer.register(policies())
    await webhook_writer.register(world.index.policies())
    assert webhook_writer.in_force.outages.revision == 0
    assert webhook_writer.in_force.obstacle is None


async def test_an_outage_begins_when_the_configuration_was_last_seen_intact(
    world, webhook_writer, policies
):
    chosen = policies()
    await webhook_writer.register(chosen)
    world.clock.tick(30)
    await webhook_writer.register(chosen)
    world.clock.tick(20)
    del webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
    await webhook_writer.register(chosen)
    assert webhook_writer.in_force.obstacle.cause is Cause.MISSING
    assert webhook_writer.in_force.settling == 2.0
    assert spans(webhook_writer, world) == []
    world.clock.tick(2)
    await webhook_writer.register(chosen)
    assert webhook_writer.in_force.obstacle is None
    assert spans(webhook_writer, world) == [(22.0, Cause.MISSING)]


async def test_repeated_edits_are_one_outage(world, webhook_writer, policies):
    chosen = policies()
    await webhook_writer.register(chosen)
    for _ in range(8):
        webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
        await webhook_writer.register(chosen)
        world.clock.tick(1)
        await webhook_writer.register(chosen)
        assert webhook_writer.in_force.obstacle.cause is Cause.CHANGED
    world.clock.tick(1)
    await webhook_writer.register(chosen)
    assert spans(webhook_writer, world) == [(9.0, Cause.CHANGED)]


async def test_an_edit_that_left_the_webhooks_as_they_were_is_still_an_outage(
    world, webhook_writer, policies
):
    chosen = policies()
    await webhook_writer.register(chosen)
    world.clock.tick(5)
    webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION)
    await webhook_writer.register(chosen)
    assert webhook_writer.in_force.obstacle is None
    assert spans(webhook_writer, world) == [(5.0, Cause.CHANGED)]


async def test_an_edit_before_a_new_policy_is_registered_is_an_outage(
    world, make, webhook_writer, policies
):
    await webhook_writer.register(policies())
    world.clock.tick(5)
    webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
    await webhook_writer.register(policies(make.policy("q", kinds=("Secret",))))
    assert webhook_writer.in_force.obstacle.cause is Cause.CHANGED


async def test_a_new_policy_is_not_an_outage(world, make, webhook_writer, policies):
    await webhook_writer.register(policies())
    world.clock.tick(5)
    await webhook_writer.register(policies(make.policy("q", kinds=("Secret",))))
    assert webhook_writer.in_force.outages.revision == 0


async def test_a_deleted_configuration_for_policies_leaves_policies_in_force(
    webhook_writer, policies
):
    chosen = policies()
    await webhook_writer.register(chosen)
    del webhook_writer.cluster.webhooks.stored[POLICY_CONFIGURATION]
    await webhook_writer.register(chosen)
    assert webhook_writer.in_force.obstacle is None


async def test_a_withdrawn_configuration_is_an_outage_until_it_is_registered_again(
    world, webhook_writer, policies
):
    chosen = policies()
    await webhook_writer.register(chosen)
    world.clock.tick(5)
    await webhook_writer.withdraw()
    assert webhook_writer.in_force.obstacle.cause is Cause.UNINSTALLING
    world.clock.tick(30)
    await webhook_writer.register(chosen)
    assert webhook_writer.in_force.obstacle is None
    assert spans(webhook_writer, world) == [(35.0, Cause.UNINSTALLING)]


class TestTheNextLeader:
    @pytest.fixture
    async def before(
        self,
        world: World,
        webhook_writer: WebhookWriter,
        policies: Callable[..., tuple[CompiledPolicy, ...]],
    ) -> Checkpoint:
        """Return the checkpoint that the previous leader left ten minutes ago."""
        await webhook_writer.register(policies())
        in_force = webhook_writer.in_force
        checkpoint = Checkpoint(
            done=world.clock.now(), version=in_force.version, confirmed=in_force.confirmed
        )
        world.clock.tick(600)
        return checkpoint

    @pytest.fixture
    def next_one(
        self, world: World, webhook_writer: WebhookWriter, before: Checkpoint
    ) -> WebhookWriter:
        return new_webhook_writer(
            world,
            webhooks=webhook_writer.cluster.webhooks,
            checkpoint=MemoryCheckpoint(current=before),
        )

    async def test_finds_an_untouched_configuration_in_force(self, world, next_one):
        await next_one.register(world.index.policies())
        assert next_one.in_force.outages.revision == 0

    async def test_records_an_outage_for_a_missing_configuration(self, world, next_one):
        del next_one.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
        await next_one.register(world.index.policies())
        world.clock.tick(2)
        await next_one.register(world.index.policies())
        assert spans(next_one, world) == [(602.0, Cause.MISSING)]

    async def test_records_an_outage_for_a_mutating_configuration_without_the_rule(
        self, world, make, next_one, policies
    ):
        policies(make.policy("changes", targets=[]))
        await next_one.register(world.index.policies())
        world.clock.tick(1)
        due = next_one.in_force.outages.due(world.clock.now())
        (since,) = [item.since for item in due if item.changing]
        assert world.clock.now() - since == timedelta(seconds=601)

    async def test_records_an_outage_for_an_edited_configuration(self, world, next_one):
        next_one.cluster.webhooks.edit(RESOURCE_CONFIGURATION)
        await next_one.register(world.index.policies())
        assert [since for since, _ in spans(next_one, world)] == [600.0]

    async def test_records_an_outage_if_the_policies_need_another_configuration(
        self, world, make, next_one, policies
    ):
        policies(make.policy("q", kinds=("Secret",)))
        await next_one.register(world.index.policies())
        assert spans(next_one, world) == [(600.0, Cause.UNWATCHED)]

    async def test_records_an_outage_for_a_checkpoint_of_an_older_release(
        self, world, next_one, before
    ):
        next_one.cluster.checkpoint.current = Checkpoint(done=before.done)
        await next_one.register(world.index.policies())
        assert spans(next_one, world) == [(600.0, Cause.UNWATCHED)]

    @pytest.mark.parametrize(
        ("ready", "ago", "back"),
        [
            ({"status": "True", "reason": "Succeeded"}, 5000, 3600.0),
            ({"status": "False", "reason": "Uninstalling"}, 120, 180.0),
            ({"status": "False", "reason": "Uninstalling"}, 90_000, 3600.0),
        ],
    )
    async def test_derives_the_outage_from_policy_statuses_without_a_checkpoint(
        self, world, next_one, ready, ago, back
    ):
        moment = world.clock.now() - timedelta(seconds=ago)
        condition = {"type": "Ready", "lastTransitionTime": render_time(moment), **ready}
        status = {"conditions": [condition], "mutateExisting": {"observedGeneration": 1}}
        next_one.cluster.checkpoint.current = Checkpoint()
        await next_one.register(world.index.policies(), [{"status": status}])
        assert spans(next_one, world) == [(back, Cause.UNWATCHED)]


class TestKinds:
    @pytest.fixture
    def widgets(self, make: type[Make]) -> Object:
        return make.policy("w", kinds=("example.com/v1/Widget",))

    async def test_an_unserved_kind_only_keeps_its_own_policies_from_being_in_force(
        self, world, make, webhook_writer, policies, widgets
    ):
        await webhook_writer.register(policies(make.policy(), widgets))
        in_force = webhook_writer.in_force
        assert set(in_force.unserved) == {policy_named("w")}
        assert in_force.obstacle is None
        message = in_force.unserved[policy_named("w")].message
        assert "the cluster does not serve example.com/v1/Widget" in message

    async def test_a_newly_served_kind_has_an_outage_from_before_its_policy(
        self, world, webhook_writer, policies, widgets, serve
    ):
        await webhook_writer.register(policies(widgets))
        world.clock.tick(100)
        serve("example.com/v1", "Widget", "widgets")
        await webhook_writer.register(world.index.policies())
        assert webhook_writer.in_force.unserved == {}
        assert webhook_writer.cluster.webhooks.kinds() == {"widgets"}
        assert spans(webhook_writer, world) == [(115.0, Cause.KIND)]

    async def test_a_kind_that_is_no_longer_served_stays_in_the_webhook_rules(
        self, world, webhook_writer, policies, widgets, serve
    ):
        stop = serve("example.com/v1", "Widget", "widgets")
        await webhook_writer.register(policies(widgets))
        assert webhook_writer.in_force.unserved == {}
        stop()
        await webhook_writer.register(world.index.policies())
        assert set(webhook_writer.in_force.unserved) == {policy_named("w")}
        assert webhook_writer.cluster.webhooks.kinds() == {"widgets"}

    async def test_one_served_kind_of_several_puts_a_policy_in_force(
        self, webhook_writer, make, policies
    ):
        kinds = ("ConfigMap", "example.com/v1/Widget")
        await webhook_writer.register(policies(make.policy("w", kinds=kinds)))
        assert webhook_writer.in_force.unserved == {}

    async def test_a_policy_is_not_in_force_once_one_of_its_kinds_is_no_longer_served(
        self, world, webhook_writer, make, policies, serve
    ):
        stop = serve("example.com/v1", "Widget", "widgets")
        kinds = ("ConfigMap", "example.com/v1/Widget")
        await webhook_writer.register(policies(make.policy("w", kinds=kinds)))
        stop()
        await webhook_writer.register(world.index.policies())
        assert set(webhook_writer.in_force.unserved) == {policy_named("w")}
