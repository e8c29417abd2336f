"""A failing operation holds up the later ones only if the API server was unavailable."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from typing_extensions import override

from reconciler.api.meta import CONFIG_MAPS, Kind, Object, ObjectRef
from reconciler.api.updaterequest import RequestSpec, Source, State, UpdateRequest
from reconciler.errors import (
    ClusterError,
    Denied,
    Forbidden,
    Invalid,
    Throttled,
    Unauthorized,
    Unavailable,
    Unfinished,
)
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.declared import HOOKS
from reconciler.hooks.ports import HookRef, RunResult
from reconciler.isolation.jq import JqWorkers
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.operations import MemoryOperations
from reconciler.requests.lifecycle import Retention
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.hooks.requests import HookRequests
from reconciler.services.hooks.running import HookRun, RunOutcome
from tests.skipping import SkippingLoop
from tests.stored import MemoryRequests
from tests.unit.services.hooks.world import PLACE, LoopClock

HOOK: Final = HookRef(api_version=HOOKS.api_version, kind="Hook", namespace=PLACE, name="once")
MANY: Final = 100
AWAY: Final = [
    Unavailable("no answer"),
    Unavailable("the API server answered 503", status=503),
    Throttled("slow down", status=429, retry_after=1.0),
    Unauthorized("renew the token", status=401),
]
AT_ONE_OBJECT: Final = [
    Unavailable("a webhook cannot be called", status=500),
    Unfinished("it waits for a finalizer"),
    Forbidden("no right", permission="create configmaps"),
    Invalid("not so", status=422),
    Denied("a webhook says no", status=403),
]


@dataclass(frozen=True)
class Creates:
    """A hook that creates objects.

    Attributes:
        naming: The metadata field that names the first object.
    """

    naming: str

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        metas = [{self.naming: "first-"}, {"name": "second"}, {"name": "third"}]
        return RunResult(
            operations=[
                {
                    "operation": "Create",
                    "object": {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {**meta, "namespace": PLACE},
                    },
                }
                for meta in metas
            ]
        )


class FirstFails(MemoryOperations):
    """Operations in which creating the first object fails, with one error after another."""

    def __init__(self, cluster: MemoryCluster, errors: Iterable[ClusterError]) -> None:
        super().__init__(cluster)
        self._errors = iter(errors)

    @override
    async def create(self, kind: Kind, obj: Object) -> Object:
        first = obj["metadata"]["name"].startswith("first-")
        if first and (error := next(self._errors, None)):
            raise error
        return await super().create(kind, obj)


@dataclass
class World:
    """One request, and the run of its hook."""

    errors: Iterable[ClusterError]
    naming: str = "generateName"
    cluster: MemoryCluster = field(default_factory=MemoryCluster)

    async def attempt(self, *, repeated: bool = True) -> tuple[RunOutcome, list[str]]:
        """Return the outcome of an attempt, and the names that exist afterwards, in order."""
        requests = HookRequests(
            requests=MemoryRequests(self.cluster, PLACE),
            clock=LoopClock(),
            retention=Retention(seconds=dict.fromkeys(State, 600.0)),
            ended=lambda _: None,
        )
        runner = HookRun(
            requests=requests,
            runs=Creates(self.naming),
            operations=OperationRunner(
                kinds=self.cluster,
                reader=self.cluster,
                writer=self.cluster,
                operations=FirstFails(self.cluster, self.errors),
                jq=JqWorkers(workers=0),
            ),
            ref=HOOK,
            config=HookConfig(),
        )
        covered = await self._stored(requests)
        outcome = await runner.attempt(covered, list, repeated=repeated)
        page = await self.cluster.list_page(CONFIG_MAPS, namespace=PLACE)
        made = sorted(page.items, key=lambda item: int(item["metadata"]["resourceVersion"]))
        return outcome, [item["metadata"]["name"].partition("-")[0] for item in made]

    async def _stored(self, requests: HookRequests) -> list[UpdateRequest]:
        place = ObjectRef(api_version="v1", kind="ConfigMap", namespace=PLACE, name="seed")
        spec = RequestSpec(policy=HOOK, rule="seeds", resource=place, source=Source.WATCH)
        await MemoryRequests(self.cluster, PLACE).create("r1", {}, spec)
        return await requests.load()


def attempted(world: World, *, repeated: bool = True) -> tuple[RunOutcome, list[str]]:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(world.attempt(repeated=repeated))


def named(error: ClusterError) -> str:
    return f"{type(error).__name__} {error.status}"


@pytest.mark.parametrize("error", AWAY, ids=named)
def test_later_operations_wait_while_the_api_server_is_unavailable(error: ClusterError) -> None:
    outcome, made = attempted(World([error] * MANY))
    assert str(error) in outcome.failure
    assert made == []


@pytest.mark.parametrize("error", AT_ONE_OBJECT, ids=named)
def test_an_error_of_one_object_does_not_hold_up_later_operations(error: ClusterError) -> None:
    outcome, made = attempted(World([error] * MANY))
    assert str(error) in outcome.failure
    assert made == ["second", "third"]


@pytest.mark.parametrize("error", AWAY, ids=named)
def test_a_run_that_may_fail_continues_although_the_api_server_is_unavailable(
    error: ClusterError,
) -> None:
    outcome, made = attempted(World([error] * MANY), repeated=False)
    assert str(error) in outcome.failure
    assert made == ["second", "third"]


@pytest.mark.parametrize("naming", ["generateName", "name"])
@pytest.mark.parametrize("error", AWAY, ids=named)
def test_a_short_outage_of_the_api_server_does_not_fail_a_run(
    error: ClusterError, naming: str
) -> None:
    outcome, made = attempted(World([error] * 2, naming))
    assert outcome.failure == ""
    assert made == ["first", "second", "third"]


def test_an_api_server_that_has_not_read_the_rights_yet_does_not_fail_a_run() -> None:
    """An API server that has just started refuses all calls until its authorizer has roles."""
    refused = [Forbidden("no right", permission="create configmaps", status=403)] * 2
    outcome, made = attempted(World([Unavailable("no answer"), *refused]))
    assert outcome.failure == ""
    assert made == ["first", "second", "third"]


def test_a_missing_right_to_create_objects_with_generated_names_takes_no_pauses() -> None:
    async def seconds() -> float:
        refused = [Forbidden("no right", permission="create configmaps", status=403)] * MANY
        await World(refused).attempt()
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        begun = runner.get_loop().time()
        assert runner.run(seconds()) - begun < 0.1


def test_a_right_lost_in_an_outage_does_not_hold_up_later_operations() -> None:
    refused = [Forbidden("no right", permission="create configmaps", status=403)] * MANY
    outcome, made = attempted(World([Unavailable("no answer"), *refused]))
    assert outcome.missing == "create configmaps"
    assert made == ["second", "third"]
