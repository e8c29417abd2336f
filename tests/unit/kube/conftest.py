"""A local HTTP server with prepared answers, in the place of an API server."""

import asyncio
import contextlib
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from reconciler.kube.client import Client, connect


@dataclass
class StillClock:
    """A clock that tests advance."""

    seconds: float = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(1_800_000_000 + self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Api:
    """Gives the answers of each route in order, and the last one for all further calls."""

    address: str = ""
    seen: list[Seen] = field(default_factory=list)
    answers: dict[str, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def answer(self, route: str, *answers: Any) -> None:
        """Append answers to a route: a (status, body[, headers]), a body, or a handler."""
        self.answers[route].extend(answers)

    def calls(self, route: str) -> list[Seen]:
        return [item for item in self.seen if f"{item.method} {item.path}" == route]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self.arrived:
            await self.arrived.wait_for(condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        seen = Seen(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers=dict(request.headers),
            body=orjson.loads(body) if body else None,
        )
        async with self.arrived:
            self.seen.append(seen)
            self.arrived.notify_all()
        queue = self.answers[f"{request.method} {request.path}"]
        if not queue:
            return _response((404, {"kind": "Status", "reason": "NotFound", "details": {}}))
        answer = queue.popleft() if len(queue) > 1 else queue[0]
        return await answer(request) if callable(answer) else _response(answer)


def _response(answer: Any) -> web.Response:
    status, body, *more = answer if isinstance(answer, tuple) else (200, answer)
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return web.Response(status=status, body=data, headers=more[0] if more else None)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@contextlib.asynccontextmanager
async def open_api() -> AsyncIterator[Api]:
    """Serve on a free port of the loopback address."""
    api = Api()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.address = f"http://{host}:{port}"
    yield api
    await runner.cleanup()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with open_api() as found:
        yield found


def write_kubeconfig(file: Path, address: str, user: dict[str, Any]) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": address}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    file.write_bytes(orjson.dumps(config))
    return file


@pytest.fixture
async def open_client(
    api: Api, tmp_path: Path, clock: StillClock
) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that opens a client with the given credentials."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(*, address: str = "", prefix: str = "", **user: Any) -> Client:
            file = tmp_path / "kubeconfig"
            write_kubeconfig(file, (address or api.address) + prefix, user or {"token": "secret"})
            client = await connect(str(file), clock=clock)
            stack.push_async_callback(client.close)
            return client

        yield opened


@pytest.fixture
async def client(open_client: Callable[..., Awaitable[Client]]) -> Client:
    return await open_client()


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python refuses by default what Python refuses from 3.13 on."""
    default = ssl.create_default_context

    def stricter(*args: Any, **options: Any) -> ssl.SSLContext:
        context = default(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", stricter)


@pytest.fixture
def free_address() -> Iterator[str]:
    """A URL of this machine at which no server listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"
