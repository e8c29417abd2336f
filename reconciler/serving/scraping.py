"""Metrics over HTTPS, for callers whose token may read them.

As with controller-runtime, the API server authenticates the token (TokenReview) and authorizes
``get`` on the path (SubjectAccessReview). The certificate is made at the start and not signed by
any CA that clients know.
"""

import asyncio
import contextlib
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import (
    CONTENT_TYPE_LATEST,
    CONTENT_TYPE_PLAIN_0_0_4,
    generate_latest,
)

from reconciler.clock import Clock
from reconciler.errors import ClusterError
from reconciler.recent import Recent

PATH: Final = "/metrics"
_REMEMBERED = 10.0
"""Seconds for which a decision of the API server is cached."""
_MOST = 256
"""Limit of cached decisions; the oldest is evicted first."""
_AT_ONCE = 4
"""Limit of concurrent reviews; other callers wait."""
_PATIENCE = 5.0
_LONGEST = 16 * 1024
"""Limit of a token in characters; that of a ServiceAccount has about a thousand."""


class _Reviewers(Protocol):
    """Authentication and authorization of tokens, as in `reconciler.kube.tokenreviews`."""

    async def user(self, token: str) -> Mapping[str, Any] | None: ...
    async def may_get(self, user: Mapping[str, Any], path: str) -> bool: ...


class Scrapers:
    """Decides which callers may read the metrics."""

    def __init__(self, reviewers: _Reviewers, clock: Clock) -> None:
        self._reviewers = reviewers
        self._clock = clock
        # By digest, so that a token is in memory only during its request.
        self._known: Recent[bytes, tuple[float, int]] = Recent(_MOST)
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def status(self, authorization: str) -> int:
        """Return 200 for a header that authorizes reading, else the status of the refusal."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        wrong = not token or not token.isascii() or len(token) > _LONGEST
        if scheme.lower() != "bearer" or wrong:
            return web.HTTPUnauthorized.status_code
        key = hashlib.sha256(token.encode()).digest()
        known = self._remembered(key)
        if known is None:
            async with self._asking:
                known = self._remembered(key) or await self._asked(token)
            self._remember(key, known)
        return known

    def _remembered(self, key: bytes) -> int | None:
        until, status = self._known.get(key, (0.0, 0))
        return status if self._clock.monotonic() < until else None

    def _remember(self, key: bytes, status: int) -> None:
        if status == web.HTTPServiceUnavailable.status_code:
            return
        self._known.keep(key, (self._clock.monotonic() + _REMEMBERED, status))

    async def _asked(self, token: str) -> int:
        try:
            async with asyncio.timeout(_PATIENCE):
                user = await self._reviewers.user(token)
                if user is None:
                    return web.HTTPUnauthorized.status_code
                if await self._reviewers.may_get(user, PATH):
                    return web.HTTPOk.status_code
                return web.HTTPForbidden.status_code
        except (ClusterError, TimeoutError):
            return web.HTTPServiceUnavailable.status_code


_WHY = {
    401: "show a token of this cluster: Authorization: Bearer TOKEN\n",
    403: f"this user may not get {PATH}: bind them a ClusterRole with nonResourceURLs [{PATH}]\n",
    503: "the API server could not verify the token\n",
}


@contextlib.asynccontextmanager
async def scraped(
    listener: socket.socket | None,
    registry: CollectorRegistry,
    reviewers: _Reviewers,
    clock: Clock,
    more: Mapping[str, Callable[[], str]] | None = None,
) -> AsyncIterator[None]:
    """Serve the metrics of a process on a socket that listens already; do nothing for None.

    Further metrics in text form may be served at paths of their own, to the callers that may
    read those at `PATH`.
    """
    if listener is None:
        yield
        return
    further = more or {}
    scrapers = Scrapers(reviewers, clock)

    async def metrics(request: web.Request) -> web.Response:
        status = await scrapers.status(request.headers.get("Authorization", ""))
        if status != web.HTTPOk.status_code:
            return web.Response(text=_WHY[status], status=status)
        text = further.get(request.path)
        body = generate_latest(registry) if text is None else text().encode()
        form = CONTENT_TYPE_LATEST if text is None else CONTENT_TYPE_PLAIN_0_0_4
        return web.Response(body=body, headers={"Content-Type": form})

    app = web.Application()
    for path in (PATH, *further):
        app.router.add_get(path, metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener, ssl_context=_context(clock)).start()
        yield
    finally:
        await runner.cleanup()


def _context(clock: Clock) -> ssl.SSLContext:
    # It takes 8 MB of a controller's memory, and most metrics are read by HTTP.
    from reconciler.serving.callers import Callers  # noqa: PLC0415
    from reconciler.serving.certificates import load_pair, server_context  # noqa: PLC0415
    from reconciler.serving.pki import make_ca, make_serving  # noqa: PLC0415

    context, now = server_context(Callers()), clock.now()
    load_pair(context, make_serving(make_ca(now), [socket.gethostname()], now))
    return context
