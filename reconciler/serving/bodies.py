"""Reading of request bodies, with limits on their total size and on the time of each.

A small body is read at once. A larger one first waits for its place in a memory budget and keeps
it until the request is answered, because the parsed object is larger still. By how much depends on
the number of its values, so a body that has arrived waits for a second place before it is parsed.
While other requests wait, a body that does not arrive within a second loses its place. Callers
that have not proved themselves have a budget of their own, so that the others do not wait for
them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from reconciler.services.processing.memory_budget import MemoryBudget
from reconciler.serving.messages import Request
from reconciler.serving.protocol import BODY_BUFFER, Connection

SMALL: Final = BODY_BUFFER
"""Bytes up to which a body needs no place: a connection buffers that many anyway."""
_PATIENCE: Final = 1.0
"""Seconds for a body to arrive while other requests wait for its place."""
_PARSED: Final = 3
"""Bytes that parsed objects may take, for each byte of all bodies."""
_VALUE: Final = 64
"""Bytes of a small value in memory, about: an empty list or map, or a number and its place."""


class Refused(Exception):
    """A body is not read; the text states the reason and the remedy.

    Attributes:
        code: HTTP status.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Bodies:
    """The bodies of one server."""

    def __init__(self, *, largest: int, together: int, timeout: float) -> None:
        """Initialize.

        Args:
            largest: Limit of one body in bytes.
            together: Limit of all large bodies in bytes; a quarter is for unproven callers.
            timeout: Seconds within which a body has to arrive.
        """
        self._largest = largest
        self._timeout = timeout
        self._strangers = MemoryBudget(max(1, together // 4))
        self._known = MemoryBudget(max(1, together - together // 4))
        self._parsed = MemoryBudget(_PARSED * together)

    @property
    def held(self) -> int:
        """Return the bytes of large bodies that currently have a place."""
        return self._known.used + self._strangers.used

    def size_of(self, request: Request) -> int:
        """Return the size of a body in bytes, if it may be read.

        Raises:
            Refused: It may not be read.
        """
        size = request.size
        if size is None:
            raise Refused(411, "the body has no Content-Length, which the API server always sends")
        if size > self._largest:
            raise Refused(
                413,
                f"the admission request is {size} bytes long, the limit is {self._largest} bytes: "
                "raise --max-body (or RETROFIT_MAX_BODY) of retrofit-admission",
            )
        if request.headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "the body is compressed, which the API server's never is")
        return size

    async def read(self, request: Request, connection: Connection) -> bytes:
        """Return a body of at most `SMALL` bytes.

        Raises:
            Refused: The body arrives too slowly.
            ConnectionError: The caller has disconnected.
        """
        # Most bodies arrive together with their heads and need no timer.
        if not request.whole:
            await self._receive(request, connection, loop_time() + self._timeout, None)
        return request.body()

    @contextlib.asynccontextmanager
    async def place(self, request: Request, connection: Connection) -> AsyncIterator[bytes]:
        """Yield a larger body, which keeps its place until the context ends.

        Raises:
            Refused: The body arrives too slowly, or no place becomes free.
            ConnectionError: The caller has disconnected.
        """
        end = loop_time() + self._timeout
        budget = self._known if connection.proven else self._strangers
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with connection.patience(end):
                    await stack.enter_async_context(budget.hold(request.size or 0))
            except TimeoutError:
                raise Refused(503, self._no_place(budget)) from None
            await self._receive(request, connection, end, budget)
            body = request.body()
            try:
                async with connection.patience(end):
                    await stack.enter_async_context(self._parsed.hold(_parsed_size(body)))
            except TimeoutError:
                raise Refused(503, self._no_room()) from None
            yield body

    async def _receive(
        self, request: Request, connection: Connection, end: float, budget: MemoryBudget | None
    ) -> None:
        begun = loop_time()
        connection.want_body()
        while not request.whole:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(end, loop_time() + _PATIENCE)):
                    if await request.arrive():
                        return
            now = loop_time()
            hindering = budget is not None and budget.crowded and now - begun >= _PATIENCE
            if now >= end or hindering:
                raise Refused(408, f"the body did not arrive within {now - begun:.0f} s")

    def _no_place(self, budget: MemoryBudget) -> str:
        return (
            f"other large admission requests held {budget.used} bytes for {self._timeout:g} s,"
            f" of which --max-bodies allows {budget.limit}: try again, or raise it"
        )

    def _no_room(self) -> str:
        return (
            f"the objects in other large admission requests took about {self._parsed.used} bytes"
            f" for {self._timeout:g} s, of which {_PARSED} times --max-bodies are allowed: try"
            " again, or raise it"
        )


def _parsed_size(body: bytes) -> int:
    """Return about the bytes that a body takes once it is parsed."""
    return len(body) + _VALUE * sum(map(body.count, (b",", b"[", b"{")))


def loop_time() -> float:
    """Return the monotonic time of the running loop."""
    return asyncio.get_running_loop().time()
