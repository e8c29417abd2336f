"""Measures the CPU time of one API call through each client layer, beside a bare connection."""

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import load_kube_config
from kubernetes.aio.dynamic import DynamicClient
from kubernetes.aio.dynamic.resource import Resource
from rich.table import Table
from typing_extensions import override

from reconciler.api.meta import Kind
from reconciler.kube.client import Client, connect
from tests.bench.figures import Spread

_ROUNDS, _CALLS = 9, 400
_BARE, _DYNAMIC = "bare connection", "reconciler.kube, dynamic client"
_MOST = 2.0
"""The limit of a call's cost, as a multiple of a bare connection's."""
_NAMESPACE, _NAME = "bench", "target"
_PATH = f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{_NAME}"
_KIND = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
_OBJECT = orjson.dumps(
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _NAME,
            "namespace": _NAMESPACE,
            "uid": "6a0f33c6-86b1-4a0c-a9b1-0a4b7f0d1a51",
            "resourceVersion": "48151",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {f"label-{number}": "value" for number in range(8)},
            "managedFields": [
                {"manager": "bench", "operation": "Update", "fieldsV1": {"f:data": {"f:a": {}}}}
            ],
        },
        "data": {f"key-{number}": "x" * 40 for number in range(20)},
    }
)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(_OBJECT),
    _OBJECT,
)

Call = Callable[[], Awaitable[Any]]


class _Server(asyncio.Protocol):
    """Answers each request with the object; assumes that requests come one after another."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    @override
    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):
            self._transport.write(_ANSWER)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    ready, ended, address = threading.Event(), asyncio.Event(), ""
    loop = uvloop.new_event_loop()

    async def serve() -> None:
        nonlocal address
        server: Any = await loop.create_server(_Server, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await ended.wait()
        server.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    ready.wait(10.0)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10.0)


def measure() -> dict[str, Spread]:
    """Return the seconds of CPU of one GET through each layer."""
    with _server() as address, tempfile.TemporaryDirectory(prefix="retrofit-bench-") as folder:
        file = Path(folder) / "kubeconfig"
        file.write_bytes(orjson.dumps(_kubeconfig(address)))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_measure(address, str(file)))


async def _measure(address: str, kubeconfig: str) -> dict[str, Spread]:
    client = await connect(kubeconfig)
    configured: Any = await _generic(kubeconfig)
    async with aiohttp.ClientSession() as session, configured as generic:
        layers = {
            _BARE: _bare(session, address + _PATH),
            "reconciler.kube, by path": lambda: client.json("GET", _PATH),
            _DYNAMIC: _dynamic(client),
            "kubernetes.aio, dynamic client": _library(generic),
        }
        found: dict[str, list[float]] = {name: [] for name in layers}
        for call in layers.values():
            await _seconds(call)
        for number in range(_ROUNDS):
            # In alternating order, so that no layer always follows the same one.
            for name in list(layers)[:: -1 if number % 2 else 1]:
                found[name].append(await _seconds(layers[name]))
    await client.close()
    return {name: Spread.of(values) for name, values in found.items()}


async def _seconds(call: Call) -> float:
    # CPU time of this thread only, as the server has its own.
    started = time.thread_time()
    for _ in range(_CALLS):
        await call()
    return (time.thread_time() - started) / _CALLS


def _bare(session: aiohttp.ClientSession, url: str) -> Call:
    async def call() -> Any:
        async with session.get(url, headers={"Authorization": "Bearer bench"}) as response:
            return orjson.loads(await response.read())

    return call


def _dynamic(client: Client) -> Call:
    return lambda: client.resource(_KIND).get(name=_NAME, namespace=_NAMESPACE)


async def _generic(kubeconfig: str) -> ApiClient:
    load: Any = load_kube_config
    await load(config_file=kubeconfig)
    return ApiClient()


def _library(client: ApiClient) -> Call:
    dynamic: Any = DynamicClient(client)
    resource: Any = Resource(
        prefix="api",
        group="",
        api_version="v1",
        kind="ConfigMap",
        name="configmaps",
        namespaced=True,
        client=dynamic,
    )
    return lambda: resource.get(name=_NAME, namespace=_NAMESPACE)


def _kubeconfig(address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }


def outgrown(figures: dict[str, Spread]) -> bool:
    """Return whether a call costs more than its limit."""
    return figures[_DYNAMIC].p50 > _MOST * figures[_BARE].p50


def table(figures: dict[str, Spread]) -> Table:
    """Return a row for each layer, with its cost as a multiple of a bare connection's."""
    found = Table(title="CPU of one call", title_justify="left")
    for title in ("layer", "ms", "of bare"):
        found.add_column(title, justify="left" if title == "layer" else "right")
    bare = figures[_BARE].p50
    for name, spread in figures.items():
        found.add_row(name, f"{spread.p50 * 1e3:.3f}", f"{spread.p50 / bare:.2f}")
    return found
