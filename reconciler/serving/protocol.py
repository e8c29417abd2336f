"""HTTP/1.1 on one connection: one request at a time, and a time for everything expected of it.

A sender that goes on before its request is answered is answered that request, and then the
connection ends: what it sent ahead is not kept, and HTTP has it send that again (RFC 9112 9.3).
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
"""Seconds that a connection may lie idle: the API server closes its own after 90 s, and should
not meet one that is being closed here."""

HEAD_BUFFER: Final = 16 * 1024
"""Bytes that are read at once while a head is expected."""
BODY_BUFFER: Final = 64 * 1024
"""Bytes that are read at once from a body; of one that has no place yet about twice as many."""
_UNASKED: Final = 8 * HEAD_BUFFER
"""Bytes of a head, or of what comes before the request ahead of it is answered."""
_RECORD: Final = 16 * 1024 + 512
"""Bytes that a TLS record has at most, and some more."""

_LINGERING: Final = 2.0
"""Seconds in which what nobody wants may still come, so that its sender reads why."""
_READING: Final = 30.0
"""Seconds in which an answer has to be taken: the API server waits no longer for one."""

_log = logger("serving.protocol")


class Stage(enum.Enum):
    """What a connection is at."""

    IDLE = enum.auto()
    """Nothing of the next request is there."""
    HEAD = enum.auto()
    """A part of a head is there, or the first one is expected."""
    BODY = enum.auto()
    """The body of a request is not there yet."""
    ANSWER = enum.auto()
    """A whole request is there, and its answer is being made."""
    TAKING = enum.auto()
    """The answer is made, and its reader has not taken it yet."""
    REST = enum.auto()
    """The last answer is given, and what still comes is not looked at."""


# Each request asks many times, and a member of an enum takes ten times as long as a global.
_IDLE, _HEAD, _BODY, _ANSWER, _TAKING, _REST = Stage


class Host(Protocol):
    """What connections share."""

    @property
    def buffer(self) -> memoryview:
        """Return where bytes come in, until the protocol of their connection has taken them."""
        ...

    @property
    def head_timeout(self) -> float:
        """Return the seconds in which a head has to come."""
        ...

    def date(self) -> bytes:
        """Return the time of day as HTTP writes it."""
        ...

    def answer(self, request: Request, connection: "Connection", /) -> Awaitable[Response]:
        """Return what is answered; a caller who has left may make it raise `ConnectionError`."""
        ...

    def refuse(self, connection: "Connection", reason: str) -> None:
        """End a connection for its cost."""
        ...

    def leave(self, connection: "Connection") -> None:
        """Forget a connection that is closed."""
        ...


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One connection.

    Attributes:
        proven: Its caller showed a certificate that counts, or has brought a whole request.
        stage: What it is at.
        deadline: When that has to end, on the loop's clock.
        used: When it was used last, on the same clock.
    """

    def __init__(self, host: Host) -> None:
        self.proven = False
        self.stage = _HEAD
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

    # What the transport calls.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asked by its class: those of uvloop with TLS are none of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is not None:
            # Below the lower limit there must be room for a record that is not whole, or
            # reading would never go on.
            cast("_TlsTransport", transport).set_read_buffer_limits(2 * _RECORD, _RECORD)
        self._parser = httptools.HttpRequestParser(self)
        self._expect(_HEAD, self._host.head_timeout)

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
            # There is no other protocol; what follows would be its own.
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
        # The parser knows this connection as well, and would keep it until the next collection.
        self._transport = self._parser = None
        if self._request is not None:
            self._request.leave()
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._loop.time())
        self._host.leave(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """A request follows the one before."""
        if self._request is not None:
            self._is_ahead = True

    def on_url(self, url: bytes) -> None:
        """A part of the address is there."""
        if self._request is None:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is there."""
        if self._request is None:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is there; its answer begins when all is read that has come with it."""
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
        """More of the body is there."""
        request, transport = self._request, self._transport
        if request is None or request.whole or transport is None or self.stage is not _BODY:
            return
        request.take(part)
        # Until then it is read, so that a caller who leaves is noticed.
        if not (self._is_wanted or self._is_paused) and request.held > BODY_BUFFER:
            self._is_paused = True
            transport.pause_reading()

    def on_message_complete(self) -> None:
        """All of the request is there: what comes now belongs to the next one."""
        if self._request is not None and not self._request.whole and self.stage is _BODY:
            self._request.end()
            self.stage = _ANSWER

    # What others call.

    @property
    def is_answering(self) -> bool:
        """Return whether an answer is being made."""
        return self._answering is not None

    def begin(self, handshake: asyncio.Task[None]) -> None:
        """What opens it has begun."""
        self._opening = handshake

    def begun(self) -> None:
        """What opened it has ended, well or not."""
        self._opening = None

    def put_off(self, seconds: float) -> None:
        """Give so much more time for what is expected."""
        self.deadline += seconds

    def prove(self) -> None:
        """The caller showed who it is, or brought a whole request."""
        self.proven = True

    def last(self) -> None:
        """The answer that is being made is the last one of this connection."""
        self._goes_on = False

    def detail(self, name: str) -> object:
        """Return what the transport knows under a name, None where it is closed."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    def want_body(self) -> None:
        """Have the body of the request come."""
        request, transport = self._request, self._transport
        if request is None or request.whole or transport is None:
            return
        if request.header(b"expect").lower() == "100-continue":
            transport.write(CONTINUE)
        self._let_come(transport)

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
            if self._transport is None:
                raise ConnectionResetError("the caller has left") from None
            raise
        finally:
            self._patience = None

    def close(self) -> None:
        """End it, after what is being sent."""
        if self._transport is not None:
            self._close(self._transport)
        elif self._opening is not None:
            self._opening.cancel()

    def abort(self) -> None:
        """End it now, whatever it is doing."""
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is not None:
            self._opening.cancel()

    def overdue(self) -> None:
        """End it, because its deadline has passed."""
        transport = self._transport
        if transport is None or self.stage not in (_IDLE, _REST):
            self._host.refuse(self, "slow")
        elif transport.is_closing():
            # Nobody takes the answer.
            transport.abort()
        else:
            self._close(transport)

    # How a request ends.

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._host.answer(request, self)
        except ConnectionError:
            # Nobody is there to read it.
            self.abort()
            return
        except Exception:  # noqa: BLE001  (whoever asked must get an answer)
            _log.exception("request failed", path=request.path)
            self.last()
            text = "failed on this request because of a bug; its log says more"
            response = error_response(500, text)
        finally:
            self._answering = None
        self._send(response, request)

    def _send(self, response: Response, request: Request | None = None) -> None:
        """Give the answer to a request, or to what is none."""
        self._request, self._headers, self._url = None, {}, b""
        transport = self._transport
        if transport is None:
            return
        whole = request is not None and request.whole
        lingers = self._is_ahead or not whole
        ends = lingers or not self._goes_on
        self.used = self._loop.time()
        method = "" if request is None else request.method
        # Before it is written: writing may say at once that nobody takes it.
        self._await_next()
        transport.write(render(response, date=self._host.date(), method=method, ends=ends))
        if lingers:
            # To close where something is unread would have the caller lose the answer.
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
        # Not every transport with TLS says whether it is paused.
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
