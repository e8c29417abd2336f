"""HTTP server for /metrics, /healthz and /readyz."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import (
    CONTENT_TYPE_LATEST,
    CONTENT_TYPE_PLAIN_0_0_4,
    generate_latest,
)

Check = Callable[[], str | None]
"""Returns why a part is not ready, or None if it is."""


class Readiness:
    """The named checks of a process; each part adds its own before the server starts."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._notes: dict[str, Check] = {}
        self._stopping = ""

    def add(self, name: str, check: Check) -> None:
        """Add a check; it is called at every probe and must not block."""
        self._checks[name] = check

    def note(self, name: str, check: Check) -> None:
        """Add a note, which is shown without affecting readiness."""
        self._notes[name] = check

    def notes(self) -> dict[str, str]:
        """Return the current texts of the notes."""
        found = {name: check() for name, check in self._notes.items()}
        return {name: text for name, text in found.items() if text}

    def stop(self, reason: str = "the program is shutting down") -> None:
        """Report the process as not ready from now on."""
        self._stopping = reason

    def results(self) -> dict[str, str | None]:
        """Return the reason per check, or None if it is ready."""
        found = {name: check() for name, check in self._checks.items()}
        if self._stopping:
            found["running"] = self._stopping
        return found


class HealthServer:
    """Serves the probes and the metrics until it is closed.

    Further metrics in text form may be served at paths of their own. Without a registry, the
    metrics are served on another port.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None,
        readiness: Readiness,
        more: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        self._more = more or {}
        self._registry = registry
        self._readiness = readiness
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        for path in self._more:
            app.router.add_get(path, self._further)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        self._runner = web.AppRunner(app, access_log=None)

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Answer on a socket that listens already, and close it at the end."""
        try:
            await self._runner.setup()
            await web.SockSite(self._runner, listener).start()
            yield
        finally:
            await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        if self._registry is None:
            return _elsewhere()
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _further(self, request: web.Request) -> web.Response:
        if self._registry is None:
            return _elsewhere()
        body = self._more[request.path]().encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _health(self, _request: web.Request) -> web.Response:
        # Any answer shows that the event loop runs.
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        results = self._readiness.results()
        lines = [
            f"[+] {name}: ready" if reason is None else f"[-] {name}: {reason}"
            for name, reason in results.items()
        ]
        lines += [f"[!] {name}: {text}" for name, text in self._readiness.notes().items()]
        failed = any(reason is not None for reason in results.values())
        text = "\n".join([*lines, "not ready" if failed else "ready"]) + "\n"
        return web.Response(text=text, status=503 if failed else 200)


def _elsewhere() -> web.Response:
    return web.Response(text="served by HTTPS, on --secure-metrics-port\n", status=403)
