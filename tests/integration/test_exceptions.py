"""PolicyExceptions and applyRules, on a cluster whose programs honour exceptions."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.binaries import Binaries
from devcluster.install import ProgramSettings, install
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from reconciler.api.meta import Object
from reconciler.api.updaterequest import Outcome, State
from reconciler.errors import ClusterError, Denied
from tests.faults.rig import Rig, config_map, open_rig, rule, target
from tests.usedrights import audited

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}
SPACES = "live-*"
FLAGS = ("--enable-policy-exception", f"--exception-namespace={SPACES}")


@pytest.fixture(scope="module")
def exception_settings(binaries: Binaries | Path) -> Iterator[Programs]:
    """Both programs, which honour the exceptions of the namespaces ``live-*``."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, whose programs are not started here")
    with audited(binaries) as plane:
        settings = install(plane, "demo")
        for name in (ADMISSION, CONTROLLER):
            shipped = settings[name]
            settings[name] = ProgramSettings(flags=(*shipped.flags, *FLAGS), env=shipped.env)
        with start_programs(plane, settings=settings) as programs:
            yield programs


@pytest.fixture
async def rig(exception_settings: Programs) -> AsyncIterator[Rig]:
    """The running programs, with a namespace for this test only."""
    async with open_rig(
        exception_settings.cluster, exception_settings, f"live-{uuid.uuid4().hex[:8]}"
    ) as rig:
        await rig.learn("kyverno.io/v2", "PolicyException")
        yield rig


def exception(
    rig: Rig, *names: str, annotation: str = "", namespace: str = "", **spec: Any
) -> Object:
    """Return an exception of the test's policy for some ConfigMaps."""
    meta: Object = {"name": "e", "namespace": namespace or rig.namespace}
    if annotation:
        meta["annotations"] = {"kube-retrofit.dev/excepts": annotation}
    resources = {"kinds": ["ConfigMap"], "names": list(names), "namespaces": [rig.namespace]}
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": meta,
        "spec": {
            "match": {"any": [{"resources": resources}]},
            "exceptions": [{"policyName": rig.namespace, "ruleNames": ["rule*"]}],
            **spec,
        },
    }


def of_members(rig: Rig) -> Object:
    """Return a match block that selects the targets of a test and none of its triggers."""
    resources = {"kinds": ["ConfigMap"], "names": ["member-*"], "namespaces": [rig.namespace]}
    return {"any": [{"resources": resources}]}


async def logged(rig: Rig, program: str, *words: str) -> None:
    """Wait until one log line of a program contains all the words."""

    async def unsaid() -> str:
        lines = (str(line) for line in rig.log(program))
        return "" if any(all(word in line for word in words) for line in lines) else "nothing"

    await rig.settle(unsaid, within=10)


async def in_force(rig: Rig) -> None:
    """Wait until the admission server has logged the exception of the test."""
    await logged(rig, ADMISSION, "exceptions changed", f"{rig.namespace}/e")


async def ended(rig: Rig, name: str) -> Any:
    """Return the status of the one request for a trigger."""
    (request,) = [item for item in await rig.requests() if item.spec.resource.name == name]
    return request.status


async def test_a_trigger_that_is_excepted_leaves_no_request(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await rig.create(exception(rig, "trigger-1"))
    await in_force(rig)
    await rig.create_all([config_map(place, "trigger-1"), config_map(place, "trigger-2")])
    await rig.finish()
    assert [item.spec.resource.name for item in await rig.requests()] == ["trigger-2"]
    assert await rig.data("target") == {"got": "trigger-2"}


async def test_an_excepted_object_is_stored_unchanged(rig: Rig) -> None:
    place = rig.namespace
    made = rule(place, [], {"data": {"added": "yes"}})
    del made["mutate"]["targets"]
    await rig.apply(made)
    await rig.create(exception(rig, "trigger-1"))
    await in_force(rig)
    await rig.create_all([config_map(place, "trigger-1"), config_map(place, "trigger-2")])
    assert await rig.data("trigger-1") == {}
    assert await rig.data("trigger-2") == {"added": "yes"}


async def test_an_exception_ends_when_it_is_deleted(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await rig.create(exception(rig, "trigger-*"))
    await in_force(rig)
    await rig.create(config_map(place, "trigger-1"))
    await rig.delete("PolicyException", "e")

    async def forgotten() -> str:
        changes = [line for line in rig.log(ADMISSION) if line.get("key") == f"{place}/e"]
        return "" if len(changes) == 2 else "the exception is still known"

    await rig.settle(forgotten, within=10)
    await rig.create(config_map(place, "trigger-2"))
    await rig.applied({"target": {"got": "trigger-2"}}, within=15)
    assert len(await rig.requests()) == 1


async def test_a_request_that_waits_is_skipped_by_a_new_exception(rig: Rig) -> None:
    """A new exception wakes a request that is parked for a missing right."""
    place = rig.namespace
    async with rig.granted("secrets"):
        await rig.apply(rule(place, [target(place, "hidden", "Secret")], {"data": {"a": "Yg=="}}))
    await rig.create(config_map(place, "trigger-1"))
    await rig.parked("Forbidden")
    await rig.create(exception(rig, "trigger-1"))
    await rig.finish()
    status = await ended(rig, "trigger-1")
    assert (status.state, status.reason) == (State.SKIP, "Excepted")
    assert status.message == f"rule is skipped due to policy exceptions {place}/e"


async def test_a_target_that_is_excepted_is_skipped(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all([config_map(place, f"member-{n}") for n in range(2)])
    await rig.apply(rule(place, [target(place, "member-*")], GOT))
    await rig.create(exception(rig, "member-0"))
    await in_force(rig)
    await rig.create(config_map(place, "trigger-1"))
    await rig.finish()
    status = await ended(rig, "trigger-1")
    assert status.state is State.COMPLETED
    found = {item.ref.name: (item.outcome, item.message) for item in status.targets}
    text = f"rule is skipped due to policy exceptions {place}/e"
    assert found == {
        "member-0": (Outcome.SKIPPED, text),
        "member-1": (Outcome.PATCHED, ""),
    }
    assert await rig.data("member-0") == {}


async def test_a_target_is_changed_where_only_triggers_are_excepted(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "member-0"))
    await rig.apply(rule(place, [target(place, "member-*")], GOT))
    await rig.create(exception(rig, "*", annotation="triggers", match=of_members(rig)))
    await in_force(rig)
    await rig.create(config_map(place, "trigger-1"))
    await rig.applied({"member-0": {"got": "trigger-1"}}, within=15)


async def test_a_changed_policy_skips_triggers_that_are_excepted(rig: Rig) -> None:
    place = rig.namespace
    seen = {"data": {"{{ request.object.metadata.name }}": "seen"}}
    await rig.create_all(
        [config_map(place, name) for name in ("target", "trigger-1", "trigger-2")]
    )
    await rig.create(exception(rig, "trigger-1"))
    await in_force(rig)
    await rig.apply(
        rule(place, [target(place, "target")], seen), mutateExistingOnPolicyUpdate=True
    )
    await rig.applied({"target": {"trigger-2": "seen"}}, within=15)
    await rig.finish()
    assert await rig.data("target") == {"trigger-2": "seen"}


async def test_an_exception_without_background_applies_at_admission_but_not_to_sweeps(
    rig: Rig,
) -> None:
    place = rig.namespace
    seen = {"data": {"{{ request.object.metadata.name }}": "seen"}}
    await rig.create_all([config_map(place, name) for name in ("target", "trigger-1")])
    await rig.create(exception(rig, "trigger-*", background=False))
    await in_force(rig)
    await rig.apply(
        rule(place, [target(place, "target")], seen), mutateExistingOnPolicyUpdate=True
    )
    await rig.applied({"target": {"trigger-1": "seen"}}, within=15)
    await rig.create(config_map(place, "trigger-2"))
    await rig.finish()
    assert await rig.data("target") == {"trigger-1": "seen"}
    assert [item.spec.sweep for item in await rig.requests()] == [True]


async def test_an_exception_of_another_namespace_is_stored_with_a_warning_and_ignored(
    rig: Rig,
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    foreign = json.dumps(exception(rig, "trigger-1", namespace="default"))
    apply = ("apply", "-f", "-", "--warnings-as-errors")
    try:
        with pytest.raises(ClusterError, match="1 warning received") as caught:
            await asyncio.to_thread(rig.cluster.kubectl, *apply, stdin=foreign)
        assert "in namespace default is not honoured: --exception-namespace" in str(caught.value)
        await logged(rig, ADMISSION, "exception not honoured", "default/e", SPACES)
        await logged(rig, CONTROLLER, "exception not honoured", "default/e", SPACES)
        await rig.create(config_map(place, "trigger-1"))
        await rig.applied({"target": {"got": "trigger-1"}}, within=15)
    finally:
        await rig.delete("PolicyException", "e", "default")


async def test_an_exception_that_does_not_compile_is_refused_with_its_path(rig: Rig) -> None:
    wrong = exception(rig, "x", conditions={"all": [{"key": "a"}]})
    reported: list[str] = []

    async def unasked() -> str:
        try:
            await rig.create(wrong)
        except Denied as error:
            reported.append(str(error))
            return ""
        await rig.delete("PolicyException", "e")
        return "exceptions are not checked yet"

    await rig.settle(unasked, within=15)
    assert "spec.conditions.all[0]" in reported[0]


async def test_with_apply_rules_one_only_the_first_rule_that_fires_is_applied(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all([config_map(place, "target"), config_map(place, "mode", on="yes")])
    entries = [{"name": "mode", "configMap": {"name": "mode", "namespace": place}}]
    asks = {"all": [{"key": "{{ mode.data.on }}", "operator": "Equals", "value": "yes"}]}
    goal = [target(place, "target")]
    seen = "{{ request.object.metadata.name }}"
    await rig.apply(
        rule(place, goal, {"data": {seen: "a"}}, name="a", names="trigger-a"),
        rule(place, goal, {"data": {seen: "b"}}, name="b", context=entries, preconditions=asks),
        rule(place, goal, {"data": {seen: "c"}}, name="c"),
        applyRules="One",
    )
    await rig.create_all([config_map(place, "trigger-a"), config_map(place, "trigger-b")])
    await rig.finish(3)
    assert await rig.data("target") == {"trigger-a": "a", "trigger-b": "b"}
    found = {
        (item.spec.rule, item.spec.resource.name): item.status.reason
        for item in await rig.requests()
    }
    assert found[("c", "trigger-b")] == "OtherRule"
    assert set(found) == {("a", "trigger-a"), ("b", "trigger-b"), ("c", "trigger-b")}
    await rig.merge("ConfigMap", "mode", {"data": {"on": "no"}})
    await rig.create(config_map(place, "trigger-c"))
    await rig.applied(
        {"target": {"trigger-a": "a", "trigger-b": "b", "trigger-c": "c"}}, within=15
    )
