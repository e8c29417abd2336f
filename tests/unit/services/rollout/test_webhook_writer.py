"""Webhook configurations are kept as desired, but not fought for without end."""

from collections.abc import Callable

import pytest

from reconciler.api.kinds import policy_named
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import Conflict, Invalid, NotInstalled
from reconciler.services.rollout.webhook_config import POLICY_CONFIGURATION, RESOURCE_CONFIGURATION
from reconciler.services.rollout.webhook_writer import WebhookWriter
from tests.unit.services.configurations import OWNER, new_webhook_writer
from tests.unit.services.conftest import Make, World

CONDITION = '[{"name": "odd", "expression": "%s"}]'


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def webhook_writer(world: World, reported: list[str]) -> WebhookWriter:
    writer = new_webhook_writer(world)
    writer.restored.subscribe(lambda name, text: reported.append(f"{name}: {text}"))
    return writer


@pytest.fixture
def policies(world: World, make: type[Make]) -> Callable[..., tuple[CompiledPolicy, ...]]:
    def run(*written):
        for policy in written or (make.policy(),):
            world.index.apply(world.cluster.add(policy))
        return world.index.policies()

    return run


def webhooks(webhook_writer):
    return webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["webhooks"]


class TestOwner:
    async def test_the_configurations_name_their_owner(self, webhook_writer, policies):
        await webhook_writer.register(policies())
        for stored in webhook_writer.cluster.webhooks.stored.values():
            assert stored["metadata"]["ownerReferences"] == [OWNER]

    async def test_configurations_are_created_without_an_owner_as_well(
        self, webhook_writer, policies
    ):
        webhook_writer.cluster.webhooks.reference = None
        await webhook_writer.register(policies())
        stored = webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
        assert "ownerReferences" not in stored["metadata"]

    async def test_configurations_are_not_recreated_once_their_owner_is_gone(
        self, webhook_writer, policies
    ):
        chosen = policies()
        await webhook_writer.register(chosen)
        webhook_writer.cluster.webhooks.stored.clear()
        webhook_writer.cluster.webhooks.reference = None
        with pytest.raises(NotInstalled, match="being uninstalled"):
            await webhook_writer.register(chosen)
        assert webhook_writer.cluster.webhooks.stored == {}

    async def test_configurations_name_a_recreated_owner(self, webhook_writer, policies):
        chosen = policies()
        await webhook_writer.register(chosen)
        webhook_writer.cluster.webhooks.stored.clear()
        webhook_writer.cluster.webhooks.reference = {**OWNER, "uid": "2"}
        await webhook_writer.register(chosen)
        (owner,) = webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"][
            "ownerReferences"
        ]
        assert owner["uid"] == "2"


class TestRestoring:
    async def test_deleted_or_edited_configurations_are_restored_and_reported(
        self, webhook_writer, policies, reported
    ):
        chosen = policies()
        await webhook_writer.register(chosen)
        assert reported == []
        del webhook_writer.cluster.webhooks.stored[POLICY_CONFIGURATION]
        webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
        await webhook_writer.register(chosen)
        assert webhook_writer.cluster.webhooks.kinds() == {"configmaps"}
        assert reported == [
            f"{RESOURCE_CONFIGURATION}: it was changed by kubectl-edit",
            f"{POLICY_CONFIGURATION}: it was deleted",
        ]

    async def test_a_removed_label_is_restored(self, webhook_writer, policies):
        chosen = policies()
        await webhook_writer.register(chosen)
        meta = webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"]
        webhook_writer.cluster.webhooks.edit(
            RESOURCE_CONFIGURATION, metadata={**meta, "labels": {"a": "b"}}
        )
        await webhook_writer.register(chosen)
        labels = webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"][
            "labels"
        ]
        assert labels == {"app.kubernetes.io/managed-by": "kube-retrofit"}

    async def test_repeatedly_changed_configurations_are_restored_every_two_seconds(
        self, world, webhook_writer, policies, reported
    ):
        chosen = policies()
        await webhook_writer.register(chosen)
        for _ in range(10):
            webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
            await webhook_writer.register(chosen)
        begun = world.clock.monotonic()
        for _ in range(5):
            webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
            with pytest.raises(Conflict, match="kubectl-edit again and again") as refused:
                await webhook_writer.register(chosen)
            assert webhooks(webhook_writer) == []
            world.clock.tick(refused.value.retry_after)
            await webhook_writer.register(chosen)
            assert webhook_writer.cluster.webhooks.kinds() == {"configmaps"}
        assert len(reported) == 15
        assert world.clock.monotonic() - begun == pytest.approx(10.0)

    async def test_changes_that_the_cluster_makes_on_writing_are_left(
        self, webhook_writer, policies, reported
    ):
        store = webhook_writer.cluster.webhooks.store

        def changing(configuration):
            changed = [{**item, "timeoutSeconds": 7} for item in configuration["webhooks"]]
            return store({**configuration, "webhooks": changed})

        webhook_writer.cluster.webhooks.store = changing
        chosen = policies()
        await webhook_writer.register(chosen)
        version = webhook_writer.cluster.webhooks.versions
        await webhook_writer.register(chosen)
        assert webhook_writer.cluster.webhooks.versions == version
        assert reported == []

    async def test_own_writes_are_recognized(self, webhook_writer, policies):
        await webhook_writer.register(policies())
        stored = webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
        assert webhook_writer.is_own(stored)
        webhook_writer.cluster.webhooks.edit(RESOURCE_CONFIGURATION)
        assert not webhook_writer.is_own(
            webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
        )


class TestSettings:
    async def test_settings_are_applied_to_the_configurations(self, webhook_writer, policies):
        chosen = policies()
        await webhook_writer.register(chosen)
        webhook_writer.live.load(
            {
                "webhooks": '{"objectSelector": {"matchLabels": {"a": "b"}}}',
                "webhookLabels": '{"team": "x"}',
                "webhookAnnotations": '{"note": "y"}',
                "matchConditions": CONDITION % "true",
            }
        )
        await webhook_writer.register(chosen)
        for stored in webhook_writer.cluster.webhooks.stored.values():
            assert stored["metadata"]["labels"]["team"] == "x"
            assert stored["metadata"]["annotations"] == {"note": "y"}
        (webhook,) = webhooks(webhook_writer)
        assert webhook["objectSelector"] == {"matchLabels": {"a": "b"}}
        assert {"name": "odd", "expression": "true"} in webhook["matchConditions"]
        webhook_writer.live.load({})
        await webhook_writer.register(chosen)
        (webhook,) = webhooks(webhook_writer)
        assert webhook["objectSelector"] == {}
        meta = webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"]
        assert "annotations" not in meta

    async def test_refused_match_conditions_leave_the_previous_ones_in_place(
        self, webhook_writer, policies
    ):
        chosen = policies()
        webhook_writer.live.load({"matchConditions": CONDITION % "true"})
        await webhook_writer.register(chosen)
        webhook_writer.cluster.webhooks.refuses.add("tru(")
        webhook_writer.live.load({"matchConditions": CONDITION % "tru("})
        assert await webhook_writer.register(chosen) == {}
        assert {"name": "odd", "expression": "true"} in webhooks(webhook_writer)[0][
            "matchConditions"
        ]
        (fault,) = webhook_writer.live.faults
        assert fault.key == "matchConditions"
        assert "tru(" in fault.message

    async def test_conditions_that_were_stored_without_webhooks_stop_no_policy(
        self, webhook_writer, policies
    ):
        """The API server checks conditions with the first webhook that has them."""
        webhook_writer.live.load({"matchConditions": CONDITION % "tru("})
        await webhook_writer.register(())
        webhook_writer.cluster.webhooks.refuses.add("tru(")
        assert await webhook_writer.register(policies()) == {}
        assert webhook_writer.cluster.webhooks.kinds() == {"configmaps"}
        assert [fault.key for fault in webhook_writer.live.faults] == ["matchConditions"]

    async def test_each_refused_setting_keeps_its_own_previous_value(
        self, webhook_writer, policies
    ):
        chosen = policies()
        webhook_writer.live.load(
            {"webhookLabels": '{"team": "x"}', "matchConditions": CONDITION % "true"}
        )
        await webhook_writer.register(chosen)
        webhook_writer.cluster.webhooks.refuses |= {"tru(", "bad key"}
        webhook_writer.live.load(
            {
                "webhookLabels": '{"bad key": "x"}',
                "matchConditions": CONDITION % "tru(",
                "webhookAnnotations": '{"note": "y"}',
            }
        )
        assert await webhook_writer.register(chosen) == {}
        stored = webhook_writer.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
        assert stored["metadata"]["labels"]["team"] == "x"
        assert stored["metadata"]["annotations"] == {"note": "y"}
        assert {"name": "odd", "expression": "true"} in webhooks(webhook_writer)[0][
            "matchConditions"
        ]
        faults = {fault.key: fault.message for fault in webhook_writer.live.faults}
        assert set(faults) == {"webhookLabels", "matchConditions"}
        assert "bad key" in faults["webhookLabels"]
        assert "tru(" in faults["matchConditions"]

    async def test_a_configuration_that_is_refused_as_a_whole_is_an_error(
        self, webhook_writer, policies
    ):
        webhook_writer.cluster.webhooks.refuses.add("configmaps")
        with pytest.raises(Invalid):
            await webhook_writer.register(policies())


async def test_a_policy_with_refused_conditions_is_left_out_until_it_changes(
    world, make, webhook_writer, policies
):
    def picky(expression):
        conditions = [{"name": "odd", "expression": expression}]
        return make.policy("picky", spec={"webhookConfiguration": {"matchConditions": conditions}})

    webhook_writer.cluster.webhooks.refuses.add("tru(")
    chosen = policies(make.policy("plain", kinds=("Secret",)), picky("tru("))
    refused = await webhook_writer.register(chosen)
    assert set(refused) == {policy_named("picky")}
    assert webhook_writer.cluster.webhooks.kinds() == {"secrets"}
    assert await webhook_writer.register(chosen) == refused
    mended = await world.edit(picky("tru("), spec=picky("true")["spec"])
    world.index.apply(mended)
    assert await webhook_writer.register(world.index.policies()) == {}
    assert webhook_writer.cluster.webhooks.kinds() == {"secrets", "configmaps"}
