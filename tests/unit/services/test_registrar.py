"""Webhook configurations are kept as they are wanted, and not fought for without end."""

import pytest

from reconciler.errors import Conflict, Gone, Invalid
from reconciler.services.registration import POLICY_CONFIGURATION, RESOURCE_CONFIGURATION
from tests.unit.services.configurations import OWNER, new_registrar

CONDITION = '[{"name": "odd", "expression": "%s"}]'


@pytest.fixture
def told():
    return []


@pytest.fixture
def registrar(world, told):
    return new_registrar(world, restored=lambda name, text: told.append(f"{name}: {text}"))


@pytest.fixture
def policies(world, make):
    def run(*written):
        for policy in written or (make.policy(),):
            world.index.apply(world.cluster.add(policy))
        return world.index.policies()

    return run


def webhooks(registrar):
    return registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["webhooks"]


class TestOwner:
    async def test_the_configurations_go_with_their_owner(self, registrar, policies):
        await registrar.register(policies())
        for stored in registrar.cluster.webhooks.stored.values():
            assert stored["metadata"]["ownerReferences"] == [OWNER]

    async def test_without_an_owner_they_are_made_all_the_same(self, registrar, policies):
        registrar.cluster.webhooks.reference = None
        await registrar.register(policies())
        stored = registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
        assert "ownerReferences" not in stored["metadata"]

    async def test_once_the_owner_is_gone_they_are_not_made_again(self, registrar, policies):
        chosen = policies()
        await registrar.register(chosen)
        registrar.cluster.webhooks.stored.clear()
        registrar.cluster.webhooks.reference = None
        with pytest.raises(Gone, match="being uninstalled"):
            await registrar.register(chosen)
        assert registrar.cluster.webhooks.stored == {}

    async def test_an_owner_that_was_made_again_is_the_new_one(self, registrar, policies):
        chosen = policies()
        await registrar.register(chosen)
        registrar.cluster.webhooks.stored.clear()
        registrar.cluster.webhooks.reference = {**OWNER, "uid": "2"}
        await registrar.register(chosen)
        (owner,) = registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"][
            "ownerReferences"
        ]
        assert owner["uid"] == "2"


class TestRestoring:
    async def test_what_is_deleted_or_edited_comes_back_and_is_told(
        self, registrar, policies, told
    ):
        chosen = policies()
        await registrar.register(chosen)
        assert told == []
        del registrar.cluster.webhooks.stored[POLICY_CONFIGURATION]
        registrar.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
        await registrar.register(chosen)
        assert registrar.cluster.webhooks.kinds() == {"configmaps"}
        assert told == [
            f"{RESOURCE_CONFIGURATION}: it was changed by kubectl-edit",
            f"{POLICY_CONFIGURATION}: it was deleted",
        ]

    async def test_a_label_that_somebody_took_off_comes_back(self, registrar, policies):
        chosen = policies()
        await registrar.register(chosen)
        meta = registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"]
        registrar.cluster.webhooks.edit(
            RESOURCE_CONFIGURATION, metadata={**meta, "labels": {"a": "b"}}
        )
        await registrar.register(chosen)
        labels = registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"]["labels"]
        assert labels == {"app.kubernetes.io/managed-by": "kube-retrofit"}

    async def test_it_goes_on_every_two_seconds(self, world, registrar, policies, told):
        chosen = policies()
        await registrar.register(chosen)
        for _ in range(10):
            registrar.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
            await registrar.register(chosen)
        begun = world.clock.monotonic()
        for _ in range(5):
            registrar.cluster.webhooks.edit(RESOURCE_CONFIGURATION, webhooks=[])
            with pytest.raises(Conflict, match="kubectl-edit again and again") as refused:
                await registrar.register(chosen)
            assert webhooks(registrar) == []
            world.clock.tick(refused.value.retry_after)
            await registrar.register(chosen)
            assert registrar.cluster.webhooks.kinds() == {"configmaps"}
        assert len(told) == 15
        assert world.clock.monotonic() - begun == pytest.approx(10.0)

    async def test_what_the_cluster_changes_on_the_way_is_left(self, registrar, policies, told):
        store = registrar.cluster.webhooks._store

        def changing(configuration):
            changed = [{**item, "timeoutSeconds": 7} for item in configuration["webhooks"]]
            return store({**configuration, "webhooks": changed})

        registrar.cluster.webhooks._store = changing
        chosen = policies()
        await registrar.register(chosen)
        version = registrar.cluster.webhooks.versions
        await registrar.register(chosen)
        assert registrar.cluster.webhooks.versions == version
        assert told == []

    async def test_its_own_writes_are_known(self, registrar, policies):
        await registrar.register(policies())
        stored = registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION]
        assert registrar.is_own(stored)
        registrar.cluster.webhooks.edit(RESOURCE_CONFIGURATION)
        assert not registrar.is_own(registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION])


class TestSettings:
    async def test_they_reach_the_configurations(self, registrar, policies):
        chosen = policies()
        await registrar.register(chosen)
        registrar.live.take(
            {
                "webhooks": '{"objectSelector": {"matchLabels": {"a": "b"}}}',
                "webhookLabels": '{"team": "x"}',
                "webhookAnnotations": '{"note": "y"}',
                "matchConditions": CONDITION % "true",
            }
        )
        await registrar.register(chosen)
        for stored in registrar.cluster.webhooks.stored.values():
            assert stored["metadata"]["labels"]["team"] == "x"
            assert stored["metadata"]["annotations"] == {"note": "y"}
        (webhook,) = webhooks(registrar)
        assert webhook["objectSelector"] == {"matchLabels": {"a": "b"}}
        assert {"name": "odd", "expression": "true"} in webhook["matchConditions"]
        registrar.live.take({})
        await registrar.register(chosen)
        (webhook,) = webhooks(registrar)
        assert webhook["objectSelector"] == {}
        meta = registrar.cluster.webhooks.stored[RESOURCE_CONFIGURATION]["metadata"]
        assert "annotations" not in meta

    async def test_what_the_api_server_refuses_leaves_the_old_ones(self, registrar, policies):
        chosen = policies()
        registrar.live.take({"matchConditions": CONDITION % "true"})
        await registrar.register(chosen)
        registrar.cluster.webhooks.refuses.add("tru(")
        registrar.live.take({"matchConditions": CONDITION % "tru("})
        assert await registrar.register(chosen) == {}
        assert {"name": "odd", "expression": "true"} in webhooks(registrar)[0]["matchConditions"]
        (fault,) = registrar.live.faults
        assert fault.key == "matchConditions"
        assert "tru(" in fault.message

    async def test_what_cannot_be_sorted_out_is_an_error(self, registrar, policies):
        registrar.cluster.webhooks.refuses.add("configmaps")
        with pytest.raises(Invalid):
            await registrar.register(policies())


async def test_a_policy_with_refused_conditions_is_left_out_until_it_changes(
    world, make, registrar, policies
):
    def picky(expression):
        conditions = [{"name": "odd", "expression": expression}]
        return make.policy("picky", spec={"webhookConfiguration": {"matchConditions": conditions}})

    registrar.cluster.webhooks.refuses.add("tru(")
    chosen = policies(make.policy("plain", kinds=("Secret",)), picky("tru("))
    refused = await registrar.register(chosen)
    assert set(refused) == {"picky"}
    assert registrar.cluster.webhooks.kinds() == {"secrets"}
    assert await registrar.register(chosen) == refused
    mended = await world.edit(picky("tru("), spec=picky("true")["spec"])
    world.index.apply(mended)
    assert await registrar.register(world.index.policies()) == {}
    assert registrar.cluster.webhooks.kinds() == {"secrets", "configmaps"}
