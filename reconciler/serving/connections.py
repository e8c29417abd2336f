"""Connections of the webhook port: how many there may be, and what each may cost.

Whoever reaches the port can open connections and send nothing, or a byte from time to time. So a
connection gets a deadline whenever something is expected of it, and where there are too many, one
that never brought a whole request makes room for the next one. The API server keeps few
connections and uses them again and again; they go last.

Whoever reaches the port can also send more than anybody has asked for. What a connection holds
before its request is worked on is limited on the whole way: in the kernel, in the TLS layer, in
the HTTP parser and in the body. Multiplied by `--max-connections` it stays small beside the
memory of the program.
"""

import asyncio
import contextlib
import enum
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from aiohttp import web
from prometheus_client import Counter, Gauge
from typing_extensions import override

from reconciler.observe.logs import logger

IDLE_TIMEOUT: Final = 120.0
"""Seconds that a connection may lie idle: the API server closes its own after 90 s, and should
not meet one that is being closed here."""

HEAD_BUFFER: Final = 16 * 1024
"""Bytes that are read at once while a head is expected."""
BODY_BUFFER: Final = 64 * 1024
"""Bytes that are read at once from a body."""
_UNASKED: Final = 8 * HEAD_BUFFER
"""Bytes of requests that nothing has begun to work on: a head, and what comes in the few turns of
the loop until its handler runs."""
_RECORD: Final = 16 * 1024 + 512
"""Bytes that a TLS record has at most, and some more."""
_RECEIVE_BUFFER: Final = 64 * 1024
"""Bytes that the kernel may hold for each connection; it doubles them for its own needs."""

_PATROL: Final = 0.5
_ACCEPT_PAUSE: Final = 0.2
"""Seconds until the next try where the system has no file descriptors left."""

_log = logger("serving.connections")


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


class ConnectionMetrics(Protocol):
    """What is counted of connections."""

    @property
    def connections(self) -> Gauge:
        """Return those that are open."""
        ...

    @property
    def connections_closed(self) -> Counter:
        """Return those that were ended for their cost, by ``reason``."""
        ...


class Stage(enum.Enum):
    """What a connection is at."""

    HEAD = enum.auto()
    """Nothing of a request is there, or a part of its head."""
    BODY = enum.auto()
    """The body of a request is not there yet."""
    ANSWER = enum.auto()
    """A whole request is there, and its answer is being made."""
    REST = enum.auto()
    """The answer was made before all was read; with it the connection ends."""


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One connection: hands what comes to aiohttp's protocol in slices, and keeps the time.

    Attributes:
        proven: Its caller showed a certificate that counts, or has brought a whole request.
        stage: What it is at.
    """

    def __init__(self, listener: "Listener") -> None:
        self.proven = False
        self.stage = Stage.HEAD
        self.deadline = float("inf")
        self.used = listener.now()
        self.task: asyncio.Task[None] | None = None
        self._listener = listener
        self._unasked = 0
        self._lost = False
        self._patience: asyncio.Timeout | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._handler: web.RequestHandler | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asked by its class: those of uvloop with TLS are none of asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)
        if transport.get_extra_info("sslcontext") is not None:
            # Below the lower limit there must be room for a record that is not whole, or
            # reading would never go on.
            cast("_TlsTransport", transport).set_read_buffer_limits(2 * _RECORD, _RECORD)
        self._handler = self._listener.serve(self)
        self._expect_head()
        self._handler.connection_made(transport)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        large = self.stage in {Stage.BODY, Stage.REST}
        return self._listener.buffer[: BODY_BUFFER if large else HEAD_BUFFER]

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._handler is None:
            return
        if self.stage in {Stage.HEAD, Stage.ANSWER}:
            self._unasked += nbytes
            if self._unasked > _UNASKED:
                self._listener.metrics.connections_closed.labels("unasked").inc()
                self.abort()
                return
        if self.stage is Stage.HEAD and self.deadline == float("inf"):
            self._expect_head()
        self._handler.data_received(bytes(self._listener.buffer[:nbytes]))

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
        self._lost = True
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._listener.now())
        handler, self._handler, self._transport = self._handler, None, None
        if handler is not None:
            self._listener.leave(self, handler)
            handler.connection_lost(exc)

    def abort(self) -> None:
        """End it now, whatever it is doing."""
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """The head of a request is there, and until the end an answer is being made."""
        self.stage, self._unasked = Stage.BODY, 0
        self.deadline = float("inf")
        try:
            yield
        finally:
            self.stage = Stage.HEAD if self.whole else Stage.REST
            self.used = self._listener.now()
            if self._unasked or self.stage is Stage.REST:
                self._expect_head()

    @contextlib.asynccontextmanager
    async def patience(self, end: float) -> AsyncIterator[None]:
        """Wait for something until a time of the loop, and no longer than the caller is there.

        Raises:
            TimeoutError: It is too late.
            ConnectionResetError: The caller has left.
        """
        try:
            async with asyncio.timeout_at(end) as self._patience:
                yield
        except TimeoutError:
            if self._lost:
                raise ConnectionResetError("the caller has left") from None
            raise
        finally:
            self._patience = None

    def trust(self) -> None:
        """The caller showed who it is."""
        self.proven = True

    def read(self) -> None:
        """All of a request is there: what comes now belongs to the next one."""
        self.proven, self.stage, self._unasked = True, Stage.ANSWER, 0

    @property
    def whole(self) -> bool:
        """Tell whether all of the request was read that is being answered."""
        return self.stage is Stage.ANSWER

    def _expect_head(self) -> None:
        self.deadline = self._listener.now() + self._listener.limits.header_timeout


@dataclass(slots=True, kw_only=True)
class Listener:
    """Accepts connections for an aiohttp server.

    Attributes:
        server: Makes the protocol of each connection.
        context: Asked for each, so that what it trusts may change.
        buffer: What was read last, of whichever connection, until its protocol has taken it.
    """

    server: web.Server
    context: Context
    limits: ConnectionLimits
    metrics: ConnectionMetrics
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(BODY_BUFFER)))
    _connections: set[Connection] = field(default_factory=set)
    _of_handler: dict[web.RequestHandler, Connection] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _socket: socket.socket | None = None

    def start(self, listening: socket.socket) -> None:
        """Begin to accept from a socket that listens already and does not block."""
        self._socket = listening
        # Those that are accepted have what it has.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
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
        """Return the connection that a request came by.

        Raises:
            ConnectionResetError: It is closed.
        """
        found = self._of_handler.get(http.protocol)
        if found is None:
            raise ConnectionResetError("the caller has left")
        return found

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
            self._welcome(accepted)

    def _welcome(self, accepted: socket.socket) -> None:
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
            # Of those that are not here as a whole yet, nothing is lost.
            idle = [item for item in self._connections if item.stage is not Stage.ANSWER]
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
