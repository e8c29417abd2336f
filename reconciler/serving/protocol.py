"""HTTP/1.1 on one connection: one request at a time, and a deadline for every expected step.

A client that sends data before its request is answered gets that answer, and then the connection
ends: the extra data is dropped, and HTTP requires the client to resend it (RFC 9112 9.3).
"""

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Awaitable
from typing import Final, Protocol, cast
from urllib.parse import unquote_to_bytes

import httptools
from typing_extensions import override

from reconciler.observe.logs import logger
from reconciler.serving.messages import CONTINUE, Request, Response, error_response, render

IDLE_TIMEOUT: Final = 120.0
"""Seconds that a connection may be idle: the API server closes its own after 90 s, and must not
use one that is being closed here."""

HEAD_BUFFER: Final = 16 * 1024
"""Bytes per read while a head is expected."""
BODY_BUFFER: Final = 64 * 1024
"""Bytes per read from a body; without a place, about twice as many are buffered."""
_UNASKED: Final = 8 * HEAD_BUFFER
"""Limit in bytes of a head, and of data sent before the previous request is answered."""
_RECORD: Final = 16 * 1024 + 512
"""Largest size of a TLS record in bytes, and some more."""

_LINGERING: Final = 2.0
"""Seconds in which unwanted data is drained, so that its sender can read the error."""
_READING: Final = 30.0
"""Seconds in which an answer has to be read: the API server waits no longer for one."""

_log = logger("serving.protocol")


class Stage(enum.Enum):
    """The stage of a connection."""

    IDLE = enum.auto()
    """No data of the next request has arrived."""
    HEAD = enum.auto()
    """A part of a head has arrived."""
    BODY = enum.auto()
    """The body of a request is not complete."""
    ANSWER = enum.auto()
    """A whole request has arrived, and its answer is being made."""
    TAKING = enum.auto()
    """The answer is sent, but the caller has not read all of it."""
    REST = enum.auto()
    """The last answer is sent, and further data is dropped."""


# Compared many times per request, and an enum member takes ten times as long as a global.
_IDLE, _HEAD, _BODY, _ANSWER, _TAKING, _REST = Stage


class _Host(Protocol):
    """What connections share, of which `connections.Listener` says more.

    The answer may raise `ConnectionError` if the caller has disconnected.
    """

    @property
    def buffer(self) -> memoryview: ...
    @property
    def head_timeout(self) -> float: ...
    def date(self) -> bytes: ...
    def answer(self, request: Request, connection: "Connection", /) -> Awaitable[Response]: ...
    def refuse(self, connection: "Connection", reason: str) -> None: ...
    def leave(self, connection: "Connection") -> None: ...


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One connection.

    Attributes:
        proven: Whether its caller presented a valid certificate or sent a whole request.
        deadline: Time at which the stage has to end, on the loop's clock.
        used: Time of the last use, on the same clock.
    """

    def __init__(self, host: _Host) -> None:
        self.proven = False
        self.stage = _IDLE
        self.deadline = float("inf")
        self._opening: asyncio.Task[None] | None = None
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.used = self._loop.time()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpRequestParser | None = None
        self._request: Request | None = None
        self._answering: asyncio.Task[None] | None = None
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._unasked = 0
        self._goes_on = True
        self._is_ahead = False
        self._is_wanted = False
        self._is_paused = False
        self._patience: asyncio.Timeout | None = None

    # Called by the transport.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, no isinstance: uvloop's TLS transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is not None:
            # The lower limit must leave room for an incomplete record, or reading would never
            # resume.
            cast("_TlsTransport", transport).set_read_buffer_limits(2 * _RECORD, _RECORD)
        self._parser = httptools.HttpRequestParser(self)
        # The API server opens connections ahead, and may use one only much later.
        self._await_next()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        stage = self.stage
        large = stage is _BODY or stage is _REST
        return self._host.buffer[: BODY_BUFFER if large else HEAD_BUFFER]

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._parser is None or self.stage is _REST:
            return
        if self.stage is _IDLE:
            self._expect(_HEAD, self._host.head_timeout)
        if self.stage is not _BODY:
            self._unasked += nbytes
            if self._unasked > _UNASKED:
                self._host.refuse(self, "unasked")
                return
            if self.stage is not _HEAD:
                self._is_ahead = True
                return
        try:
            self._parser.feed_data(self._host.buffer[:nbytes])
        except httptools.HttpParserUpgrade:
            # No other protocol is supported, and the following data would belong to it.
            self._is_ahead = True
        except httptools.HttpParserError as error:
            self._is_ahead = True
            if self._request is None:
                self._send(error_response(400, f"the request is not HTTP/1.1: {error}"))

    @override
    def pause_writing(self) -> None:
        if self.stage is _IDLE:
            self._expect(_TAKING, _READING)

    @override
    def resume_writing(self) -> None:
        if self.stage is not _TAKING or self._transport is None:
            return
        if self._is_ahead:
            self._expect(_REST, _LINGERING)
        else:
            self._await_next()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        # The parser refers to this connection, a cycle that would live until the next collection.
        self._transport = self._parser = None
        if self._request is not None:
            self._request.leave()
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._loop.time())
        self._host.leave(self)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Note the start of a message, which may be ahead of the current answer."""
        if self._request is not None:
            self._is_ahead = True

    def on_url(self, url: bytes) -> None:
        """Append a part of the request target."""
        if self._request is None:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record a header."""
        if self._request is None:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Start to answer; that begins when all data that came with the head is parsed."""
        if self._request is not None or self._parser is None or self._transport is None:
            return
        path = unquote_to_bytes(self._url.partition(b"?")[0]).decode(errors="replace")
        method = self._parser.get_method().decode()
        self._request = Request(method=method, path=path, headers=self._headers)
        self._goes_on = self._parser.should_keep_alive()
        self.stage, self.deadline, self._unasked = _BODY, float("inf"), 0
        self._is_wanted = False
        self._answering = self._loop.create_task(self._answer(self._request))

    def on_body(self, part: bytes) -> None:
        """Add a part of the body to the request."""
        request, transport = self._request, self._transport
        if request is None or request.whole or transport is None or self.stage is not _BODY:
            return
        request.take(part)
        # Up to that size it is read, so that a disconnect is noticed.
        if not (self._is_wanted or self._is_paused) and request.held > BODY_BUFFER:
            self._is_paused = True
            transport.pause_reading()

    def on_message_complete(self) -> None:
        """Complete the request: further data belongs to the next one."""
        if self._request is not None and not self._request.whole and self.stage is _BODY:
            self._request.end()
            self.stage = _ANSWER

    # Called by the host and by the handlers of requests.

    @property
    def is_answering(self) -> bool:
        """Return whether an answer is being made."""
        return self._answering is not None

    def begin(self, handshake: asyncio.Task[None]) -> None:
        """Record the task that opens the connection."""
        self._opening = handshake

    def begun(self) -> None:
        """Record that opening the connection has ended, successfully or not."""
        self._opening = None

    def put_off(self, seconds: float) -> None:
        """Extend the deadline."""
        self.deadline += seconds

    def prove(self) -> None:
        """Mark the caller as authenticated, or as one that sent a whole request."""
        self.proven = True

    def last(self) -> None:
        """End the connection after the current answer."""
        self._goes_on = False

    def detail(self, name: str) -> object:
        """Return the transport's extra info under a name, or None if it is closed."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    def want_body(self) -> None:
        """Start to receive the body of the request."""
        request, transport = self._request, self._transport
        if request is None or request.whole or transport is None:
            return
        if request.header(b"expect").lower() == "100-continue":
            transport.write(CONTINUE)
        self._let_come(transport)

    @contextlib.asynccontextmanager
    async def patience(self, end: float) -> AsyncIterator[None]:
        """Limit a wait to a time of the loop, and to the lifetime of the connection.

        Raises:
            TimeoutError: The time has passed.
            ConnectionResetError: The caller has disconnected.
        """
        try:
            async with asyncio.timeout_at(end) as self._patience:
                yield
        except TimeoutError:
            if self._transport is None:
                raise ConnectionResetError("the caller has left") from None
            raise
        finally:
            self._patience = None

    def close(self) -> None:
        """Close the connection after the data that is being sent."""
        if self._transport is not None:
            self._close(self._transport)
        elif self._opening is not None:
            self._opening.cancel()

    def abort(self) -> None:
        """Abort the connection immediately."""
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is not None:
            self._opening.cancel()

    def overdue(self) -> None:
        """End the connection because its deadline has passed."""
        transport = self._transport
        if transport is None or self.stage not in (_IDLE, _REST):
            self._host.refuse(self, "slow")
        elif transport.is_closing():
            # The caller does not read the answer.
            transport.abort()
        else:
            self._close(transport)

    # Answering.

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._host.answer(request, self)
        except ConnectionError:
            # The caller has disconnected.
            self.abort()
            return
        except Exception:  # noqa: BLE001  (the API server must get an answer)
            _log.exception("request failed", path=request.path)
            self.last()
            text = "failed on this request because of a bug; see its log"
            response = error_response(500, text)
        finally:
            self._answering = None
        self._send(response, request)

    def _send(self, response: Response, request: Request | None = None) -> None:
        """Send the answer to a request, or to data that is not a request."""
        self._request, self._headers, self._url = None, {}, b""
        transport = self._transport
        if transport is None:
            return
        whole = request is not None and request.whole
        lingers = self._is_ahead or not whole
        ends = lingers or not self._goes_on
        self.used = self._loop.time()
        method = "" if request is None else request.method
        # Before the write, which may immediately call `pause_writing`.
        self._await_next()
        transport.write(render(response, date=self._host.date(), method=method, ends=ends))
        if lingers:
            # Closing a socket with unread data would make the caller lose the answer.
            self._expect(_REST, _LINGERING)
            self._let_come(transport)
        elif ends:
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        self._expect(_REST, _READING)
        transport.close()

    def _await_next(self) -> None:
        self._unasked = 0
        self._expect(_IDLE, IDLE_TIMEOUT)

    def _expect(self, stage: Stage, seconds: float) -> None:
        self.stage, self.deadline = stage, self._loop.time() + seconds

    def _let_come(self, transport: asyncio.Transport) -> None:
        self._is_wanted = True
        # Not every TLS transport reports whether it is paused.
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
