"""Connections of the webhook port: how many there may be, and how long each may be silent.

Whoever reaches the port can open connections and send nothing, or a byte from time to time. So a
connection gets a deadline whenever something is expected of it, and where there are too many, one
that never brought a whole request makes room for the next one. The API server keeps few
connections and uses them again and again; they go last.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from aiohttp import web
from typing_extensions import override

from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics

IDLE_TIMEOUT: Final = 120.0
"""Seconds that a connection may lie idle: the API server closes its own after 90 s, and should
not meet one that is being closed here."""

_PATROL: Final = 0.5
_ACCEPT_PAUSE: Final = 0.2
"""Seconds until the next try where the system has no file descriptors left."""

_log = logger("admission.connections")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a connection may cost.

    Attributes:
        connections: How many there may be.
        header_timeout: Seconds for the TLS handshake, and for the head of each request.
    """

    connections: int = 512
    header_timeout: float = 5.0


Context = Callable[[], ssl.SSLContext | None]
"""Returns the TLS context of the next connection."""


class Connection(asyncio.Protocol):
    """One connection: hands everything to aiohttp's protocol, and keeps the time.

    Attributes:
        proven: It has brought a request that a webhook could be asked about.
        busy: A request is being answered.
    """

    def __init__(self, listener: "Listener") -> None:
        self.proven = False
        self.busy = False
        self.deadline = float("inf")
        self.used = listener.now()
        self.task: asyncio.Task[None] | None = None
        self._listener = listener
        self._early = False
        self._transport: asyncio.WriteTransport | None = None
        self._handler: web.RequestHandler | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asked by its class: those of uvloop with TLS are none of asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._handler = self._listener.serve(self)
        self._expect_head()
        self._handler.connection_made(transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self.busy:
            self._early = True
        elif self.deadline == float("inf"):
            self._expect_head()
        if self._handler is not None:
            self._handler.data_received(data)

    @override
    def eof_received(self) -> None:
        if self._handler is not None:
            self._handler.eof_received()

    @override
    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    @override
    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._handler is not None:
            self._listener.leave(self, self._handler)
            self._handler.connection_lost(exc)

    def abort(self) -> None:
        """End it now, whatever it is doing."""
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """The head of a request is there, and until the end an answer is being made."""
        self.busy, self._early = True, False
        self.deadline = float("inf")
        try:
            yield
        finally:
            self.busy = False
            self.used = self._listener.now()
            if self._early:
                # The rest of a body that nobody read, or the next request.
                self._expect_head()

    def read(self) -> None:
        """All of a request is there: what comes now belongs to the next one."""
        self.proven, self._early = True, False

    def _expect_head(self) -> None:
        self.deadline = self._listener.now() + self._listener.limits.header_timeout


@dataclass(slots=True, kw_only=True)
class Listener:
    """Accepts connections for an aiohttp server.

    Attributes:
        server: Makes the protocol of each connection.
        context: Asked for each, so that what it trusts may change.
    """

    server: web.Server
    context: Context
    limits: ConnectionLimits
    metrics: Metrics
    _connections: set[Connection] = field(default_factory=set)
    _of_handler: dict[web.RequestHandler, Connection] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _socket: socket.socket | None = None

    def start(self, listening: socket.socket) -> None:
        """Begin to accept from a socket that listens already and does not block."""
        self._socket = listening
        self._tasks = [
            asyncio.create_task(self._accept(listening), name="accept"),
            asyncio.create_task(self._patrol(), name="connections"),
        ]
        self.metrics.connections.set_function(lambda: len(self._connections))

    async def stop_accepting(self) -> None:
        """Close the socket; connections that are open go on, and their time no longer counts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._socket is not None:
            self._socket.close()
        for item in [item for item in self._connections if item.task is not None]:
            item.abort()

    def now(self) -> float:
        """Return the monotonic time of deadlines."""
        return asyncio.get_running_loop().time()

    def of(self, http: web.Request) -> Connection:
        """Return the connection that a request came by."""
        return self._of_handler[http.protocol]

    def is_current(self, http: web.Request) -> bool:
        """Tell whether the connection of a request was accepted with the context of now."""
        return http.get_extra_info("sslcontext") is self.context()

    def serve(self, connection: Connection) -> web.RequestHandler:
        """Return what answers on a connection whose handshake is done."""
        handler = self.server()
        self._of_handler[handler] = connection
        return handler

    def leave(self, connection: Connection, handler: web.RequestHandler) -> None:
        """A connection is closed."""
        self._of_handler.pop(handler, None)
        self._connections.discard(connection)
        self._left.set()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("cannot accept a connection", reason=str(error))
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            accepted.setblocking(False)  # noqa: FBT003
            try:
                await self._make_room()
            except asyncio.CancelledError:
                accepted.close()
                raise
            connection = Connection(self)
            self._connections.add(connection)
            connection.task = asyncio.create_task(self._shake_hands(connection, accepted))

    async def _shake_hands(self, connection: Connection, accepted: socket.socket) -> None:
        loop, context = asyncio.get_running_loop(), self.context()
        limit = None if context is None else self.limits.header_timeout
        try:
            await loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=context, ssl_handshake_timeout=limit
            )
        except (OSError, asyncio.CancelledError):
            # Whoever wants something comes again; a scanner's bytes are no news.
            self._connections.discard(connection)
            self._left.set()
            accepted.close()
        finally:
            connection.task = None

    async def _make_room(self) -> None:
        """Return when one more connection may be there, if need be in place of another."""
        while len(self._connections) >= self.limits.connections:
            self._left.clear()
            idle = [item for item in self._connections if not (item.busy and item.proven)]
            if idle:
                chosen = min(idle, key=lambda item: (item.proven, item.used))
                self.metrics.connections_closed.labels("crowded").inc()
                # It is gone with the next turns of the loop, and must not be chosen again.
                self._connections.discard(chosen)
                chosen.abort()
                return
            await self._left.wait()

    async def _patrol(self) -> None:
        while True:
            begun = self.now()
            await asyncio.sleep(_PATROL)
            now = self.now()
            # What came while this process stood still has not been looked at yet.
            late = now - begun - _PATROL
            for item in self._connections:
                item.deadline += late
            for item in [item for item in self._connections if item.deadline < now]:
                self.metrics.connections_closed.labels("slow").inc()
                item.abort()
