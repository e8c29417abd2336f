"""A proxy between the programs and the API server that injects network and server faults."""

import asyncio
import contextlib
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from devcluster.binaries import Binaries
from devcluster.cluster import Cluster, ControlPlane
from devcluster.credentials import ADMIN, write_kubeconfig
from reconciler.clock import SystemClock
from reconciler.serving.pki import make_ca, make_serving
from tests.https import HOST, serve_https

_HOP = frozenset({"connection", "content-length", "host", "transfer-encoding"})
_STARTED_WITHIN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """The faults that the proxy injects; only `silent` and `delay` apply to watches.

    Attributes:
        delay: Seconds before a call is forwarded.
        every: Every n-th call gets the fault that the next three attributes select; 0 for no call.
        status: The proxy answers the call with this status code and does not forward it.
        reset: The proxy aborts the connection and does not forward the call.
        unanswered: The proxy forwards the call and aborts the connection before the answer.
        silent: Watches stay open and deliver nothing, not even their end.
        kinds: The plurals whose watches are silent; empty for all.
    """

    delay: float = 0.0
    every: int = 0
    status: int = 0
    reset: bool = False
    unanswered: bool = False
    silent: bool = False
    kinds: frozenset[str] = frozenset()

    def silences(self, path: str) -> bool:
        """Return whether a watch of the collection with this path delivers nothing."""
        return self.silent and (not self.kinds or path.rpartition("/")[2] in self.kinds)


CALM = Disturbance()


class Proxy:
    """Terminates TLS, disturbs calls and forwards them, in a thread with its own event loop.

    Attributes:
        disturbance: The current disturbance; may be set from any thread.
        silenced: How often a chunk or the end of a silent watch was held back.
        server: The URL of the proxy.
        bundle: The CA certificate that clients of the proxy have to trust.
    """

    def __init__(self, upstream: str, trust: ssl.SSLContext) -> None:
        self.disturbance = CALM
        self.silenced = 0
        self._upstream = upstream
        self._trust = trust
        now = SystemClock().now()
        ca = make_ca(now)
        self.bundle = ca.bundle
        self._pair = make_serving(ca, [HOST], now)
        self.server = ""
        self._calls = 0
        self._watches: list[web.Request] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._started = threading.Event()

    def cut(self) -> None:
        """Abort the connections of all open watches."""
        self._do(self._cut)

    @contextlib.contextmanager
    def running(self) -> Iterator["Proxy"]:
        """Forward calls until the context ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        thread.start()
        assert self._started.wait(_STARTED_WITHIN), "the proxy does not start"
        try:
            yield self
        finally:
            self._do(self._stopped.set)
            thread.join()

    def _do(self, work: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(work)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:

            async def answer(request: web.Request) -> web.StreamResponse:
                return await self._answer(session, request)

            app.router.add_route("*", "/{path:.*}", answer)
            async with serve_https(app, self._pair) as self.server:
                self._started.set()
                await self._stopped.wait()
                self._cut()

    async def _answer(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        disturbance = self.disturbance
        watch = request.query.get("watch") in {"1", "true"}
        await asyncio.sleep(disturbance.delay)
        if not watch and disturbance.every:
            self._calls += 1
            if self._calls % disturbance.every == 0:
                return await self._disturbed(session, request, disturbance)
        return await self._passed_on(session, request, watch=watch)

    async def _disturbed(
        self, session: aiohttp.ClientSession, request: web.Request, disturbance: Disturbance
    ) -> web.StreamResponse:
        if disturbance.status:
            return web.Response(
                status=disturbance.status, text="disturbed", headers={"Retry-After": "1"}
            )
        if disturbance.unanswered:
            async with self._call(session, request) as answer:
                await answer.read()
        elif not disturbance.reset:
            return await self._passed_on(session, request, watch=False)
        _break(request)
        return web.Response()

    def _call(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> "aiohttp.client._RequestContextManager":
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _HOP]
        data = request.content if request.can_read_body else None
        return session.request(
            request.method, f"{self._upstream}{request.raw_path}", headers=headers, data=data
        )

    async def _passed_on(
        self, session: aiohttp.ClientSession, request: web.Request, *, watch: bool
    ) -> web.StreamResponse:
        try:
            async with self._call(session, request) as answer:
                headers = [(k, v) for k, v in answer.headers.items() if k.lower() not in _HOP]
                if not watch:
                    return web.Response(
                        status=answer.status, headers=dict(headers), body=await answer.read()
                    )
                response = web.StreamResponse(status=answer.status, headers=dict(headers))
                await response.prepare(request)
                self._watches.append(request)
                try:
                    async for chunk in answer.content.iter_any():
                        await self._heard(request.path)
                        await response.write(chunk)
                    # The end of a silent watch is held back too.
                    await self._heard(request.path)
                finally:
                    self._watches.remove(request)
                return response
        except (aiohttp.ClientError, OSError):
            # If the connection to the API server breaks, break the one to the client too.
            _break(request)
            return web.Response()

    async def _heard(self, path: str) -> None:
        self.silenced += self.disturbance.silences(path)
        while self.disturbance.silences(path):  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.05)

    def _cut(self) -> None:
        for request in self._watches:
            _break(request)


def _break(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


@contextlib.contextmanager
def open_proxy(plane: ControlPlane, binaries: Binaries) -> Iterator[tuple[Proxy, Cluster]]:
    """Yield a proxy in front of a control plane, and the cluster as reached through the proxy."""
    trust = ssl.create_default_context(cafile=str(plane.credentials.ca))
    with Proxy(plane.server, trust).running() as proxy:
        folder = plane.directory / "behind-the-proxy"
        folder.mkdir()
        address = {
            "server": proxy.server,
            "certificate-authority-data": b64encode(proxy.bundle).decode(),
        }
        kubeconfig = write_kubeconfig(
            folder / "kubeconfig",
            address=address,
            user=ADMIN,
            token=plane.credentials.token_of[ADMIN],
        )
        yield proxy, Cluster.connect(kubeconfig, folder, binaries.command("kubectl"))
