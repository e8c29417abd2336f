"""What is stored for an event or a run never exceeds what the API server stores."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from reconciler.api.requestwire import render_spec, render_status
from reconciler.api.updaterequest import RequestSpec, RequestStatus, State, UpdateRequest
from reconciler.engine.values import gojson
from reconciler.errors import Unavailable
from reconciler.hooks.declared import HOOKS
from reconciler.kube.secrets import SECRETS
from tests.skipping import SkippingLoop
from tests.stored import MemoryRequests
from tests.unit.services.hooks.test_endings import NAME, create, hook
from tests.unit.services.hooks.world import Ending, World, process, until

MOST = 1_572_864
"""The bytes of a request to etcd, by default."""


class Limited(MemoryRequests):
    """Requests whose size etcd limits, as Go writes them."""

    @override
    async def create(self, name: str, labels: Mapping[str, str], spec: RequestSpec) -> str:
        _check(render_spec(spec))
        return await super().create(name, labels, spec)

    @override
    async def write_status(self, request: UpdateRequest, status: RequestStatus) -> UpdateRequest:
        _check([render_spec(request.spec), render_status(status)])
        return await super().write_status(request, status)


def _check(stored: Any) -> None:
    if len(gojson.escape(json.dumps(stored, ensure_ascii=False)).encode()) > MOST:
        raise Unavailable("etcdserver: request is too large", status=500)


async def made_for(text: str, operation: Mapping[str, Any]) -> tuple[Counter[str], list[State]]:
    world = World()
    world.cluster.serve(SECRETS)
    run = {"foreach": "contexts[?type=='Event']", "operations": [operation]}
    world.cluster.create(HOOKS, hook(run=run))
    hooks = process(world, Ending(), 1, 1 << 19)
    limited = Limited(world.cluster, "kyverno")
    hooks.dispatcher.requests.requests = limited
    hooks.deps = replace(hooks.deps, recorder=replace(hooks.deps.recorder, requests=limited))
    working = asyncio.create_task(hooks.run())
    await until(world.ready, Ending())
    world.create("seed-0", seed="y", data={"one": text, "two": text})
    world.create("seed-1", seed="y")

    async def done() -> bool:
        return {"seed-0-added", "seed-1-added"} <= set(await world.made())

    await until(done, Ending(), 100.0)
    await asyncio.sleep(5.0)
    working.cancel()
    await asyncio.wait({working})
    return await world.made(), await world.states()


def copy() -> dict[str, Any]:
    operation = create(NAME)
    operation["object"]["data"] = {
        name: f"{{{{ element.object.data.{name} || '' }}}}" for name in ("one", "two")
    }
    return operation


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        pytest.param("<" * 150_000, create(NAME), id="an event that Go writes longer"),
        pytest.param('"' * 150_000, copy(), id="a plan with many quotes"),
        pytest.param("<" * 75_000, copy(), id="a plan beside a large event"),
    ],
)
def test_an_event_or_plan_that_cannot_be_stored_whole_blocks_no_queue(
    text: str, operation: Mapping[str, Any]
) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        made, states = runner.run(made_for(text, operation))
    assert made == {"seed-0-added": 1, "seed-1-added": 1}
    assert set(states) == {State.COMPLETED}
