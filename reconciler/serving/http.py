"""HTTP in front of webhooks: limits, errors that say what to do, and an end without loss."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from prometheus_client import Counter

from reconciler.clock import Clock
from reconciler.observe.logs import logger
from reconciler.serving.bodies import Bodies, Refused
from reconciler.serving.callers import Callers
from reconciler.serving.connections import (
    BODY_BUFFER,
    IDLE_TIMEOUT,
    ConnectionLimits,
    ConnectionMetrics,
    Context,
    Listener,
)
from reconciler.serving.review import BadReview

JSON: Final = "application/json"

Respond = Callable[[web.Request, bytes], Awaitable[web.Response]]
"""Answers a request whose body was read; may raise `BadReview`."""

_log = logger("serving.http")


def _is_ours(record: logging.LogRecord) -> bool:
    """Tell whether a fault is one of this server, and not of a caller who is told, or has left."""
    told = (HttpProcessingError, ConnectionError)
    return not (record.exc_info and isinstance(record.exc_info[1], told))


_http_log = logging.getLogger("serving.http.server")
_http_log.addFilter(_is_ours)

_LONGEST_FAREWELL = 10.0
"""Seconds after which the end does not wait for callers that go on."""
_LINGERING = 2.0
"""Seconds in which a body that nobody wants may still come, so that its sender reads why."""


class TransportMetrics(ConnectionMetrics, Protocol):
    """What is counted of callers and their connections."""

    @property
    def callers_refused(self) -> Counter:
        """Return the requests of callers that may not call, by ``code``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What a server does with bytes.

    Attributes:
        drain_timeout: Seconds that requests in flight get at the end.
        farewell: Seconds without any request before that. Until then an answer tells its caller to
            connect anew.
    """

    bodies: Bodies
    drain_timeout: float
    clock: Clock
    metrics: TransportMetrics
    callers: Callers = field(default_factory=Callers)
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    farewell: float = 2.0


class HttpServer:
    """Serves paths over TLS until it is closed."""

    def __init__(
        self, transport: Transport, posts: Mapping[str, Respond], unknown: Handler
    ) -> None:
        """Take what answers.

        Args:
            transport: What holds for all paths.
            posts: What answers a POST, by the pattern of its path.
            unknown: Answers whatever else comes.
        """
        self._transport = transport
        self._ending = False
        self._asked = 0.0
        self._listener: Listener | None = None
        app = web.Application(middlewares=[self._guard])
        for path, respond in posts.items():
            app.router.add_post(path, self._reading(respond))
        app.router.add_route("*", "/{path:.*}", unknown)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=transport.drain_timeout,
            keepalive_timeout=IDLE_TIMEOUT,
            lingering_time=_LINGERING,
            auto_decompress=False,
            # It stops reading when it has twice as much.
            read_bufsize=BODY_BUFFER // 2,
            logger=_http_log,
        )

    async def start(self, listening: socket.socket, context: Context) -> None:
        """Begin to answer on a socket that listens already and does not block."""
        await self._runner.setup()
        if self._runner.server is None:
            raise RuntimeError("the server is set up")
        self._listener = Listener(
            server=self._runner.server,
            context=context,
            limits=self._transport.limits,
            metrics=self._transport.metrics,
        )
        self._listener.start(listening)

    async def close(self) -> None:
        """End every connection after its next answer, let requests in flight end, close.

        A connection that were closed between two requests might meet the second one on its way,
        and the API server calls a webhook once.
        """
        self._ending = True
        server = self._runner.server
        if server is not None and server.connections:
            await self._take_leave()
        if self._listener is not None:
            await self._listener.stop_accepting()
        await self._runner.cleanup()

    async def _take_leave(self) -> None:
        """Wait until the callers have left the connections that they use."""
        clock = self._transport.clock
        self._asked = begun = clock.monotonic()
        while (now := clock.monotonic()) < begun + _LONGEST_FAREWELL:
            left = self._asked + self._transport.farewell - now
            if left <= 0:
                return
            await asyncio.sleep(left)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer callers that may call, and keep the time of their connections."""
        listener = self._started
        connection = listener.of(request)
        self._asked = self._transport.clock.monotonic()
        with connection.answering():
            certificate = _certificate(request)
            if refusal := self._transport.callers.refusal(certificate):
                code, text = refusal
                self._transport.metrics.callers_refused.labels(code=str(code)).inc()
                response: web.StreamResponse = error_response(code, text)
                response.force_close()
                return response
            if certificate is not None:
                connection.trust()
            response = await handler(request)
            if self._ending or not connection.whole or not listener.is_current(request):
                response.force_close()
            return response

    @property
    def _started(self) -> Listener:
        if self._listener is None:
            raise RuntimeError("the server is not started")
        return self._listener

    def _reading(self, respond: Respond) -> Handler:
        """Return what answers after the body was read, within the limits."""

        async def answer(http: web.Request) -> web.Response:
            if http.content_type != JSON:
                return error_response(415, f"the body is {http.content_type}, expected {JSON}")
            connection = self._started.of(http)
            try:
                async with self._transport.bodies.read(http, connection) as body:
                    connection.read()
                    return await respond(http, body)
            except Refused as error:
                _log.warning("webhook request refused", reason=str(error))
                response = error_response(error.code, str(error))
                response.force_close()
                return response
            except BadReview as error:
                return error_response(400, str(error))

        return answer


def _certificate(http: web.Request) -> Mapping[str, Any] | None:
    """Return the caller's certificate, which was verified, None without one."""
    found: Mapping[str, Any] | None = http.get_extra_info("peercert")
    return found


def error_response(code: int, message: str) -> web.Response:
    """Return an error in the form that the API server shows to people."""
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "message": f"kube-retrofit: {message}",
    }
    return web.Response(status=code, body=orjson.dumps(status), content_type=JSON)
