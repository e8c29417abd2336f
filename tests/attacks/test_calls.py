"""Calls of policies: none reaches the node, stays open without end, or names a metric."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from devcluster.parts import HOST
from devcluster.programs import CONTROLLER
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster


@pytest.fixture
async def node() -> AsyncIterator[tuple[str, list[str]]]:
    """A server on the machine of the programs: its URL, and the paths that were requested."""
    asked: list[str] = []

    async def answer(http: web.Request) -> web.Response:
        asked.append(http.path)
        return web.json_response({"got": "it"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    yield f"http://{HOST}:{runner.addresses[0][1]}/of-the-node", asked
    await runner.cleanup()


async def _is_refused(rig: Rig, call: dict[str, Any], words: str) -> None:
    """Assert that the request of a rule with this call reports why the call is not made."""
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    entry = {"name": "answer", "apiCall": call}
    made = rule(place, [target(place, "target")], {"data": {"got": "{{ answer }}"}})
    await rig.apply({**made, "context": [entry]})
    await rig.create(config_map(place, "trigger-0"))

    async def unsaid() -> str:
        said = [item.status.message for item in await rig.requests()]
        return "" if any(words in text for text in said) else str(said)

    await rig.settle(unsaid, within=30.0)
    assert await rig.data("target") == {}


async def test_a_policy_cannot_call_a_service_of_the_node(
    rig: Rig, node: tuple[str, list[str]]
) -> None:
    url, asked = node
    await _is_refused(rig, {"service": {"url": url}}, "--service-hosts")
    assert asked == []


async def test_a_call_cannot_open_a_watch_and_its_path_is_not_in_the_metrics(rig: Rig) -> None:
    path = f"/api/v1/namespaces/{rig.namespace}/configmaps/of-the-tenant?watch=true"
    await _is_refused(rig, {"urlPath": path}, "watch")

    def metrics() -> str:
        address = rig.programs.address(CONTROLLER)
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    assert "of-the-tenant" not in await asyncio.to_thread(metrics)
