from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.updaterequest import Outcome
from reconciler.engine.context import request_context
from reconciler.engine.match import Subject
from reconciler.engine.run import RuleRun
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.selection import TargetFinder
from tests.unit.services.conftest import Make, World


@pytest.fixture
def select(world: World, make: type[Make]) -> Callable[..., Awaitable[Any]]:
    """Return a function that selects the targets of a rule for a trigger with some data."""

    async def run(*targets, data=None, page=2, namespace=""):
        stored = world.install(make.policy(targets=list(targets), namespace=namespace))
        key = f"{namespace}/p" if namespace else "p"
        trigger = make.object(data=data or {})
        context = request_context(
            operation="CREATE",
            obj=trigger,
            old_object={},
            name="c",
            namespace="a",
            kind=("", "v1", "ConfigMap"),
            user_info=None,
        )
        world.remove(stored)
        finder = TargetFinder(kinds=world.cluster, reader=world.wire, page=page)
        program = world.index.get(policy_named(key)).programs[0]
        subject = Subject(obj=trigger, group="", version="v1", kind="ConfigMap")
        return await finder.select(RuleRun.of(program, subject, context), Loads(world.loader))

    return run


def names(selection):
    return {f"{item.key.namespace}/{item.key.name}" for item in selection.found}


@pytest.fixture
def secrets(world: World, make: type[Make]) -> None:
    for namespace in ("a", "b", "c"):
        for name in ("one", "two"):
            labels = {"app": name}
            world.cluster.add(make.object("Secret", name, namespace, labels=labels))


def secret(**fields):
    return {"apiVersion": "v1", "kind": "Secret", **fields}


async def test_selecting_an_exact_name_costs_no_read(world, select, secrets):
    found = await select(secret(namespace="a", name="one"))
    assert names(found) == {"a/one"}
    assert found.found[0].obj is None
    assert not world.wire.calls


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"namespace": "a"}, {"a/one", "a/two"}),
        ({"name": "one"}, {"a/one", "b/one", "c/one"}),
        ({"namespace": "[ab]", "name": "one"}, {"[ab]/one"}),
        ({"namespace": "*", "name": "t*"}, {"a/two", "b/two", "c/two"}),
        ({"namespace": "?", "name": "o?e"}, {"a/one", "b/one", "c/one"}),
        ({"selector": {"matchLabels": {"app": "two"}}}, {"a/two", "b/two", "c/two"}),
        ({"namespace": "b", "selector": {"matchLabels": {"app": "one"}}}, {"b/one"}),
        ({}, {f"{ns}/{name}" for ns in "abc" for name in ("one", "two")}),
    ],
)
async def test_every_field_of_a_target_narrows_the_selection(select, secrets, target, expected):
    assert names(await select(secret(**target))) == expected


async def test_a_known_namespace_limits_the_list_and_pages_are_followed(world, select, secrets):
    asked = []
    whole = world.wire.list_page

    async def list_page(kind, **options):
        asked.append((options["namespace"], options["labels"], options["limit"]))
        return await whole(kind, **options)

    world.wire.list_page = list_page
    await select(secret(namespace="a", selector={"matchLabels": {"app": "one"}}), page=1)
    assert asked == [("a", "app=one", 1)]
    asked.clear()
    assert len((await select(secret(), page=2)).found) == 6
    assert len(asked) == 3


async def test_a_uid_is_checked_in_addition_to_an_exact_name(world, make, select):
    stored = world.cluster.add(make.object("Secret", "one"))
    uid = stored["metadata"]["uid"]
    (found,) = (await select(secret(namespace="a", name="one", uid=uid))).found
    assert found.query.accepts(stored)
    (other,) = (await select(secret(namespace="a", name="one", uid="other"))).found
    assert not other.query.accepts(stored)


async def test_a_target_that_cannot_be_resolved_does_not_stop_the_others(select, secrets):
    selection = await select(
        secret(namespace="{{ request.object.data.nothing }}"), secret(namespace="a", name="one")
    )
    assert names(selection) == {"a/one"}
    (error,) = selection.errors
    assert "request.object.data.nothing" in str(error)


async def test_a_target_that_cannot_be_listed_does_not_stop_the_others(
    world, select, secrets, make
):
    world.cluster.forbid("list", "secrets")
    pods = {"apiVersion": "v1", "kind": "Pod", "namespace": "a"}
    world.cluster.add(make.object("Pod", "pod"))
    selection = await select(secret(namespace="b"), pods)
    assert names(selection) == {"a/pod"}
    (failed,) = selection.failures
    assert (failed.outcome, failed.permission) == (
        Outcome.FORBIDDEN,
        "list secrets in namespace b",
    )


async def test_an_unserved_kind_is_a_retryable_failure(select):
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"}
    (failed,) = (await select(widget)).failures
    assert failed.retryable
    assert "example.com/v1 Widget" in failed.message


async def test_a_cluster_scoped_kind_is_found_by_its_name_alone(select):
    selection = await select({"apiVersion": "v1", "kind": "Node", "name": "n"})
    assert names(selection) == {"/n"}


@pytest.mark.parametrize("place", [{"namespace": "a"}, {"namespace": "*"}])
async def test_a_namespace_for_a_cluster_scoped_kind_is_an_error(select, place):
    selection = await select({"apiVersion": "v1", "kind": "Node", "name": "n", **place})
    assert not selection.found
    assert "cluster-scoped" in str(selection.errors[0])


async def test_a_namespaced_policy_does_not_reach_cluster_scoped_objects(select):
    selection = await select({"apiVersion": "v1", "kind": "Node", "name": "n"}, namespace="a")
    assert not selection.found
    assert "use a ClusterPolicy" in str(selection.errors[0])


async def test_a_namespaced_policy_stays_in_its_namespace(select, secrets):
    assert names(await select(secret(name="*"), namespace="b")) == {"b/one", "b/two"}


async def test_a_star_from_an_object_is_a_literal_name(select, secrets):
    target = secret(namespace="a", name="{{ request.object.data.name }}")
    assert names(await select(target, data={"name": "*"})) == {"a/*"}


async def test_v1_is_the_core_group_and_a_star_is_any_group(select):
    event = {"kind": "Event", "namespace": "a", "name": "e"}
    core = await select({**event, "apiVersion": "v1"})
    assert [item.key.kind.group for item in core.found] == [""]
    every = await select({**event, "apiVersion": "*"})
    assert {item.key.kind.group for item in every.found} == {"", "events.k8s.io"}


class TestSubresources:
    @pytest.fixture
    def deployments(self, world: World, make: type[Make]) -> None:
        for name in ("one", "two"):
            world.cluster.add(
                make.object(
                    "Deployment", name, apiVersion="apps/v1", labels={"app": name}, spec={}
                )
            )

    @staticmethod
    def scale(**fields):
        return {"apiVersion": "apps/v1", "kind": "Deployment/scale", "namespace": "a", **fields}

    async def test_parents_are_listed_and_subresources_are_left_to_the_lane(
        self, select, deployments
    ):
        found = (await select(self.scale(name="*"))).found
        assert {item.key.name for item in found} == {"one", "two"}
        assert all(item.obj is None and item.key.kind.subresource == "scale" for item in found)

    async def test_a_selector_applies_to_the_labels_of_the_parent(self, select, deployments):
        wanted = {"matchLabels": {"app": "one"}}
        assert names(await select(self.scale(selector=wanted))) == {"a/one"}
        assert names(await select(self.scale(selector=wanted, name="two"))) == set()
        assert names(await select(self.scale(selector=wanted, name="one"))) == {"a/one"}

    async def test_a_scale_that_was_selected_by_labels_is_changed(
        self, world, make, select, deployments
    ):
        target = self.scale(selector={"matchLabels": {"app": "one"}})
        policy = world.install(
            make.policy("scale", targets=[target], patch={"spec": {"replicas": 3}})
        )
        trigger = world.cluster.add(make.object())
        await world.processor.attempt(await world.ask(policy, trigger), 0.0)
        kind = world.cluster.exact("apps/v1", "Deployment")
        stored = await world.cluster.get(replace(kind, subresource="scale"), "a", "one")
        assert stored["spec"]["replicas"] == 3
