"""Rules that change their trigger, on existing objects: the annotation and its safeguards."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import ANNOTATION_EXISTING, Kind, Object, TargetKey
from reconciler.api.updaterequest import Reason, Source, UpdateRequest
from reconciler.dialects.registry import compile_exception, compile_policy
from reconciler.engine.program import Phase
from reconciler.errors import Conflict, Denied, Forbidden, Invalid, InvalidPolicy, Unavailable
from reconciler.requests.lifecycle import Defer, Done, Retry
from reconciler.requests.limits import CANARY, PROMOTE, RATE
from reconciler.requests.rebuild import why_not_rebuildable
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.lone_rules import ANYWHERE, LoneRule, LoneRules
from reconciler.services.processing.attempt import Attempt
from tests.unit.services.conftest import Make, World

OFF = {"pod-policies.kyverno.io/autogen-controllers": "none"}
REFUSED = Invalid("spec: Forbidden: pod updates may not change fields", status=422)

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)

Swept = Callable[..., Awaitable[tuple[UpdateRequest, Attempt]]]


def existing(make: type[Make], name: str = "p", **parts: Any) -> Object:
    """A policy whose only rule changes its trigger, with the annotation for existing objects."""
    policy = make.policy(name, **parts)
    del policy["spec"]["rules"][0]["mutate"]["targets"]
    policy["metadata"]["annotations"] = {ANNOTATION_EXISTING: "true", **OFF}
    return policy


@pytest.fixture
def sweep(world: World) -> Swept:
    async def run(policy: Object, **settings: Any) -> tuple[UpdateRequest, Attempt]:
        request = await world.ask(
            policy,
            policy,
            name="sweep-1",
            operation="",
            source=Source.POLICY_CHANGE,
            sweep=True,
        )
        return await replace(world.sweeper, **settings).run(request)

    return run


def objects(world: World, make: type[Make], count: int, **content: Any) -> list[Object]:
    return [
        world.cluster.add(make.object("ConfigMap", f"c{number:03}", **content))
        for number in range(count)
    ]


async def test_each_object_is_changed_without_another_read(world, make, sweep):
    found = objects(world, make, 5)
    _, ended = await sweep(world.install(existing(make)), page=2)
    assert ended.disposition == Done()
    assert (ended.counts.patched, ended.sweep.done) == (5, 5)
    for obj in found:
        assert (await world.read(obj))["metadata"]["labels"] == {"done": "yes"}
    assert world.wire.calls["get"] == 0
    assert world.wire.calls["change"] == 5
    assert set(world.wire.managers) == {"kube-retrofit"}


def lone(policy: Object, **changes: Any) -> LoneRule:
    compiled = compile_policy(policy)
    (program,) = compiled.on_existing
    return replace(LoneRule.of(program.origin, CONFIG_MAPS, ANYWHERE), **changes)


@pytest.mark.parametrize(
    ("changes", "manager"),
    [
        ({}, "kube-retrofit-existing"),
        ({"namespace": "a"}, "kube-retrofit-existing"),
        ({"namespace": "other"}, "kube-retrofit"),
        ({"plural": "secrets"}, "kube-retrofit"),
        # For another generation it is unknown which rules match the same objects.
        ({"generation": 7}, "kube-retrofit"),
    ],
)
async def test_a_lone_rule_writes_with_its_own_field_manager(world, make, sweep, changes, manager):
    (obj,) = objects(world, make, 1)
    policy = world.install(existing(make))
    world.lanes.lone_rules.learn([lone(policy, **changes)])
    await sweep(policy)
    assert (await world.read(obj))["metadata"]["labels"] == {"done": "yes"}
    assert world.wire.managers == [manager]


async def test_a_rule_with_an_account_writes_with_the_common_field_manager(world, make, sweep):
    (obj,) = objects(world, make, 1)
    policy = existing(make)
    policy["metadata"]["annotations"]["kube-retrofit.dev/service-account"] = "bots/bot"
    policy = world.install(policy)
    world.lanes.lone_rules.learn([lone(policy)])
    await sweep(policy)
    assert (await world.read(obj))["metadata"]["labels"] == {"done": "yes"}
    assert world.wire.managers == ["kube-retrofit"]


def test_a_write_of_several_rules_has_the_common_field_manager(make):
    policy, other = existing(make), make.policy("other")
    rules = LoneRules()
    rules.learn([lone(policy)])
    (program,) = compile_policy(policy).on_existing
    (triggered,) = compile_policy(other).programs
    key = TargetKey(kind=CONFIG_MAPS, namespace="a", name="c")
    with rules.writing([program, program], key) as manager:
        assert manager == "kube-retrofit-existing"
    with rules.writing([program, triggered], key) as manager:
        assert manager == "kube-retrofit"


async def test_lone_rules_are_cleared_only_after_their_writes_in_flight(world, make, sweep):
    objects(world, make, 1)
    policy = world.install(existing(make))
    known = lone(policy)
    world.lanes.lone_rules.learn([known])
    sent, answer = asyncio.Event(), asyncio.Event()

    async def wait(_before: Object, _after: Object) -> None:
        sent.set()
        await answer.wait()

    world.wire.before_change = wait
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sweep(policy))
        await sent.wait()
        # With unchanged lone rules there is nothing to wait for.
        await world.lanes.lone_rules.clear([known])
        cleared = tasks.create_task(world.lanes.lone_rules.clear([]))
        await asyncio.sleep(0)
        assert not cleared.done()
        answer.set()
    assert cleared.done()


async def test_an_object_that_changed_since_it_was_listed_is_matched_again(world, make, sweep):
    first, second = objects(world, make, 2, labels={"team": "x"})
    resources = {"selector": {"matchLabels": {"team": "x"}}}
    policy = world.install(existing(make, resources=resources))

    async def left(before: Object, _after: Object) -> None:
        world.wire.before_change = lambda *_: None
        gone = {**before["metadata"], "labels": {"team": "y"}}
        await world.cluster.change(world.kind_of(before), before, {**before, "metadata": gone})
        raise Conflict("changed", status=409)

    world.wire.before_change = left
    _, ended = await sweep(policy)
    assert (ended.counts.patched, ended.counts.skipped) == (1, 1)
    assert (await world.read(first))["metadata"]["labels"] == {"team": "y"}
    assert (await world.read(second))["metadata"]["labels"] == {"team": "x", "done": "yes"}


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        ({"patch": {"data": {"n": "{{ request.object.data.n }}x"}}}, False),
        ({"patch": {"data": {"n": "{{ time_now_utc() }}"}}}, False),
        ({"json": "- {op: add, path: /list/-, value: x}"}, False),
        (
            {
                "json": "- {op: add, path: /list/-, value: x}",
                "preconditions": {
                    "all": [
                        {"key": "x", "operator": "AnyNotIn", "value": "{{ request.object.list }}"}
                    ]
                },
            },
            True,
        ),
        (
            {
                "patch": {"data": {"n": "{{ entry }}x"}},
                "context": [
                    {"name": "entry", "variable": {"value": "{{ request.object.data.n }}"}}
                ],
            },
            False,
        ),
        (
            {
                "json": "- {op: add, path: /list/-, value: x}\n"
                "- {op: remove, path: /metadata/labels/fresh}",
                "resources": {"selector": {"matchLabels": {"fresh": "yes"}}},
            },
            True,
        ),
    ],
    ids=["grows", "time", "append", "guarded append", "entry", "no match any more"],
)
async def test_only_rules_that_converge_change_existing_objects(world, make, sweep, rule, changed):
    content = {"data": {"n": "a"}, "list": ["a"], "labels": {"fresh": "yes"}}
    (obj,) = objects(world, make, 1, **content)
    _, ended = await sweep(world.install(existing(make, **rule)))
    assert ended.disposition == Done()
    assert ended.counts.patched == changed
    assert ended.counts.skipped == (not changed)
    assert world.wire.calls["change"] == changed
    if not changed:
        (target,) = world.swept[0][1].targets
        assert target.message == "applying it again changes the object again"
        assert await world.read(obj) == obj


async def test_a_kind_whose_first_change_is_refused_is_tried_once(world, make, sweep, refuse):
    objects(world, make, 500)
    world.wire.before_change = refuse(REFUSED, lambda _: True)
    request, ended = await sweep(world.install(existing(make)))
    assert isinstance(ended.disposition, Defer)
    assert ended.disposition.reason is Reason.IMMUTABLE
    message = ended.disposition.message
    assert message.startswith("no ConfigMap is changed, because the API server refused the change")
    assert "a/c000" in message
    assert "may not change fields" in message
    assert world.wire.calls["change"] == 1
    waiting = [item.name async for item in world.requests.waiting()]
    assert waiting == ["sweep-1"], "no request of its own for any object"
    assert (ended.counts.failed, ended.sweep.failed) == (0, 0)
    assert request.status.targets == ()


async def test_the_first_accepted_change_lets_the_others_run_in_parallel(
    world, make, sweep, refuse
):
    found = objects(world, make, 30)
    for obj in found[:3]:
        await world.edit(obj, labels={"done": "yes"})
    world.wire.calls.clear()
    bad = {f"c{number:03}" for number in range(10, 30)}
    world.wire.before_change = refuse(REFUSED, lambda obj: obj["metadata"]["name"] in bad)
    _, ended = await sweep(world.install(existing(make)), parallel=4)
    assert ended.disposition.reason is Reason.TOO_MANY_FAILURES
    assert "10 are allowed" in ended.disposition.message
    assert "kube-retrofit.dev/max-failures" in ended.disposition.message
    assert (ended.counts.unchanged, ended.counts.patched, ended.counts.failed) == (3, 7, 10)


async def test_a_sweep_that_goes_on_does_not_take_the_next_object_for_the_first_one(
    world, make, sweep, refuse
):
    found = objects(world, make, 30)
    policy = existing(make)
    policy["metadata"]["annotations"][RATE] = "1/s"
    stored = world.install(policy)
    request, ended = await sweep(stored)
    assert ended.disposition.reason is Reason.RATE_LIMITED
    assert (ended.counts.patched, ended.sweep.done) == (1, 1)
    world.index.apply(await world.edit(stored, annotations={RATE: "9999/s"}))
    world.wire.before_change = refuse(REFUSED, lambda obj: obj["metadata"]["name"] == "c001")
    status = replace(request.status, sweep=ended.sweep, counts=ended.counts)
    _, ended = await world.sweeper.run(replace(request, status=status))
    assert (ended.counts.patched, ended.counts.failed) == (len(found) - 1, 1)


async def test_promoted_canaries_show_that_objects_can_be_changed(world, make, sweep, refuse):
    await world.edit(objects(world, make, 9)[8], labels={"canary": "yes"})
    policy = existing(make)
    policy["metadata"]["annotations"][CANARY] = "canary"
    stored = world.install(policy)
    request, ended = await sweep(stored)
    assert ended.disposition.reason is Reason.CANARY
    world.index.apply(await world.edit(stored, annotations={PROMOTE: "1"}))
    world.wire.before_change = refuse(REFUSED, lambda obj: obj["metadata"]["name"] == "c000")
    status = replace(request.status, sweep=ended.sweep, counts=ended.counts)
    _, ended = await world.sweeper.run(replace(request, status=status))
    assert (ended.counts.patched, ended.counts.failed, ended.sweep.done) == (8, 1, 9)


async def test_a_slow_object_does_not_hold_up_others(world, make, sweep):
    objects(world, make, 30)
    others = asyncio.Event()

    async def changing(before: Object, _after: Object) -> None:
        # The first object goes alone, and after it ten at a time.
        if before["metadata"]["name"] == "c001":
            await others.wait()
        elif world.wire.calls["change"] == 30:
            others.set()

    world.wire.before_change = changing
    async with asyncio.timeout(30):
        _, ended = await sweep(world.install(existing(make)))
    assert (ended.counts.patched, ended.sweep.done) == (30, 30)


async def test_scattered_failures_end_the_sweep_at_the_allowed_number(world, make, sweep, refuse):
    found = objects(world, make, 60)
    bad = {f"c{number:03}" for number in range(3, 60, 4)}
    world.wire.before_change = refuse(REFUSED, lambda obj: obj["metadata"]["name"] in bad)
    _, ended = await sweep(world.install(existing(make)))
    assert ended.disposition.reason is Reason.TOO_MANY_FAILURES
    assert ended.counts.failed == 10
    labels = [(await world.read(obj))["metadata"].get("labels") for obj in found]
    # No object after the cursor was begun, and none before it was left out.
    done = ended.sweep.done
    assert ended.sweep.cursor.endswith(found[done - 1]["metadata"]["name"])
    assert [bool(item) for item in labels] == [
        number < done and obj["metadata"]["name"] not in bad for number, obj in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("error", "reason", "right"),
    [
        (Forbidden("no right", permission="patch configmaps"), "Forbidden", "patch configmaps"),
        (Unavailable("failed calling webhook"), "Failed", ""),
    ],
)
async def test_what_passes_without_a_change_of_the_rule_does_not_end_a_sweep(
    world, make, sweep, refuse, error, reason, right
):
    """It waits, as other requests do, and needs no other number of failures."""
    objects(world, make, 60)
    world.wire.before_change = refuse(error, lambda obj: obj["metadata"]["name"] >= "c020")
    request, ended = await sweep(world.install(existing(make)))
    assert isinstance(ended.disposition, Retry)
    assert (ended.disposition.reason, ended.disposition.missing_permission) == (reason, right)
    assert (ended.counts.patched, ended.counts.failed, ended.sweep.failed) == (20, 0, 0)
    assert [item.name async for item in world.requests.waiting()] == ["sweep-1"]
    world.wire.before_change = refuse(error, lambda _: False)
    stored = replace(request.status, sweep=ended.sweep, counts=ended.counts)
    _, ended = await world.sweeper.run(replace(request, status=stored))
    assert ended.disposition == Done()
    assert (ended.counts.patched, ended.sweep.done) == (60, 60)


async def test_a_chunk_whose_failures_cannot_be_recorded_counts_once(
    world, make, sweep, refuse, monkeypatch
):
    objects(world, make, 9)
    world.wire.before_change = refuse(REFUSED, lambda obj: obj["metadata"]["name"] == "c005")
    policy, create, names = world.install(existing(make)), world.requests.create, list[str]()

    async def quota(name: str, *rest: Any) -> str:
        names.append(name)
        if 1 < len(names) < 4:
            raise Denied("exceeded quota", status=403)
        version: str = await create(name, *rest)
        return version

    monkeypatch.setattr(world.requests, "create", quota)
    request, ended = await sweep(policy)
    while ended.disposition != Done(message="1 of 9 triggers continue as separate requests"):
        assert isinstance(ended.disposition, Retry)
        stored = replace(request.status, sweep=ended.sweep, counts=ended.counts)
        request, ended = await world.sweeper.run(replace(request, status=stored))
    assert len(names) == 4
    assert (ended.counts.failed, ended.counts.matched, ended.sweep.done) == (1, 9, 9)


async def test_objects_that_lack_a_right_of_their_own_do_not_hold_up_a_sweep(
    world, make, sweep, refuse
):
    objects(world, make, 60)
    right = Forbidden("no right", permission="patch configmaps in namespace a")
    world.wire.before_change = refuse(right, lambda obj: obj["metadata"]["name"] < "c005")
    _, ended = await sweep(world.install(existing(make)))
    assert (ended.counts.patched, ended.sweep.failed, ended.sweep.done) == (55, 5, 60)


async def test_the_labels_of_a_namespace_are_read_once_for_many_objects(world, make, sweep):
    world.cluster.add(make.object("Namespace", "a", "", labels={"env": "prod"}))
    objects(world, make, 30)
    resources = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    _, ended = await sweep(world.install(existing(make, resources=resources)))
    assert ended.counts.patched == 30
    # Once for the object that goes alone, and once for the others.
    assert world.wire.calls["get Namespace a"] == 2


async def test_an_annotation_sets_the_allowed_number_of_failures(world, make, sweep, refuse):
    objects(world, make, 30)
    bad = {f"c{number:03}" for number in range(10, 30)}
    world.wire.before_change = refuse(REFUSED, lambda obj: obj["metadata"]["name"] in bad)
    policy = existing(make)
    policy["metadata"]["annotations"]["kube-retrofit.dev/max-failures"] = "100"
    _, ended = await sweep(world.install(policy))
    assert (ended.counts.patched, ended.counts.failed) == (10, 20)


async def test_finalizers_are_guarded_against_changes(world, make, sweep):
    objects(world, make, 1)
    patch = {"metadata": {"finalizers": ["example.com/x"]}}
    await sweep(world.install(existing(make, patch=patch)))
    (target,) = world.swept[0][1].targets
    assert "metadata.finalizers" in target.message


async def test_objects_in_kube_system_are_not_changed(world, make, sweep):
    objects(world, make, 1, namespace="kube-system")
    _, ended = await sweep(world.install(existing(make)))
    assert world.wire.calls["change"] == 0
    assert ended.disposition == Done()


async def test_an_exception_excludes_an_object_from_the_sweep(world, make, sweep):
    first, second = objects(world, make, 2)
    match = {"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["c000"]}}]}
    exception = compile_exception(
        {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "a"},
            "spec": {"exceptions": [{"policyName": "p", "ruleNames": ["r"]}], "match": match},
        }
    )
    honouring = replace(world.processor, exceptions=ExceptionIndex.holding([exception]))
    _, ended = await sweep(world.install(existing(make)), processor=honouring)
    assert ended.counts.patched == 1
    assert "labels" not in (await world.read(first))["metadata"]
    assert (await world.read(second))["metadata"]["labels"] == {"done": "yes"}


async def test_without_the_annotation_nothing_runs(world, make, sweep):
    objects(world, make, 1)
    policy = existing(make)
    del policy["metadata"]["annotations"][ANNOTATION_EXISTING]
    _, ended = await sweep(world.install(policy))
    assert ended.disposition.reason is Reason.RULE_GONE
    assert world.wire.calls["change"] == 0


def test_a_new_annotation_recompiles_the_policy_without_a_new_generation(world, make):
    policy = existing(make)
    plain = {**policy, "metadata": {"name": "p", "annotations": OFF}}
    stored = world.install(plain)
    assert world.index.policies()[0].on_existing == ()
    digest = world.index.digest
    meta = {**stored["metadata"], "annotations": policy["metadata"]["annotations"]}
    world.index.apply({**stored, "metadata": {**meta, "resourceVersion": "100"}})
    (compiled,) = world.index.policies()
    (program,) = compiled.on_existing
    assert (program.rule, program.phases) == ("r", {Phase.EXISTING})
    assert compiled.background_program("r") is program
    assert world.index.digest != digest
    assert not why_not_rebuildable(program)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"patch": {"data": {"by": "{{ request.userInfo.username }}"}}}, "who sends a request"),
        ({"patch": {"data": {"by": "{{ serviceAccountName }}"}}}, "who sends a request"),
    ],
)
def test_a_rule_that_needs_a_user_cannot_run_on_existing_objects(make, rule, reason):
    with pytest.raises(InvalidPolicy, match=reason) as refused:
        compile_policy(existing(make, **rule, spec={"background": False}))
    assert refused.value.location == f"metadata.annotations[{ANNOTATION_EXISTING}]"


def test_a_policy_with_match_conditions_cannot_run_on_existing_objects(make):
    conditions = [{"name": "x", "expression": "object.metadata.name == 'x'"}]
    policy = existing(make, spec={"webhookConfiguration": {"matchConditions": conditions}})
    with pytest.raises(InvalidPolicy, match="only the API server evaluates matchConditions"):
        compile_policy(policy)


@pytest.mark.parametrize("value", ["yes", "", "True"])
def test_the_annotation_must_be_true_or_false(make, value):
    policy = existing(make)
    policy["metadata"]["annotations"][ANNOTATION_EXISTING] = value
    with pytest.raises(InvalidPolicy, match="neither true nor false"):
        compile_policy(policy)


def test_the_annotation_does_not_apply_to_rules_with_targets(make):
    policy = make.policy()
    policy["metadata"]["annotations"] = {ANNOTATION_EXISTING: "true"}
    assert compile_policy(policy).on_existing == ()


async def test_apply_rules_one_runs_only_the_first_rule_on_existing_objects(world, make, sweep):
    (obj,) = objects(world, make, 1)
    policy = existing(make)
    second = {
        **policy["spec"]["rules"][0],
        "name": "second",
        "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"second": "yes"}}}},
    }
    policy["spec"] |= {"applyRules": "One", "rules": [policy["spec"]["rules"][0], second]}
    policy = world.install(policy)
    facts = {"source": Source.POLICY_CHANGE, "sweep": True}
    request = await world.ask(policy, policy, rule="second", operation="", **facts)
    _, ended = await world.sweeper.run(request)
    assert world.wire.calls["change"] == 0
    assert ended.disposition == Done()
    assert (await world.read(obj))["metadata"].get("labels") is None
