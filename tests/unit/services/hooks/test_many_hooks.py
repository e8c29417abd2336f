"""Many hooks in one program: none of them slows down or stops the others."""

import asyncio
from collections.abc import ItemsView, Sequence, ValuesView
from dataclasses import replace
from typing import Any

from typing_extensions import override

from reconciler.api.meta import ObjectRef
from reconciler.clock import SystemClock
from reconciler.hooks.contexts import Context, ContextType
from reconciler.hooks.declared import HOOKS, DeclaredHook, compile_hook
from reconciler.hooks.ports import HookRef
from reconciler.hooks.records import HookIdentity, Record, spec_of
from reconciler.memory.cluster import MemoryCluster
from reconciler.requests.pace import Pace
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.hooks.active import ActiveHook
from reconciler.services.hooks.dispatch import HookDispatcher
from reconciler.services.hooks.recorder import Recorder, RecorderDeps
from reconciler.services.hooks.schedules import Schedules
from tests.skipping import SkippingLoop
from tests.stored import MemoryRequests
from tests.unit.services.hooks import test_plans
from tests.unit.services.hooks.world import LoopClock

MORE_THAN_WAIT = 2100


def declared(place: str) -> DeclaredHook:
    run = {"operations": [{"operation": "Delete", "kind": "Pod", "name": "a"}]}
    meta = {"name": "h", "namespace": place, "uid": place, "generation": 1}
    spec = {"schedule": [{"name": "tick", "crontab": "* * * * * *"}], "run": run}
    return compile_hook(
        {"apiVersion": HOOKS.api_version, "kind": HOOKS.kind, "metadata": meta, "spec": spec}
    )


def active(hook: DeclaredHook, requests: MemoryRequests, clock: LoopClock | SystemClock) -> Any:
    async def stored(_request: object) -> None:
        """Leave the request to no dispatcher."""

    account = HookAccount(object={})
    account.keep(hook.config)
    account.begin(hook.config, clock.now())
    deps = RecorderDeps(
        requests=requests,
        clock=clock,
        namespace="kyverno",
        order=lambda: 1,
        stored=stored,
        warn=print,
        most=1,
    )
    identity = HookIdentity(ref=hook.ref, uid=hook.uid, generation=1)
    recorder = Recorder(deps=deps, hook=identity, account=account)
    (other,) = test_plans.World().dispatcher.hooks.values()
    return replace(other, declared=hook, account=account, recorder=recorder)


def record(hook: DeclaredHook, number: int) -> Record:
    return Record(
        context=Context(type=ContextType.EVENT, binding="b", event="Added"),
        queue="main",
        allow_failure=False,
        scope="",
        at=str(number),
        resource=ObjectRef(api_version="v1", kind="Pod", namespace="a", name=str(number)),
    )


async def play_schedules() -> tuple[int, int]:
    """Return how many runs of two hooks are recorded, the first of which records none at first."""
    clock, requests = LoopClock(), MemoryRequests(MemoryCluster(), "kyverno")
    first, second = (active(declared(place), requests, clock) for place in "ab")
    tasks = [
        asyncio.create_task(first.recorder.add(record(first.declared, number)))
        for number in range(MORE_THAN_WAIT)
    ]
    hooks = {item.declared.ref: item for item in (first, second)}
    schedules = Schedules(hooks=hooks, clock=clock, holds=lambda _hook, _queue, _context: False)
    tasks.append(asyncio.create_task(schedules.run()))
    tasks.append(asyncio.create_task(second.recorder.run()))
    await asyncio.sleep(10.1)
    before = [item async for item in requests.waiting()]
    tasks.append(asyncio.create_task(first.recorder.run()))

    async def own() -> int:
        waiting = [item async for item in requests.waiting()]
        ticks = [item for item in waiting if item.spec.rule == "tick"]
        return sum(item.spec.policy.namespace == "a" for item in ticks)

    async with asyncio.timeout(60):
        while not (found := await own()):  # noqa: ASYNC110  (only a read shows it)
            await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return len(before), found


def test_schedules_do_not_wait_for_a_hook_whose_events_cannot_be_recorded() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        others, own = runner.run(play_schedules())
    assert others >= 9
    # The ten that it missed meanwhile run once. The next one may be due by now.
    assert 1 <= own <= 2


class Counted(dict[HookRef, ActiveHook]):
    """Hooks that count how often all of them are read."""

    passes = 0

    @override
    def values(self) -> ValuesView[ActiveHook]:  # type: ignore[override]
        self.passes += 1
        return super().values()

    @override
    def items(self) -> ItemsView[HookRef, ActiveHook]:  # type: ignore[override]
        self.passes += 1
        return super().items()


async def test_the_requests_of_all_hooks_are_counted_in_one_pass() -> None:
    world = test_plans.World()
    requests, clock = world.requests, SystemClock()
    hooks = Counted()
    dispatcher = HookDispatcher(
        requests=world.known, hooks=hooks, clock=clock, find=test_plans.nowhere, jitter=float
    )
    made: Sequence[ActiveHook] = [active(declared(place), requests, clock) for place in "abcde"]
    for number, hook in enumerate(made):
        hooks[hook.declared.ref] = hook
        identity = HookIdentity(ref=hook.declared.ref, uid=hook.declared.uid, generation=1)
        spec = spec_of(identity, [record(hook.declared, number)], number)
        await requests.create(f"r{number}", {}, spec)
        await dispatcher.add(await requests.get(f"r{number}"))
    hooks.passes = 0
    dispatcher.remove("r0")
    assert hooks.passes == 1
    assert [hook.account.queues["main"].waiting for hook in made] == [0, 1, 1, 1, 1]


async def play_recreation() -> float:
    """Return how long the first run of a hook takes that is created again after a run."""
    world, clock = test_plans.World(), LoopClock()
    pace = replace(test_plans.DECLARED.config, pace=Pace(interval=3600.0, burst=1))
    (hook,) = world.dispatcher.hooks.values()
    hooks: dict[HookRef, ActiveHook] = {}
    dispatcher = replace(world.dispatcher, hooks=hooks, clock=clock)
    working = asyncio.create_task(dispatcher.run())
    begun = 0.0
    for order, uid in enumerate(("u1", "u2"), start=1):
        declared = replace(test_plans.DECLARED, uid=uid, config=pace)
        hooks[declared.ref] = replace(hook, declared=declared)
        dispatcher.stored[declared.ref] = uid
        begun = clock.monotonic()
        await world.record(order, uid=uid)
        await dispatcher.add(await world.requests.get(f"r{order}"))
        while len(world.ended) < order:  # noqa: ASYNC110  (only the list shows it)
            await asyncio.sleep(0.1)
        del hooks[declared.ref], dispatcher.stored[declared.ref]
        dispatcher.wake()
        await asyncio.sleep(1.0)
    working.cancel()
    await asyncio.wait({working})
    return clock.monotonic() - begun


def test_a_hook_that_is_created_again_does_not_wait_for_the_pace_of_the_deleted_one() -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(play_recreation()) < 10
