"""A plan applies to the requests that it names, and to no other request in the queue."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from reconciler.api.meta import CONFIG_MAPS, Object, ObjectRef
from reconciler.api.updaterequest import Reason, State, UpdateRequest
from reconciler.clock import SystemClock
from reconciler.errors import InvalidPolicy
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.contexts import Context, ContextType
from reconciler.hooks.declared import compile_hook
from reconciler.hooks.operations import read_operations
from reconciler.hooks.plan import planned
from reconciler.hooks.ports import HookRef, RunResult
from reconciler.hooks.records import HookIdentity, Record, spec_of
from reconciler.isolation.jq import JqWorkers
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import REQUESTS
from reconciler.memory.operations import MemoryOperations
from reconciler.requests.lifecycle import Retention
from reconciler.services.hooks.accounts import HookAccount
from reconciler.services.hooks.active import ActiveHook
from reconciler.services.hooks.dispatch import HookDispatcher
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.hooks.recorder import Recorder, RecorderDeps
from reconciler.services.hooks.requests import HookRequests
from reconciler.services.hooks.running import HookRun
from tests.stored import MemoryRequests
from tests.unit.services.conftest import until

HOOK: Final = {
    "apiVersion": "kube-retrofit.dev/v1alpha1",
    "kind": "Hook",
    "metadata": {"name": "copies", "namespace": "shop", "uid": "u1", "generation": 1},
    "spec": {"executable": "copies.sh", "kubernetes": [{"name": "sources", "kind": "ConfigMap"}]},
}
DECLARED: Final = compile_hook(HOOK)


def create(name: str, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop"}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data or {}}
    return {"operation": "Create", "object": obj}


async def nowhere(_hook: HookRef) -> Object | None:
    return None


@dataclass(frozen=True)
class Copies:
    """A hook whose operations create a copy of each object that it is run for.

    Attributes:
        data: The data of the copies.
        delete: The names of objects to delete instead.
        meanwhile: Called during each run.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    delete: Sequence[str] = ()
    meanwhile: Callable[[], None] = lambda: None

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        self.meanwhile()
        if self.delete:
            gone = {"operation": "Delete", "kind": "ConfigMap", "namespace": "shop"}
            return RunResult(operations=[{**gone, "name": name} for name in self.delete])
        names = [context["object"]["metadata"]["name"] for context in contexts]
        return RunResult(operations=[create(f"copy-{name}", self.data) for name in names])


class World:
    """A process that starts with stored requests, for which its predecessor may have a plan."""

    def __init__(self, copies: Copies | None = None) -> None:
        self.copies = copies or Copies()
        self.cluster, self.clock = MemoryCluster(), SystemClock()
        self.account = HookAccount.of(HOOK)
        self.requests = MemoryRequests(self.cluster, "shop")
        self.ended: list[UpdateRequest] = []
        self.known = HookRequests(
            requests=self.requests,
            clock=self.clock,
            retention=Retention(seconds=dict.fromkeys(State, 600.0)),
            ended=self.ended.append,
        )
        self.dispatcher = HookDispatcher(
            requests=self.known,
            hooks={DECLARED.ref: self._active()},
            clock=self.clock,
            find=nowhere,
            jitter=float,
        )

    def _active(self) -> ActiveHook:
        deps = RecorderDeps(
            requests=self.requests,
            clock=self.clock,
            namespace="shop",
            order=lambda: 9,
            stored=self._stored,
            warn=print,
            most=1000,
        )
        operations = OperationRunner(
            kinds=self.cluster,
            reader=self.cluster,
            writer=self.cluster,
            operations=MemoryOperations(self.cluster),
            jq=JqWorkers(workers=0),
        )
        identity = HookIdentity(ref=DECLARED.ref, uid="u1", generation=1)
        return ActiveHook(
            declared=DECLARED,
            account=self.account,
            recorder=Recorder(deps=deps, hook=identity, account=self.account),
            informers=(),
            runner=HookRun(
                requests=self.known,
                runs=self.copies,
                operations=operations,
                ref=DECLARED.ref,
                config=DECLARED.config,
            ),
        )

    async def _stored(self, request: object) -> None:
        raise AssertionError(request)

    async def record(self, order: int, uid: str = "u1") -> None:
        name = f"s{order}"
        shown = {"object": {"metadata": {"name": name, "namespace": "shop"}}}
        context = Context(type=ContextType.EVENT, binding="sources", event="Added", shown=shown)
        record = Record(
            context=context,
            queue="main",
            allow_failure=False,
            scope="shop",
            at=str(order),
            resource=ObjectRef(api_version="v1", kind="ConfigMap", namespace="shop", name=name),
            watched="w",
        )
        identity = HookIdentity(ref=DECLARED.ref, uid=uid, generation=1)
        await self.requests.create(f"r{order}", {}, spec_of(identity, [record], order))

    async def plan(self, order: int, *documents: dict[str, Any]) -> None:
        """Store the plan of a process that was killed before the first operation."""
        documents = documents or (create(f"copy-s{order}"),)
        await self.known.load()
        plan = planned(documents, read_operations(documents), [f"r{order}"])
        await self.known.store_plan(f"r{order}", plan)

    async def names(self) -> set[str]:
        page = await self.cluster.list_page(CONFIG_MAPS, namespace="shop")
        return {item["metadata"]["name"] for item in page.items}

    async def finish(self) -> None:
        """Run all requests as a new process."""
        stored = await self.dispatcher.load()
        work = asyncio.ensure_future(self.dispatcher.run())
        try:
            await until(lambda: len(self.ended) == len(stored) or work.done())
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work


async def test_requests_that_a_plan_does_not_name_are_run_on_their_own() -> None:
    world = World()
    for order in (1, 2, 3):
        await world.record(order)
    await world.plan(1)
    await world.finish()
    assert await world.names() == {"copy-s1", "copy-s2", "copy-s3"}


async def test_requests_of_a_hook_that_was_created_again_do_not_end_with_those_before() -> None:
    world = World()
    await world.record(1, uid="u0")
    await world.record(2)
    await world.finish()
    assert {item.name: item.status.reason for item in world.ended} == {
        "r1": Reason.POLICY_GONE,
        "r2": Reason.APPLIED,
    }
    assert await world.names() == {"copy-s2"}


@pytest.mark.parametrize("operation", ["MergePatch", "JSONPatch"])
async def test_a_new_process_carries_out_a_patch_with_null_unchanged(operation: str) -> None:
    world = World()
    meta = {"name": "copy-s1", "namespace": "shop"}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1", "b": "2"}}
    world.cluster.create(CONFIG_MAPS, obj)
    patches: dict[str, dict[str, Any]] = {
        "MergePatch": {"mergePatch": {"data": {"a": None}}},
        "JSONPatch": {"jsonPatch": [{"op": "replace", "path": "/data/a", "value": None}]},
    }
    target = {"operation": operation, "kind": "ConfigMap", **meta}
    await world.record(1)
    await world.plan(1, {**target, **patches[operation]}, create("other"))
    await world.finish()
    after = await world.cluster.get(CONFIG_MAPS, "shop", "copy-s1")
    assert after["data"] == ({"b": "2"} if operation == "MergePatch" else {"a": None, "b": "2"})


async def test_a_plan_that_became_invalid_is_dropped_and_the_hook_runs_again() -> None:
    world = World()
    await world.record(1)
    # As an earlier version stored {"data": null}.
    patch = {"operation": "MergePatch", "kind": "ConfigMap", "name": "x", "mergePatch": {}}
    await world.plan(1, create("other"))
    request = await world.requests.get("r1")
    plan = {"covers": ["r1"], "operations": [{"operation": patch}]}
    await world.requests.write_status(request, replace(request.status, plan=plan))
    await world.finish()
    assert await world.names() == {"copy-s1"}


@pytest.mark.parametrize("value", [1 << 80, "\ud800", [[1 << 80]]], ids=["long", "half", "deep"])
async def test_operations_that_cannot_be_written_as_json_fail_only_their_run(
    value: object,
) -> None:
    world = World(Copies({"value": value}))
    await world.record(1)
    await world.dispatcher.load()
    work = asyncio.ensure_future(world.dispatcher.run())
    found: list[UpdateRequest] = []

    async def failed() -> bool:
        found[:] = [item async for item in world.requests.waiting()]
        return work.done() or any(item.status.attempts for item in found)

    try:
        async with asyncio.timeout(10):
            while True:
                if await failed():
                    break
                await asyncio.sleep(0.05)
        assert not work.done()
    finally:
        work.cancel()
        await asyncio.wait({work})
    (request,) = found
    assert request.status.reason is Reason.HOOK_FAILED
    assert "cannot be written as JSON" in request.status.message
    assert await world.names() == set()


@pytest.mark.parametrize("names", [("\ud800",), ("\ud800", "other")], ids=["one", "two"])
async def test_a_name_that_no_object_can_have_fails_only_its_run(names: tuple[str, ...]) -> None:
    world = World(Copies(delete=names))
    await world.record(1)
    await world.dispatcher.load()
    work = asyncio.ensure_future(world.dispatcher.run())
    try:
        await until(lambda: work.done() or world.account.runs)
        assert not work.done()
    finally:
        work.cancel()
        await asyncio.wait({work})
    (request,) = [item async for item in world.requests.waiting()]
    assert request.status.reason is Reason.HOOK_FAILED
    assert "cannot be written as JSON" in request.status.message


async def test_the_progress_of_a_plan_is_stored_although_it_makes_the_plan_larger() -> None:
    world = World()
    await world.record(1)
    gone = {"operation": "Delete", "kind": "ConfigMap", "namespace": "shop", "name": "x" * 10}
    documents = [gone] * 9000
    await world.plan(1, *documents)
    plan = await world.known.read_plan("r1")
    assert plan is not None
    done = replace(plan, steps=tuple(replace(step, outcome="Deleted") for step in plan.steps))
    await world.known.store_plan("r1", done)
    stored = (await world.requests.get("r1")).status.plan
    assert stored is not None
    assert stored["operations"][-1]["outcome"] == "Deleted"


@pytest.mark.parametrize("deleted", [("r1",), ("r1", "r2"), ("r2",)])
async def test_a_request_that_is_deleted_during_its_failing_run_is_given_up(
    deleted: tuple[str, ...],
) -> None:
    runs: list[tuple[str, ...]] = []

    def delete() -> None:
        runs.append(deleted)
        for name in deleted:
            world.cluster.delete(REQUESTS, "shop", name)
            world.dispatcher.remove(name)
        raise InvalidPolicy("operations", "are none")

    world = World(Copies(meanwhile=delete))
    await world.record(1)
    await world.record(2)
    await world.dispatcher.load()
    work = asyncio.ensure_future(world.dispatcher.run())
    try:
        await until(lambda: work.done() or world.account.runs)
        left = 2 - len(deleted)
        await until(lambda: work.done() or world.account.queues["main"].waiting == left)
        assert not work.done()
    finally:
        work.cancel()
        await asyncio.wait({work})
    assert runs == [deleted]
