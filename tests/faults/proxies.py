"""Between the programs and the API server: a proxy that can hold back what a watch is sent."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from reconciler.cli.dev.binaries import Binaries
from reconciler.cli.dev.cluster import Cluster, ControlPlane

HOST = "127.0.0.1"
_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length"})


class Proxy:
    """Passes everything on, but holds back the bytes of watches while it is told to.

    Attributes:
        held: Watches that were, or are, held back.
    """

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        self.held = 0
        self._silenced: frozenset[str] = frozenset()
        self._passes = asyncio.Event()
        self._server = server
        self._session = session

    def silence(self, *plurals: str) -> None:
        """Let the watches of these kinds stay open and give nothing, not even their end."""
        self._silenced = frozenset(plurals)
        self._passes.clear()

    def release(self) -> None:
        """Let everything pass that is held back."""
        self._silenced = frozenset()
        self._passes.set()

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        headers = {key: item for key, item in http.headers.items() if key.lower() not in _HOP}
        async with self._session.request(
            http.method,
            f"{self._server}{http.path_qs}",
            headers=headers,
            data=await http.read() or None,
            skip_auto_headers=("Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as found:
            kept = {key: item for key, item in found.headers.items() if key.lower() not in _HOP}
            response = web.StreamResponse(status=found.status, headers=kept)
            await response.prepare(http)
            async for data in found.content.iter_any():
                await self._let_pass(http)
                with contextlib.suppress(ConnectionError):
                    await response.write(data)
            await self._let_pass(http)
            with contextlib.suppress(ConnectionError):
                await response.write_eof()
            return response

    async def _let_pass(self, http: web.Request) -> None:
        if "watch" in http.query and http.path.rpartition("/")[2] in self._silenced:
            self.held += 1
            await self._passes.wait()


class Behind(Cluster):
    """A control plane whose programs reach it through a proxy; people reach it themselves."""

    def __init__(
        self, plane: ControlPlane, binaries: Binaries, directory: Path, server: str
    ) -> None:
        super().__init__(
            kubeconfig=plane.kubeconfig,
            directory=directory,
            kubectl=binaries.command("kubectl"),
            address={"server": server},
        )


@contextlib.asynccontextmanager
async def open_proxy(plane: ControlPlane) -> AsyncIterator[tuple[Proxy, str]]:
    """Give a proxy in front of a control plane, and its address."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        proxy = Proxy(plane.server, session)
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", proxy.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        address: Any = runner.addresses[0]
        try:
            yield proxy, f"http://{HOST}:{address[1]}"
        finally:
            proxy.release()
            await runner.cleanup()
