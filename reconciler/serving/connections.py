"""Connections of the webhook port, with limits on their number and on the cost of each.

Any client that reaches the port can open connections and send nothing, or a byte from time to
time. So a connection has a deadline whenever data is due, and when there are too many, one that
never delivered a whole request is closed for the next one. The API server keeps few connections
and reuses them; they are closed last.

Such a client can also send more data than was requested. The memory of a connection before its
request is processed is limited at every stage: in the kernel, in the TLS layer, in the HTTP
parser and in the body. Multiplied by `--max-connections`, it stays small beside the memory of
the program.
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
"""Bytes that the kernel may buffer per connection; it doubles them for its bookkeeping."""

_PATROL: Final = 0.5
_ACCEPT_PAUSE: Final = 0.2
"""Seconds until the next attempt when the system has no file descriptors left."""

_log = logger("serving.connections")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        connections: Largest number of open connections.
        header_timeout: Seconds for the TLS handshake, and for the head of each request.
    """

    connections: int = 512
    header_timeout: float = 5.0


Context = Callable[[], ssl.SSLContext | None]
"""Returns the TLS context of the next connection."""


class TransportMetrics(Protocol):
    """The metrics of callers and their connections.

    Attributes:
        connections_closed: Those closed for their cost, by ``reason``.
        callers_refused: Requests of refused callers, by ``code``.
    """

    connections: Gauge
    connections_closed: Counter
    callers_refused: Counter


@dataclass(slots=True, kw_only=True)
class Listener:
    """Accepts connections and is the host of each.

    Attributes:
        answer: Called with each request.
        context: Called for each connection, so that its trusted CAs may change.
        buffer: Read buffer shared by all connections, until the protocol has consumed it.
    """

    answer: Callable[[Request, Connection], Awaitable[Response]]
    context: Context
    limits: ConnectionLimits
    metrics: TransportMetrics
    clock: Clock
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(BODY_BUFFER)))
    _connections: set[Connection] = field(default_factory=set)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _socket: socket.socket | None = None
    _date: tuple[int, bytes] = (0, b"")

    def start(self, listening: socket.socket) -> None:
        """Start to accept from a non-blocking socket that listens already."""
        self._socket = listening
        # Accepted sockets inherit the option.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._tasks = [
            asyncio.create_task(self._accept(listening), name="accept"),
            asyncio.create_task(self._patrol(), name="connections"),
        ]
        self.metrics.connections.set_function(lambda: len(self._connections))

    @property
    def is_used(self) -> bool:
        """Return whether there is any connection."""
        return bool(self._connections)

    async def close(self, within: float) -> None:
        """Stop accepting, wait up to a limit in seconds for requests, end all connections."""
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
        """Return the seconds within which a head has to arrive."""
        return self.limits.header_timeout

    def date(self) -> bytes:
        """Return the current time in the format of HTTP."""
        second = int(self.clock.monotonic())
        if self._date[0] != second:
            self._date = second, format_datetime(self.clock.now(), usegmt=True).encode()
        return self._date[1]

    def is_current(self, connection: Connection) -> bool:
        """Return whether a connection was accepted with the current context."""
        return connection.detail("sslcontext") is self.context()

    def refuse(self, connection: Connection, reason: str) -> None:
        """Abort a connection for its cost."""
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
        # In `_accept`, a variable would keep the last connection until the next one.
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
            # Clients reconnect if they need to; a scanner's bytes are not worth a log line.
            self._connections.discard(connection)
            self._left.set()
            accepted.close()
        finally:
            connection.begun()

    async def _make_room(self) -> None:
        """Return when there is room for one more connection, closing another one if necessary."""
        while len(self._connections) >= self.limits.connections:
            self._left.clear()
            # Closing a connection without a complete request loses nothing.
            idle = [item for item in self._connections if item.stage is not Stage.ANSWER]
            if idle:
                chosen = min(idle, key=lambda item: (item.proven, item.used))
                # It closes only in later turns of the loop, and must not be chosen again.
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
            # Data that arrived while this process was stalled has not been read yet.
            late = now - begun - _PATROL
            for item in self._connections:
                item.put_off(late)
            for item in [item for item in self._connections if item.deadline < now]:
                item.overdue()
