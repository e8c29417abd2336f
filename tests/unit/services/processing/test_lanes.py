import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ANNOTATION_APPLIED, Kind, Object, TargetKey
from reconciler.api.updaterequest import Outcome
from reconciler.engine.context import request_context
from reconciler.engine.match import Subject
from reconciler.engine.program import Program
from reconciler.engine.run import RuleRun
from reconciler.errors import (
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    NoKindMatch,
    Throttled,
    Unavailable,
)
from reconciler.requests.redaction import WITHHELD, withheld
from reconciler.services.processing.lanes import MAX_TOGETHER, Job
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.results import failure
from tests.unit.services.conftest import Make, World

APPEND = '- {op: add, path: /spec/list/-, value: "{{ request.object.data.v }}"}'
LABEL = {"metadata": {"labels": {"{{ request.object.data.k }}": "{{ request.object.data.v }}"}}}


@pytest.fixture
def secrets(world: World) -> Kind:
    kind = world.cluster.exact("v1", "Secret")
    assert kind is not None
    return kind


@pytest.fixture
def job(world: World, make: type[Make]) -> Callable[..., Job]:
    """Return a function that builds a job of a rule, with data for its trigger."""

    def build(program, data=None, *, name="ur", created=0, listed=None, tenant=""):
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
        subject = Subject(obj=trigger, group="", version="v1", kind="ConfigMap")
        run = RuleRun.of(program, subject, context)
        return Job(
            request=name,
            created=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=created),
            run=run,
            query=run.queries()[0][0],
            loads=Loads(world.loader),
            listed=listed,
            tenant=tenant,
        )

    return build


@pytest.fixture
def rule(world: World, make: type[Make]) -> Callable[..., Program]:
    def build(**facts):
        stored = world.install(make.policy(**facts))
        return world.index.get(policy_named(stored["metadata"]["name"])).programs[0]

    return build


@pytest.fixture
def submit(world: World, secrets: Kind) -> Callable[..., Awaitable[list[Any]]]:
    async def run(*jobs, name="s"):
        key = TargetKey(kind=secrets, namespace="a", name=name)
        return await asyncio.gather(*(world.lanes.submit(key, job) for job in jobs))

    return run


@pytest.fixture
def target(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object("Secret", "s", spec={"list": []}))


async def test_many_requests_for_one_target_are_combined_into_few_writes(
    world, rule, job, submit, target
):
    program = rule(patch=LABEL)
    jobs = [job(program, {"k": f"k{n}", "v": "x"}, name=f"ur-{n}") for n in range(200)]
    results = await submit(*jobs)
    assert {result.outcome for result in results} == {Outcome.PATCHED}
    stored = await world.read(target)
    assert set(stored["metadata"]["labels"]) == {f"k{n}" for n in range(200)}
    assert world.wire.calls["change"] == 200 / MAX_TOGETHER
    assert world.lanes.shared == 200 - 200 / MAX_TOGETHER


async def test_the_oldest_request_is_applied_first_and_names_decide_between_equals(
    world, rule, job, submit, target
):
    program = rule(json=APPEND)
    facts = [("b", 5), ("a", 5), ("z", 1), ("c", 9)]
    await submit(*(job(program, {"v": n}, name=n, created=at) for n, at in facts))
    assert (await world.read(target))["spec"]["list"] == ["z", "a", "b", "c"]


async def test_each_request_gets_a_result_of_its_own(world, rule, job, submit, target):
    setter = rule(patch=LABEL)
    picky = rule(
        name="picky",
        targets=[
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "name": "s",
                "namespace": "a",
                "preconditions": {
                    "all": [{"key": "{{ target.kind }}", "operator": "Equals", "value": "Pod"}]
                },
            }
        ],
    )
    broken = rule(name="broken", patch={"metadata": {"labels": {"x": "{{ request.nothing }}"}}})
    results = await submit(
        job(setter, {"k": "a", "v": "1"}, name="1"),
        job(picky, name="2"),
        job(broken, name="3"),
        job(setter, {"k": "a", "v": "1"}, name="4"),
    )
    assert [result.outcome for result in results] == [
        Outcome.PATCHED,
        Outcome.SKIPPED,
        Outcome.FAILED,
        Outcome.UNCHANGED,
    ]
    assert results[1].message == "preconditions not met"
    assert "request.nothing" in results[2].message
    assert not results[2].retryable
    assert (await world.read(target))["metadata"]["labels"] == {"a": "1"}
    assert results[0].version_before == target["metadata"]["resourceVersion"]
    assert results[0].version_after == (await world.read(target))["metadata"]["resourceVersion"]


async def test_a_change_that_is_already_made_costs_no_write(world, rule, job, submit, make):
    world.cluster.add(make.object("Secret", "s", labels={"a": "1"}))
    (result,) = await submit(job(rule(patch=LABEL), {"k": "a", "v": "1"}))
    assert result.outcome is Outcome.UNCHANGED
    assert world.wire.calls["change"] == 0


async def test_a_change_that_the_api_server_does_not_store_is_not_called_one(
    world, rule, job, make
):
    deployment = make.object("Deployment", "d", api_version="apps/v1")
    world.cluster.add(deployment)
    # Only its subresource changes the status; a webhook may take back any other change as well.
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "namespace": "a"}
    program = rule(targets=[target], patch={"status": {"replicas": 7}})
    key = TargetKey(kind=world.kind_of(deployment), namespace="a", name="d")
    result = await world.lanes.submit(key, job(program))
    assert world.wire.calls["change"] == 1
    assert (result.outcome, result.version_after) == (Outcome.UNCHANGED, "")
    assert "the API server stored nothing of it" in result.message


async def test_true_in_place_of_one_is_a_change(world, rule, job, make):
    world.cluster.add({**make.object("ConfigMap", "s"), "data": {"on": 1}})
    target = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "s"}
    program = rule(targets=[target], patch={"data": {"on": True}})
    key = TargetKey(kind=world.cluster.exact("v1", "ConfigMap"), namespace="a", name="s")
    result = await world.lanes.submit(key, job(program))
    assert (world.wire.calls["change"], result.outcome) == (1, Outcome.PATCHED)


async def test_changes_that_cancel_out_are_not_written(world, rule, job, submit, make):
    world.cluster.add(make.object("Secret", "s", labels={"a": "1"}))
    program = rule(patch=LABEL)
    there, back = (
        job(program, {"k": "a", "v": "2"}, name="1"),
        job(program, {"k": "a", "v": "1"}, name="2"),
    )
    results = await submit(there, back)
    assert [result.outcome for result in results] == [Outcome.UNCHANGED] * 2
    assert world.wire.calls["change"] == 0


async def test_after_a_conflict_the_rule_is_evaluated_on_the_current_object(
    world, rule, job, submit, target
):
    async def interfere(_before, _after):
        world.wire.before_change = lambda *_: None
        await world.edit(target, spec={"list": ["theirs"]})

    world.wire.before_change = interfere
    (result,) = await submit(job(rule(json=APPEND), {"v": "ours"}))
    assert result.outcome is Outcome.PATCHED
    assert (await world.read(target))["spec"]["list"] == ["theirs", "ours"]
    assert world.wire.calls["change"] == 2


async def test_an_object_that_always_conflicts_is_tried_again_later(
    world, rule, job, submit, target
):
    def always(_before, _after):
        raise Conflict("modified", status=409)

    world.wire.before_change = always
    (result,) = await submit(job(rule(patch=LABEL), {"k": "a", "v": "1"}))
    assert (result.outcome, result.retryable) == (Outcome.CONFLICT, True)
    assert world.wire.calls["change"] == world.lanes.rounds


@pytest.mark.parametrize(
    ("error", "outcome", "again"),
    [
        (Invalid("spec.bad: no such field", status=422), Outcome.INVALID, False),
        (Denied("a webhook said no", status=403), Outcome.DENIED, True),
        (Forbidden("no", permission="patch secrets in namespace a"), Outcome.FORBIDDEN, True),
    ],
)
async def test_a_refusal_affects_only_the_request_that_causes_it(
    world, rule, job, submit, target, refuse, error, outcome, again
):
    world.wire.before_change = refuse(error, lambda obj: "bad" in obj["metadata"]["labels"])
    program = rule(patch=LABEL)
    jobs = [job(program, {"k": k, "v": "1"}, name=k) for k in ("a", "bad", "c")]
    first, second, third = await submit(*jobs)
    assert (first.outcome, third.outcome) == (Outcome.PATCHED, Outcome.PATCHED)
    assert (second.outcome, second.retryable) == (outcome, again)
    # The target is a Secret, and the refusal of its content may quote it.
    quoting = not isinstance(error, Forbidden)
    assert second.message == (withheld(error.kind_of_failure) if quoting else str(error))
    assert second.permission == getattr(error, "permission", "")
    assert (await world.read(target))["metadata"]["labels"] == {"a": "1", "c": "1"}


async def test_an_object_that_lost_the_labels_of_its_selector_is_skipped(
    world, rule, job, submit, target
):
    chosen = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}
    selector = {"matchLabels": {"chosen": "yes"}}
    program = rule(targets=[{**chosen, "selector": selector}], patch=LABEL)
    (result,) = await submit(job(program, {"k": "a", "v": "1"}))
    assert (result.outcome, result.message) == (
        Outcome.SKIPPED,
        "the object does not match the target's selector",
    )
    await world.edit(target, labels={"chosen": "yes"})
    (result,) = await submit(job(program, {"k": "a", "v": "1"}))
    assert result.outcome is Outcome.PATCHED
    assert (await world.read(target))["metadata"]["labels"] == {"chosen": "yes", "a": "1"}


async def test_a_result_does_not_quote_what_another_request_of_the_batch_read(
    world, rule, job, make
):
    configs = world.cluster.exact("v1", "ConfigMap")
    world.cluster.add(make.object("ConfigMap", "s"))
    target = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "s"}
    writes = rule(name="writes", targets=[target], patch=LABEL)
    patch = {"data": {"n": "{{ parse_yaml(target.metadata.labels.k) }}"}}
    quotes = rule(name="quotes", targets=[target], patch=patch)
    reads_secret = job(writes, {"k": "k", "v": "{hunter2"}, name="ur-1")
    reads_secret.loads.confidential = True
    plain = job(quotes, name="ur-2", created=1)
    key = TargetKey(kind=configs, namespace="a", name="s")
    submitted = (world.lanes.submit(key, item) for item in (reads_secret, plain))
    first, second = await asyncio.gather(*submitted)
    assert (first.outcome, second.outcome) == (Outcome.PATCHED, Outcome.FAILED)
    assert second.message.endswith(f"({WITHHELD})")
    assert "hunter2" not in second.message


async def test_an_absent_object_is_read_a_few_times(world, rule, job, submit):
    (result,) = await submit(job(rule(patch=LABEL), {"k": "a", "v": "1"}))
    assert (result.outcome, result.retryable) == (Outcome.NOT_FOUND, False)
    assert world.wire.calls["get"] == 1 + len(world.lanes.missing_pauses)


async def test_an_absent_object_is_reported_as_not_found_with_a_single_round(
    world, rule, job, submit
):
    world.lanes.rounds = 1
    (result,) = await submit(job(rule(patch=LABEL), {"k": "a", "v": "1"}))
    assert result.outcome is Outcome.NOT_FOUND


async def test_an_object_that_is_created_late_is_found(world, rule, job, submit, make):
    def appear(_verb, _kind):
        if world.wire.calls["get"] == 2:
            world.cluster.add(make.object("Secret", "s"))

    world.wire.before_read = appear
    (result,) = await submit(job(rule(patch=LABEL), {"k": "a", "v": "1"}))
    assert result.outcome is Outcome.PATCHED


async def test_an_internal_error_affects_only_the_request_that_causes_it(
    world, rule, job, submit, target
):
    program = rule(patch=LABEL)
    poison = replace(job(program, {"k": "b", "v": "1"}, name="b"), query=None)
    good = job(program, {"k": "a", "v": "1"}, name="a")
    key = TargetKey(kind=world.cluster.exact("v1", "Secret"), namespace="a", name="s")
    results = await asyncio.gather(
        world.lanes.submit(key, good), world.lanes.submit(key, poison), return_exceptions=True
    )
    assert results[0].outcome is Outcome.PATCHED
    assert isinstance(results[1], AttributeError)


class TestMarker:
    """Rules that do not converge record the names of their requests on the object."""

    @staticmethod
    def applied(obj):
        return obj["metadata"].get("annotations", {}).get(ANNOTATION_APPLIED)

    async def test_the_marker_names_the_requests_whose_status_is_not_stored_yet(
        self, world, rule, job, submit, target
    ):
        program = rule(json=APPEND)
        await submit(*(job(program, {"v": n}, name=n) for n in ("ur-1", "ur-2")))
        assert self.applied(await world.read(target)) == "ur-1,ur-2"

    async def test_a_request_that_the_marker_names_is_not_repeated(
        self, world, rule, job, submit, target
    ):
        program = rule(json=APPEND)
        await submit(job(program, {"v": "x"}, name="ur-1"))
        world.restart()
        again, other = await submit(
            job(program, {"v": "x"}, name="ur-1"), job(program, {"v": "y"}, name="ur-2")
        )
        assert again.outcome is Outcome.UNCHANGED
        assert again.message == "applied before a restart"
        assert other.outcome is Outcome.PATCHED
        assert (await world.read(target))["spec"]["list"] == ["x", "y"]

    async def test_names_of_finished_requests_are_removed_with_the_next_write(
        self, world, rule, job, submit, target
    ):
        program = rule(json=APPEND)
        await submit(*(job(program, {"v": n}, name=n) for n in ("ur-1", "ur-2")))
        world.lanes.unfinished = {"ur-2"}.__contains__
        await submit(job(program, {"v": "z"}, name="ur-3"))
        assert self.applied(await world.read(target)) == "ur-2,ur-3"

    async def test_the_names_do_not_outgrow_what_the_api_server_accepts(
        self, world, rule, job, submit, target
    ):
        program = rule(json=APPEND)
        waiting = [f"sweep-{number:032}/{number:036}" for number in range(4_000)]
        marks = {ANNOTATION_APPLIED: ",".join(waiting)}
        await world.edit(target, annotations=marks)
        await submit(job(program, {"v": "x"}, name="ur-1"))
        applied = self.applied(await world.read(target))
        assert len(applied) < 128 * 1024
        assert applied.endswith(f"{waiting[-1]},ur-1")
        assert applied.count(",") > 1_000

    async def test_converging_rules_leave_no_marker(self, world, rule, job, submit, target):
        index = rule(name="index", json="- {op: replace, path: /spec/list, value: [a]}")
        probed = rule(name="probed", json="- {op: add, path: /spec/list/0, value: a}")
        await submit(job(rule(patch=LABEL), {"k": "a", "v": "1"}), job(index))
        assert self.applied(await world.read(target)) is None
        await submit(job(probed))
        assert self.applied(await world.read(target)) == "ur"

    async def test_subresources_carry_no_marker(self, world, rule, job, make):
        world.cluster.add(make.object("Pod", "s", status={"list": []}))
        status = replace(world.cluster.exact("v1", "Pod"), subresource="status")
        target = {"apiVersion": "v1", "kind": "Pod/status", "namespace": "a", "name": "s"}
        program = rule(targets=[target], json="- {op: add, path: /status/list/-, value: x}")
        key = TargetKey(kind=status, namespace="a", name="s")
        result = await world.lanes.submit(key, job(program))
        assert result.outcome is Outcome.PATCHED
        stored = await world.cluster.get(status, "a", "s")
        assert stored["status"]["list"] == ["x"]
        assert self.applied(stored) is None


async def test_a_listed_object_is_used_only_by_the_request_that_listed_it(
    world, rule, job, submit, target
):
    program = rule(patch=LABEL)
    listed = await world.edit(target, labels={"a": "1"})
    await world.edit(target, labels={"a": "2"})
    # By the list of the older request, there is nothing left to do for either.
    older = job(program, {"k": "a", "v": "1"}, name="older", listed=listed)
    about_change = job(program, {"k": "a", "v": "1"}, name="newer", created=5)
    await submit(older, about_change)
    assert (await world.read(target))["metadata"]["labels"] == {"a": "1"}


async def test_a_single_listed_object_is_not_read_again(world, rule, job, submit, target):
    (result,) = await submit(job(rule(patch=LABEL), {"k": "a", "v": "1"}, listed=target))
    assert result.outcome is Outcome.PATCHED
    assert world.wire.calls["get"] == 0


@pytest.mark.parametrize(("tenants", "expected"), [(20, 7), (1, 5)])
async def test_different_targets_are_processed_in_parallel_within_limits(
    world, rule, job, make, secrets, tenants, expected
):
    program = rule(patch=LABEL, targets=[make.target("*")])
    inside, most = 0, 0

    async def get(_kind, _namespace, name):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(5):
            await asyncio.sleep(0)
        inside -= 1
        return make.object("Secret", name)

    for n in range(20):
        world.cluster.add(make.object("Secret", f"s{n}"))
    world.wire.get = get
    world.lanes.parallel = 7
    world.lanes.__post_init__()
    keys = [TargetKey(kind=secrets, namespace="a", name=f"s{n}") for n in range(20)]
    await asyncio.gather(
        *(
            world.lanes.submit(
                key, job(program, {"k": "a", "v": "1"}, tenant=f"t{number % tenants}")
            )
            for number, key in enumerate(keys)
        ),
        return_exceptions=True,
    )
    assert most == expected


async def test_a_cancelled_job_is_not_done(world, rule, job, secrets, target):
    program = rule(patch=LABEL)
    key = TargetKey(kind=secrets, namespace="a", name="s")
    waiting = asyncio.create_task(world.lanes.submit(key, job(program, {"k": "a", "v": "1"})))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    other = await world.lanes.submit(key, job(program, {"k": "b", "v": "1"}, name="other"))
    assert other.outcome is Outcome.PATCHED
    assert (await world.read(target))["metadata"]["labels"] == {"b": "1"}


@pytest.mark.parametrize(
    ("error", "outcome", "again", "after"),
    [
        (Throttled("slow down", retry_after=7.0), Outcome.FAILED, True, 7.0),
        (Throttled("slow down"), Outcome.FAILED, True, 0.0),
        (Unavailable("no answer"), Outcome.FAILED, True, 0.0),
        (NoKindMatch("not served", status=404), Outcome.NOT_FOUND, True, 30.0),
    ],
)
def test_a_transient_error_is_tried_again(error, outcome, again, after):
    result = failure(error)
    assert (result.outcome, result.retryable, result.retry_after) == (outcome, again, after)
    assert result.message == str(error)
