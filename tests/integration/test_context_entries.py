"""Context entries, foreach and the settings ConfigMap, with both programs running."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION
from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

SETTINGS = "kyverno"
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


def variable(name: str, **fields: Any) -> Object:
    return {"name": name, "variable": fields}


def from_map(name: str, namespace: str, of: str) -> Object:
    return {"name": name, "configMap": {"name": of, "namespace": namespace}}


def for_each(made: Object, *blocks: Object) -> Object:
    """Return a copy of a rule with a foreach instead of its patch."""
    return {**made, "mutate": {"targets": made["mutate"]["targets"], "foreach": list(blocks)}}


def says_word(place: str, *entries: Object) -> Object:
    """Return a rule that writes the entry ``word`` into the target."""
    data = {"data": {"got": "{{ word }}"}}
    return rule(place, [target(place, "target")], data, context=list(entries))


async def only(rig: Rig) -> Any:
    """Return the status of the one request of the test's policy."""
    await rig.finish()
    (request,) = await rig.requests()
    return request.status


async def test_a_patch_reads_entries_of_all_kinds_at_all_levels(rig: Rig) -> None:
    place = rig.namespace
    await rig.merge("Namespace", place, {"metadata": {"labels": {"tier": "gold"}}}, namespace="")
    await rig.create_all(
        [
            config_map(place, "settings-red", prefix="r-"),
            config_map(place, "member-1", size="big"),
            config_map(place, "member-2"),
        ]
    )
    size = variable("size", jmesPath="target.data.size", default="small")
    text = "{{ settings.data.prefix }}{{ tier }}-{{ size }}-{{ part }}"
    made = rule(
        place,
        [{**target(place, "member-*"), "context": [size]}],
        GOT,
        context=[
            variable("team", jmesPath="request.object.data.team"),
            from_map("settings", place, "settings-{{ team }}"),
            {
                "name": "tier",
                "apiCall": {
                    "urlPath": "/api/v1/namespaces/{{ request.namespace }}",
                    "jmesPath": "metadata.labels.tier",
                },
            },
        ],
    )
    part = variable("part", value="{{ element }}{{ elementIndex }}")
    block = {
        "list": "split(request.object.data.parts, ',')",
        "context": [part],
        "preconditions": {
            "all": [{"key": "{{ element }}", "operator": "NotEquals", "value": "b"}]
        },
        "patchStrategicMerge": {"data": {"{{ element }}": text}},
    }
    await rig.apply(for_each(made, block))
    await rig.create(config_map(place, "trigger-1", team="red", parts="a,b,c"))
    await rig.applied(
        {
            "member-1": {"a": "r-gold-big-a0", "c": "r-gold-big-c2"},
            "member-2": {"a": "r-gold-small-a0", "c": "r-gold-small-c2"},
        },
        within=15,
    )
    assert (await only(rig)).counts.patched == 2
    assert "b" not in await rig.data("member-1")
    # Both targets and all elements share one read.
    assert await rig.calls("get", "configmaps", name="settings-red") == 1


async def test_an_entry_that_no_expression_names_is_never_read(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all([config_map(place, "target"), config_map(place, "unread")])
    entries = [
        from_map("unread", place, "unread"),
        {"name": "failing", "apiCall": {"urlPath": "/apis/none.example/v1/nothings"}},
        variable("broken", jmesPath="request.object.none.at.all"),
    ]
    await rig.apply(rule(place, [target(place, "target")], GOT, context=entries))
    await rig.create(config_map(place, "trigger-1"))
    await rig.applied({"target": {"got": "trigger-1"}}, within=15)
    assert await rig.calls("get", "configmaps", name="unread") == 0


async def test_a_missing_config_map_fails_the_request_with_the_name_of_its_entry(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(
        rule(
            place,
            [target(place, "target")],
            {"data": {"got": "{{ settings.data.word || 'never used' }}"}},
            context=[from_map("settings", place, "settings")],
        )
    )
    await rig.create(config_map(place, "trigger-1"))
    status = await only(rig)
    assert status.state is State.FAILED
    assert "failed to retrieve config map for context entry settings" in status.message
    assert not await rig.data("target")


async def test_the_default_of_a_variable_replaces_a_missing_config_map(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    word = variable("word", jmesPath="settings.data.word", default="usual")
    await rig.apply(says_word(place, from_map("settings", place, "settings"), word))
    await rig.create(config_map(place, "trigger-1"))
    await rig.applied({"target": {"got": "usual"}}, within=15)


async def test_the_default_of_an_api_call_replaces_a_missing_object(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    path = f"/api/v1/namespaces/{place}/configmaps/none"
    call = {"urlPath": path, "jmesPath": "data.word", "default": "usual"}
    await rig.apply(says_word(place, {"name": "word", "apiCall": call}))
    await rig.create(config_map(place, "trigger-1"))
    await rig.applied({"target": {"got": "usual"}}, within=15)


async def test_a_request_waits_for_a_right_of_an_entry_and_names_it(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    call = {"urlPath": f"/api/v1/namespaces/{place}/secrets/s", "default": "not while it may pass"}
    await rig.apply(says_word(place, {"name": "word", "apiCall": call}))
    await rig.create(config_map(place, "trigger-1"))
    request = await rig.parked("Forbidden")
    assert request.status.missing_permission == f"get secrets in namespace {place}"
    assert not await rig.data("target")


async def test_a_service_that_is_not_allowed_fails_the_request(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    call = {"service": {"url": "http://127.0.0.1:9/?token=hidden"}}
    await rig.apply(says_word(place, {"name": "word", "apiCall": call}))
    await rig.create(config_map(place, "trigger-1"))
    status = await only(rig)
    assert status.state is State.FAILED
    assert "allow it with --service-hosts" in status.message
    assert "hidden" not in status.message


async def test_a_namespaced_policy_does_not_read_across_namespaces(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    made = rule(
        place,
        [target(place, "target")],
        {"data": {"got": "{{ other.items[0].metadata.name }}"}},
        context=[{"name": "other", "apiCall": {"urlPath": "/api/v1/configmaps"}}],
    )
    del made["match"]["any"][0]["resources"]["namespaces"]
    await rig.apply(made, kind="Policy")
    await rig.create(config_map(place, "trigger-1"))

    async def unfinished() -> Any:
        found = await rig.requests(f"{place}/{place}", state=State.FAILED)
        return "" if found else await rig.requests(f"{place}/{place}") or "no request"

    await rig.settle(unfinished, within=20)
    (request,) = await rig.requests(f"{place}/{place}")
    assert "does not contain a namespace segment" in request.status.message
    await rig.delete("Policy", place)


@contextlib.asynccontextmanager
async def settings_restored(rig: Rig) -> AsyncIterator[Object]:
    """Yield the settings ConfigMap, and restore its resource filters at the end."""
    before = await rig.get("ConfigMap", SETTINGS, NAMESPACE)
    try:
        yield before
    finally:
        data = {"resourceFilters": before["data"]["resourceFilters"]}
        await filtered(rig, data["resourceFilters"], "settings in use")


async def filtered(rig: Rig, text: str, heard: str) -> None:
    """Set the resource filters, and wait until the admission server logs the change."""

    def lines() -> int:
        return sum(line.get("event", line.get("message")) == heard for line in rig.log(ADMISSION))

    before = lines()
    patch = {"data": {"resourceFilters": text}}
    await rig.merge("ConfigMap", SETTINGS, patch, namespace=NAMESPACE)

    async def unheard() -> str:
        return "" if lines() > before else f"{heard!r} is not logged"

    await rig.settle(unheard, within=20)


async def test_changed_filters_apply_without_a_restart(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    async with settings_restored(rig) as settings:
        usual = settings["data"]["resourceFilters"]
        await filtered(rig, f"{usual} [ConfigMap,{place},trigger-*-quiet]", "settings in use")
        await rig.create(config_map(place, "trigger-1-quiet"))
        await rig.create(config_map(place, "trigger-2"))
        await rig.applied({"target": {"got": "trigger-2"}}, within=15)
        assert [item.spec.resource.name for item in await rig.requests()] == ["trigger-2"]

        broken = "setting refused"
        await filtered(rig, "[ConfigMap,a,b,c,d]", broken)
        await rig.create(config_map(place, "trigger-3-quiet"))
        await rig.create(config_map(place, "trigger-4"))
        await rig.applied({"target": {"got": "trigger-4"}}, within=15)
        assert {item.spec.resource.name for item in await rig.requests()} == {
            "trigger-2",
            "trigger-4",
        }
    await rig.create(config_map(place, "trigger-5-quiet"))
    await rig.applied({"target": {"got": "trigger-5-quiet"}}, within=15)
