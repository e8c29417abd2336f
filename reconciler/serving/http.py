"""HTTP for webhooks: limits, errors that state a remedy, and a lossless shutdown."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from reconciler.clock import Clock
from reconciler.observe.logs import logger
from reconciler.serving.bodies import SMALL, Bodies, Refused
from reconciler.serving.callers import Callers
from reconciler.serving.connections import ConnectionLimits, Context, Listener, TransportMetrics
from reconciler.serving.messages import JSON, Request, Response, error_response
from reconciler.serving.protocol import Connection
from reconciler.serving.review import BadReview

Respond = Callable[[bytes], Awaitable[bytes]]
"""Returns the answer to a body; may raise `BadReview`."""
Unknown = Callable[[Request], Response]
"""Answers requests that no route handles."""

_log = logger("serving.http")

_LONGEST_FAREWELL = 10.0
"""Seconds after which the shutdown stops waiting for callers that keep sending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """The transport settings of a server.

    Attributes:
        drain_timeout: Seconds for requests in flight at shutdown.
        farewell: Seconds without a request that must pass before that. Until then, each answer
            asks its caller to reconnect.
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
        self, transport: Transport, route: Callable[[str], Respond | None], unknown: Unknown
    ) -> None:
        """Initialize with the request handlers.

        Args:
            transport: Settings that apply to all paths.
            route: Returns the handler for a POST to a path, or None for an unknown path.
            unknown: Handles all other requests.
        """
        self._transport = transport
        self._route = route
        self._unknown = unknown
        self._ending = False
        self._asked = 0.0
        self._listener: Listener | None = None

    async def start(self, listening: socket.socket, context: Context) -> None:
        """Start to answer on a non-blocking socket that listens already."""
        self._listener = Listener(
            answer=self._answer,
            context=context,
            limits=self._transport.limits,
            metrics=self._transport.metrics,
            clock=self._transport.clock,
        )
        self._listener.start(listening)

    async def close(self) -> None:
        """End every connection after its next answer, wait for requests in flight, close.

        A connection closed between two requests might lose the second one in flight, and the API
        server does not retry a webhook call.
        """
        self._ending = True
        if self._listener is None:
            return
        if self._listener.is_used:
            await self._take_leave()
        await self._listener.close(self._transport.drain_timeout)

    async def _take_leave(self) -> None:
        """Wait until callers have stopped using their connections."""
        clock = self._transport.clock
        self._asked = begun = clock.monotonic()
        while (now := clock.monotonic()) < begun + _LONGEST_FAREWELL:
            left = self._asked + self._transport.farewell - now
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def _answer(self, request: Request, connection: Connection) -> Response:
        """Answer a request if its caller is accepted."""
        self._asked = self._transport.clock.monotonic()
        if self._transport.callers.authenticated:
            certificate = cast("Mapping[str, Any] | None", connection.detail("peercert"))
            if refusal := self._transport.callers.refusal(certificate):
                code, text = refusal
                self._transport.metrics.callers_refused.labels(code=str(code)).inc()
                connection.last()
                return error_response(code, text)
            connection.prove()
        response = await self._of_known(request, connection)
        if self._ending or (self._listener and not self._listener.is_current(connection)):
            connection.last()
        return response

    async def _of_known(self, request: Request, connection: Connection) -> Response:
        respond = self._route(request.path) if request.method == "POST" else None
        if respond is None:
            return self._unknown(request)
        if request.content_type != JSON:
            found = request.content_type or "of no type"
            connection.last()
            return error_response(415, f"the body is {found}, expected {JSON}")
        try:
            if self._transport.bodies.size_of(request) <= SMALL:
                body = await self._transport.bodies.read(request, connection)
                connection.prove()
                return Response(body=await respond(body))
            async with self._transport.bodies.place(request, connection) as body:
                connection.prove()
                return Response(body=await respond(body))
        except Refused as error:
            _log.warning("webhook request refused", reason=str(error))
            connection.last()
            return error_response(error.code, str(error))
        except BadReview as error:
            return error_response(400, str(error))
