"""The effect of a policy's limits on its requests and sweeps, on the in-memory cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Object
from reconciler.api.updaterequest import Source, State, UpdateRequest
from reconciler.errors import Invalid, Unavailable
from reconciler.memory.kinds import REQUESTS
from reconciler.requests.lifecycle import Defer, Done
from tests.holding import holds
from tests.unit.services.conftest import START, Make, World

EACH = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "namespace": "{{ request.object.metadata.namespace }}",
    "name": "{{ request.object.metadata.name }}",
}


@pytest.fixture
def policy(world: World, make: type[Make]) -> Object:
    """A policy whose triggers are their own targets."""
    return world.install(make.policy(targets=[EACH], on_change=True))


@pytest.fixture
def limit(world: World, policy: Object) -> Callable[..., Awaitable[None]]:
    """Return a function that annotates the policy; None removes an annotation."""

    async def run(**values):
        stored = await world.read(policy)
        prefix = "kube-retrofit.dev/"
        marks = {prefix + name.replace("_", "-"): value for name, value in values.items()}
        meta = dict(stored["metadata"])
        merged = {**meta.get("annotations", {}), **marks}
        meta["annotations"] = {key: value for key, value in merged.items() if value is not None}
        kind = world.cluster.exact("kyverno.io/v1", "ClusterPolicy")
        stored = await world.cluster.change(kind, stored, {**stored, "metadata": meta})
        world.index.apply(stored)
        world.dispatcher.wake(policy_named("p"))

    return run


@pytest.fixture
def triggers(world: World, make: type[Make]) -> Callable[..., list[Object]]:
    def create(*names, **labels):
        return [world.cluster.add(make.object("ConfigMap", name, labels=labels)) for name in names]

    return create


@pytest.fixture
def sweep(world: World, policy: Object) -> Callable[..., Awaitable[UpdateRequest]]:
    async def run():
        facts = {"source": Source.POLICY_CHANGE, "sweep": True}
        return await world.ask(policy, policy, name="sweep-1", operation="", **facts)

    return run


async def done(world):
    kind = world.cluster.exact("v1", "ConfigMap")
    page = await world.cluster.list_page(kind, labels="done=yes")
    return {obj["metadata"]["name"] for obj in page.items}


class TestRequests:
    async def test_a_paused_request_waits_reports_the_reason_and_continues(
        self, world, policy, limit, triggers
    ):
        (trigger,) = triggers("a")
        await limit(paused="true")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        status = await world.status()
        assert (status.state, status.reason, status.attempts) == (State.PENDING, "Paused", 0)
        assert status.next_attempt is None
        assert world.wire.calls["get"] == 0
        world.clock.tick(3600)
        await world.settle()
        assert await world.status() == status
        await limit(paused=None)
        await world.settle()
        assert (await world.status()).state is State.COMPLETED

    async def test_a_request_continues_if_the_pause_ends_while_its_status_is_written(
        self, world, policy, limit, triggers
    ):
        (trigger,) = triggers("a")
        await limit(paused="true")
        write = world.requests.write_status

        async def resume(request, status):
            world.requests.write_status = write
            await limit(paused=None)
            return await write(request, status)

        world.requests.write_status = resume
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        assert (await world.status()).state is State.COMPLETED

    async def test_a_pause_is_kept_over_a_restart(self, world, policy, limit, triggers):
        (trigger,) = triggers("a")
        await limit(paused="true")
        await world.ask(policy, trigger)
        world.restart()  # the policy store is empty until a policy is needed
        await world.dispatcher.resync()
        await world.settle()
        assert (await world.status()).reason == "Paused"
        assert await done(world) == set()

    async def test_a_request_outside_the_window_waits_for_it(self, world, policy, limit, triggers):
        (trigger,) = triggers("a")
        await limit(window="13:00-14:00")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        status = await world.status()
        assert status.reason == "OutsideWindow"
        assert status.next_attempt == START + timedelta(hours=1)
        world.clock.tick(3600)
        await world.settle()
        assert (await world.status()).state is State.COMPLETED

    async def test_a_rate_spreads_triggers(self, world, policy, limit, triggers):
        await limit(rate="6/m")
        for number, trigger in enumerate(triggers("a", "b", "c")):
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=f"ur-{number}"))
        await world.settle()
        assert len(await done(world)) == 1
        (planned, last) = sorted(
            [
                status.next_attempt
                for status in [await world.status(f"ur-{number}") for number in range(3)]
                if status.reason == "RateLimited"
            ]
        )
        assert (planned, last) == (START + timedelta(seconds=10), START + timedelta(seconds=20))
        world.clock.tick(10)
        await world.settle()
        assert len(await done(world)) == 2
        await limit(rate=None)
        await world.settle()
        assert len(await done(world)) == 3

    async def test_the_turns_of_deleted_requests_are_used_by_those_that_wait_behind_them(
        self, world, policy, limit, triggers
    ):
        await limit(rate="6/m")
        for name, trigger in zip("abcd", triggers(*"abcd"), strict=True):
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
        await world.settle()
        for name in "bc":
            world.cluster.delete(REQUESTS, "kyverno", name)
        await world.dispatcher.resync()
        world.clock.tick(9)
        await world.settle()
        assert await done(world) == {"a"}
        world.clock.tick(1)
        await world.settle()
        assert await done(world) == {"a", "d"}

    async def test_a_new_trigger_does_not_wait_for_turns_that_nobody_needs(
        self, world, policy, limit, triggers
    ):
        await limit(rate="6/m")
        for name, trigger in zip("abc", triggers(*"abc"), strict=True):
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
        await world.settle()
        for name in "bc":
            world.cluster.delete(REQUESTS, "kyverno", name)
        await world.dispatcher.resync()
        (trigger,) = triggers("d")
        world.dispatcher.on_stored(await world.ask(policy, trigger, name="d"))
        await world.settle()
        assert (await world.status("d")).next_attempt == START + timedelta(seconds=10)

    async def test_a_turn_is_not_given_back_once_it_is_used(self, world, policy, limit, triggers):
        await limit(rate="6/m")
        for name, trigger in zip("ab", triggers(*"ab"), strict=True):
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
        await world.settle()
        await world.dispatcher.resync()
        await world.settle()
        assert len(await done(world)) == 1
        world.clock.tick(10)
        await world.settle()
        assert len(await done(world)) == 2

    @pytest.mark.parametrize(
        ("closing", "reopening"),
        [({"paused": "true"}, {"paused": None}), ({"window": "13:00-14:00"}, {})],
        ids=["a pause", "a window"],
    )
    async def test_the_rate_holds_when_work_begins_again(
        self, world, policy, limit, triggers, closing, reopening
    ):
        await limit(rate="6/m")
        for name, trigger in zip("abcd", triggers(*"abcd"), strict=True):
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
        await world.settle()
        await limit(**closing)
        (trigger,) = triggers("e")
        world.dispatcher.on_stored(await world.ask(policy, trigger, name="e"))
        await world.settle()
        world.clock.tick(3600)
        await limit(**reopening)
        for expected in (2, 3, 4, 5):
            await world.settle()
            assert len(await done(world)) == expected
            world.clock.tick(9)
            await world.settle()
            assert len(await done(world)) == expected
            world.clock.tick(1)

    async def test_a_request_that_missed_its_turn_delays_no_other_and_takes_no_second_one(
        self, world, policy, limit, triggers
    ):
        await limit(rate="6/m")
        for name, trigger in zip("abc", triggers(*"abc"), strict=True):
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=name))
        await world.settle()
        read = world.wire.get

        async def refuse(kind, namespace, name):
            if name == "b":
                raise Unavailable("the API server does not answer", retry_after=300)
            return await read(kind, namespace, name)

        world.wire.get = refuse
        world.clock.tick(10)
        await world.settle()
        assert await done(world) == {"a"}
        world.clock.tick(5)
        await world.dispatcher.resync()
        world.clock.tick(5)
        await world.settle()
        assert await done(world) == {"a", "c"}
        world.wire.get = read
        world.dispatcher.wake(policy_named("p"))
        world.clock.tick(1)
        await world.settle()
        assert await done(world) == {"a", "c"}
        world.clock.tick(9)
        await world.settle()
        assert await done(world) == {"a", "b", "c"}

    async def test_the_turns_of_a_deleted_policy_are_forgotten(
        self, world, make, policy, limit, triggers
    ):
        await limit(rate="6/m")
        pacer = world.dispatcher.processor.pacer
        pacer.turn(policy_named("p"), "one")
        pacer.turn(policy_named("p"), "two")
        assert holds(pacer, "two")
        marks = {"kube-retrofit.dev/rate": "6/m"}
        later = make.policy(name="later")
        world.install({**later, "metadata": {**later["metadata"], "annotations": marks}})
        world.forget("p")
        pacer.turn(policy_named("later"), "three")
        assert not holds(pacer, "two")

    async def test_an_invalid_limit_holds_requests_back(self, world, policy, limit, triggers):
        (trigger,) = triggers("a")
        await limit(paused="perhaps")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        status = await world.status()
        assert status.reason == "InvalidLimit"
        assert "kube-retrofit.dev/paused" in status.message

    async def test_a_person_cannot_nudge_a_request_past_a_limit(
        self, world, policy, limit, triggers
    ):
        (trigger,) = triggers("a")
        await limit(paused="true")
        world.dispatcher.on_stored(await world.ask(policy, trigger))
        await world.settle()
        request = await world.requests.get("ur-1")
        world.dispatcher.on_stored(replace(request, nudge="now", resource_version="999999"))
        await world.settle()
        assert await done(world) == set()


class TestSweeps:
    async def run(self, world, request, **settings):
        sweeper = replace(world.sweeper, **{"page": 2, "parallel": 2, **settings})
        request, ended = await sweeper.run(await world.requests.get(request.name))
        status = replace(request.status, sweep=ended.sweep, counts=ended.counts)
        await world.requests.write_status(request, status)
        return ended

    async def test_a_pause_stops_a_sweep_between_two_chunks(
        self, world, policy, limit, triggers, sweep
    ):
        triggers("a", "b", "c")
        request = await sweep()
        change, seen = world.wire.cluster.change, []

        async def pause(kind, before, after, **name):
            if not seen:
                seen.append(after)
                await limit(paused="true")
            return await change(kind, before, after, **name)

        world.wire.change = pause
        ended = await self.run(world, request, parallel=1)
        assert isinstance(ended.disposition, Defer)
        assert await done(world) == {"a"}
        await limit(paused="false")
        assert (await self.run(world, request)).disposition == Done()
        assert await done(world) == {"a", "b", "c"}

    async def test_a_rate_lets_a_sweep_continue_chunk_by_chunk(
        self, world, policy, limit, triggers, sweep
    ):
        triggers("a", "b", "c")
        await limit(rate="6/m")
        world.dispatcher.on_stored(await sweep())
        for expected in (1, 2, 3):
            await world.settle()
            assert len(await done(world)) == expected
            world.clock.tick(10)
        assert (await world.status("sweep-1")).state is State.COMPLETED

    async def test_no_more_triggers_fail_than_are_allowed(
        self, world, policy, limit, triggers, sweep, refuse
    ):
        triggers("a", "b", "c", "d", "e")
        await limit(max_failures="3")
        world.wire.before_change = refuse(Invalid("no", status=422), lambda _: True)
        ended = await self.run(world, await sweep(), parallel=2)
        assert ended.disposition.reason == "TooManyFailures"
        assert (ended.sweep.failed, ended.sweep.done) == (3, 3)
        await limit(max_failures=None)
        world.wire.before_change = lambda *_: None
        ended = await self.run(world, await world.requests.get("sweep-1"))
        assert isinstance(ended.disposition, Done)
        assert await done(world) == {"d", "e"}

    async def test_the_batch_size_limits_the_changes_that_run_in_parallel(
        self, world, policy, limit, triggers, sweep
    ):
        triggers(*"abcdef")
        await limit(batch_size="2")
        sizes = []
        create = world.wire.cluster.change
        running = 0

        async def change(kind, before, after, **name):
            nonlocal running
            running += 1
            sizes.append(running)
            for _ in range(5):
                await asyncio.sleep(0)
            result = await create(kind, before, after, **name)
            running -= 1
            return result

        world.wire.change = change
        await self.run(world, await sweep(), page=100, parallel=64)
        assert await done(world) == set("abcdef")
        assert max(sizes) == 2

    async def test_canaries_are_processed_first_and_the_rest_waits_for_promotion(
        self, world, policy, limit, triggers, sweep
    ):
        triggers("b", "d", env="test")
        triggers("a", "c", "e", env="prod")
        await limit(canary="env=test")
        world.dispatcher.on_stored(await sweep())
        await world.settle()
        status = await world.status("sweep-1")
        assert (status.state, status.reason) == (State.PENDING, "Canary")
        assert "kube-retrofit.dev/promote=1" in status.message
        assert (status.sweep.done, status.sweep.total) == (2, 5)
        assert await done(world) == {"b", "d"}
        # The canaries are those of the start, even if the annotation changes later.
        await limit(canary="env=prod", promote="2")
        await world.settle()
        assert await done(world) == {"b", "d"}
        await limit(promote="1")
        await world.settle()
        status = await world.status("sweep-1")
        assert (status.state, status.sweep.done) == (State.COMPLETED, 5)
        assert await done(world) == set("abcde")

    async def test_canaries_that_succeed_can_promote_themselves(
        self, world, policy, limit, triggers, sweep
    ):
        triggers("b", env="test")
        triggers("a", env="prod")
        await limit(canary="env=test", promote="auto")
        world.dispatcher.on_stored(await sweep())
        await world.settle()
        assert (await world.status("sweep-1")).state is State.COMPLETED
        assert await done(world) == {"a", "b"}

    async def test_a_rate_limits_canaries_and_then_the_rest(
        self, world, policy, limit, triggers, sweep
    ):
        triggers("b", "d", env="test")
        triggers("a", "c", env="prod")
        await limit(canary="env=test", promote="auto", rate="6/m")
        world.dispatcher.on_stored(await sweep())
        for expected in ("b", "bd", "abd", "abcd"):
            await world.settle()
            assert await done(world) == set(expected)
            world.clock.tick(9)
            await world.settle()
            assert await done(world) == set(expected)
            world.clock.tick(1)
        assert (await world.status("sweep-1")).state is State.COMPLETED

    async def test_canaries_that_fail_do_not_promote_themselves(
        self, world, policy, limit, triggers, sweep, refuse
    ):
        triggers("b", env="test")
        triggers("a", env="prod")
        await limit(canary="env=test", promote="auto")
        world.wire.before_change = refuse(Invalid("no", status=422), lambda _: True)
        world.dispatcher.on_stored(await sweep())
        await world.settle()
        assert (await world.status("sweep-1")).reason == "Canary"
