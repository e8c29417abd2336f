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
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Final, Protocol

from prometheus_client import Counter, Gauge

from reconciler.clock import Clock
from reconciler.observe.logs import logger
from reconciler.serving.messages import Request, Response
from reconciler.serving.protocol import BODY_BUFFER, Connection, Stage

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


@dataclass(slots=True, kw_only=True)
class Listener:
    """Accepts connections, and is the host of each.

    Attributes:
        answer: Asked about each request.
        context: Asked for each connection, so that what it trusts may change.
        buffer: What was read last, of whichever connection, until its protocol has taken it.
    """

    answer: Callable[[Request, Connection], Awaitable[Response]]
    context: Context
    limits: ConnectionLimits
    metrics: ConnectionMetrics
    clock: Clock
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(BODY_BUFFER)))
    _connections: set[Connection] = field(default_factory=set)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _socket: socket.socket | None = None
    _date: tuple[int, bytes] = (0, b"")

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

    @property
    def is_used(self) -> bool:
        """Return whether anybody is connected."""
        return bool(self._connections)

    async def close(self, within: float) -> None:
        """Accept no more, let so many seconds for the requests in flight, end all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._socket is not None:
            self._socket.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._connections:
                    for item in [item for item in self._connections if not item.is_answering]:
                        item.close()
                    self._left.clear()
                    await self._left.wait()
        for item in list(self._connections):
            item.abort()

    @property
    def head_timeout(self) -> float:
        """Return the seconds in which a head has to come."""
        return self.limits.header_timeout

    def date(self) -> bytes:
        """Return the time of day as HTTP writes it."""
        second = int(self.clock.monotonic())
        if self._date[0] != second:
            self._date = second, format_datetime(self.clock.now(), usegmt=True).encode()
        return self._date[1]

    def is_current(self, connection: Connection) -> bool:
        """Return whether a connection was accepted with the context of now."""
        return connection.detail("sslcontext") is self.context()

    def refuse(self, connection: Connection, reason: str) -> None:
        """End a connection for its cost."""
        self.metrics.connections_closed.labels(reason).inc()
        connection.abort()

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
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
        connection.begin(asyncio.create_task(self._shake_hands(connection, accepted)))

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
            connection.begun()

    async def _make_room(self) -> None:
        """Return when one more connection may be there, if need be in place of another."""
        while len(self._connections) >= self.limits.connections:
            self._left.clear()
            # Of those that are not here as a whole yet, nothing is lost.
            idle = [item for item in self._connections if item.stage is not Stage.ANSWER]
            if idle:
                chosen = min(idle, key=lambda item: (item.proven, item.used))
                # It is gone with the next turns of the loop, and must not be chosen again.
                self._connections.discard(chosen)
                self.refuse(chosen, "crowded")
                return
            await self._left.wait()

    async def _patrol(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            await asyncio.sleep(_PATROL)
            now = loop.time()
            # What came while this process stood still has not been looked at yet.
            late = now - begun - _PATROL
            for item in self._connections:
                item.put_off(late)
            for item in [item for item in self._connections if item.deadline < now]:
                item.overdue()
