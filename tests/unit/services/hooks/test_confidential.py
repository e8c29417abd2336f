"""Runs that read Secrets: no status and no message contains what may come from one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from reconciler.api.meta import CONFIG_MAPS, ObjectRef
from reconciler.api.updaterequest import RequestSpec, Source, State, UpdateRequest
from reconciler.clock import SystemClock
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.declared import compile_hook
from reconciler.hooks.ports import HookRef, RunResult
from reconciler.isolation.jq import JqWorkers
from reconciler.kube.secrets import SECRETS
from reconciler.memory.kinds import REQUESTS
from reconciler.memory.operations import MemoryOperations
from reconciler.requests.lifecycle import Retention
from reconciler.requests.naming import plan_name, recorded_name
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.hooks.requests import HookRequests
from reconciler.services.hooks.running import HookRun, RunOutcome
from tests.rigged import RiggedCluster
from tests.stored import MemoryRequests

VALUE: Final = "hunter2"
NAME: Final = "r1"
PLACE: Final = "shop"


def create(name: str, namespace: str = PLACE) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"pw": VALUE}}
    return {"operation": "Create", "object": obj}


OUTSIDE: Final = create(f"of-{VALUE}", f"in-{VALUE}")
UNKNOWN: Final = {"operation": VALUE}


@dataclass(frozen=True)
class Answers:
    """A hook that answers these operations."""

    operations: Sequence[Any]

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        return RunResult(operations=self.operations)


class Place:
    """A cluster with a hook, and a request for it that no process has worked on yet.

    Attributes:
        recorded: The context of the request shows a Secret.
    """

    def __init__(self, kind: str, *, recorded: bool) -> None:
        self.declared = compile_hook(
            {
                "apiVersion": "kube-retrofit.dev/v1alpha1",
                "kind": "Hook",
                "metadata": {"name": "copies", "namespace": PLACE, "uid": "u1", "generation": 1},
                "spec": {"executable": "a.sh", "kubernetes": [{"name": "b", "kind": kind}]},
            }
        )
        self.recorded = recorded
        self.cluster = RiggedCluster()
        self.cluster.serve(CONFIG_MAPS, SECRETS)
        self.requests = MemoryRequests(self.cluster, "kyverno")

    async def record(self) -> None:
        spec = RequestSpec(
            policy=self.declared.ref,
            rule="b",
            resource=ObjectRef(api_version="v1", kind="Secret", namespace=PLACE, name="s"),
            source=Source.WATCH,
            recorded=None if self.recorded else {},
            recorded_secret=recorded_name(NAME) if self.recorded else "",
        )
        await self.requests.create(NAME, {}, spec)

    async def attempt(self, *operations: Any) -> RunOutcome:
        """Run the hook in a process that has just started."""
        known = HookRequests(
            requests=self.requests,
            clock=SystemClock(),
            retention=Retention(seconds=dict.fromkeys(State, 600.0)),
            ended=_ignore,
        )
        run = HookRun(
            requests=known,
            runs=Answers(operations),
            operations=OperationRunner(
                kinds=self.cluster,
                reader=self.cluster,
                writer=self.cluster,
                operations=MemoryOperations(self.cluster),
                jq=JqWorkers(workers=0),
                confined_to=PLACE,
            ),
            ref=self.declared.ref,
            config=self.declared.config,
        )
        return await run.attempt(await known.load(), list, repeated=True)

    async def stored(self) -> str:
        """Return the request as JSON."""
        return json.dumps(await self.cluster.get(REQUESTS, "kyverno", NAME))

    async def copies(self) -> list[str]:
        page = await self.cluster.list_page(CONFIG_MAPS)
        return [item["metadata"]["name"] for item in page.items]


def _ignore(_request: UpdateRequest) -> None:
    """Ignore a request that has ended."""


SECRET_IN_CONTEXT: Final = {"kind": "Pod", "recorded": True}
SECRET_IN_SNAPSHOT: Final = {"kind": "secrets", "recorded": False}


@pytest.mark.parametrize("given", [SECRET_IN_CONTEXT, SECRET_IN_SNAPSHOT])
class TestARunThatReadsASecret:
    async def test_stores_its_plan_in_a_secret(self, given: dict[str, Any]) -> None:
        place = Place(**given)
        await place.record()
        place.cluster.forbid("create", "configmaps")
        await place.attempt(create("one"), create("two"))
        assert VALUE not in await place.stored()
        assert VALUE.encode() in await place.requests.read_recorded(plan_name(NAME))
        place.cluster.permit("create", "configmaps")
        outcome = await place.attempt(create("three"))
        assert outcome.failure == ""
        assert await place.copies() == ["one", "two"]

    @pytest.mark.parametrize("operation", [OUTSIDE, UNKNOWN], ids=["outside", "unknown"])
    async def test_quotes_no_value_in_its_failure(
        self, given: dict[str, Any], operation: dict[str, Any]
    ) -> None:
        place = Place(**given)
        await place.record()
        outcome = await place.attempt(create("one"), operation)
        assert outcome.failure
        assert VALUE not in repr(outcome)
        assert VALUE not in await place.stored()
