"""HTTP in front of webhooks: limits, errors that say what to do, and an end without loss."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from prometheus_client import Counter

from reconciler.clock import Clock
from reconciler.observe.logs import logger
from reconciler.serving.bodies import SMALL, Bodies, Refused
from reconciler.serving.callers import Callers
from reconciler.serving.connections import (
    ConnectionLimits,
    ConnectionMetrics,
    Context,
    Listener,
)
from reconciler.serving.messages import JSON, Request, Response, error_response
from reconciler.serving.protocol import Connection
from reconciler.serving.review import BadReview

Respond = Callable[[bytes], Awaitable[bytes]]
"""Returns the answer to a body; may raise `BadReview`."""
Unknown = Callable[[Request], Response]
"""Answers what nobody responds to."""

_log = logger("serving.http")

_LONGEST_FAREWELL = 10.0
"""Seconds after which the end does not wait for callers that go on."""


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
        self, transport: Transport, route: Callable[[str], Respond | None], unknown: Unknown
    ) -> None:
        """Take what answers.

        Args:
            transport: What holds for all paths.
            route: Returns what answers a POST to a path, None for a path that is unknown.
            unknown: Answers whatever else comes.
        """
        self._transport = transport
        self._route = route
        self._unknown = unknown
        self._ending = False
        self._asked = 0.0
        self._listener: Listener | None = None

    async def start(self, listening: socket.socket, context: Context) -> None:
        """Begin to answer on a socket that listens already and does not block."""
        self._listener = Listener(
            answer=self._answer,
            context=context,
            limits=self._transport.limits,
            metrics=self._transport.metrics,
            clock=self._transport.clock,
        )
        self._listener.start(listening)

    async def close(self) -> None:
        """End every connection after its next answer, let requests in flight end, close.

        A connection that were closed between two requests might meet the second one on its way,
        and the API server calls a webhook once.
        """
        self._ending = True
        if self._listener is None:
            return
        if self._listener.is_used:
            await self._take_leave()
        await self._listener.close(self._transport.drain_timeout)

    async def _take_leave(self) -> None:
        """Wait until the callers have left the connections that they use."""
        clock = self._transport.clock
        self._asked = begun = clock.monotonic()
        while (now := clock.monotonic()) < begun + _LONGEST_FAREWELL:
            left = self._asked + self._transport.farewell - now
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def _answer(self, request: Request, connection: Connection) -> Response:
        """Answer callers that may call."""
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
