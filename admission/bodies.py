"""Reading of request bodies: so many bytes of them at the same time, and each in its time.

What is small is read at once. A larger body waits for its place first, and keeps it until the
request is answered, because what is parsed from it is larger still. As long as somebody waits, a
sender that does not get on gives its place up.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from reconciler.services.processing.memory_budget import MemoryBudget

SMALL: Final = 64 * 1024
"""Bytes up to which a body needs no place: as many as a connection buffers anyway."""
_PATIENCE: Final = 1.0
"""Seconds for a body to arrive while others wait for its place."""


class Refused(Exception):
    """A body is not read; the text says why and what to do.

    Attributes:
        code: The HTTP status.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True, kw_only=True)
class Bodies:
    """The bodies of one server.

    Attributes:
        largest: Bytes that one may have.
        together: Bytes that all large ones may have.
        timeout: Seconds until one has to be there.
    """

    largest: int
    together: int
    timeout: float
    _gate: MemoryBudget = field(init=False)

    def __post_init__(self) -> None:
        self._gate = MemoryBudget(self.together)

    @property
    def held(self) -> int:
        """Return the bytes of large bodies that have their place now."""
        return self._gate.used

    @contextlib.asynccontextmanager
    async def read(self, http: web.Request) -> AsyncIterator[bytes]:
        """Give the body of a request, which keeps its place until the end.

        Raises:
            Refused: It is too large, or comes too slowly, or there is no place.
        """
        size = http.content_length
        if size is not None and size > self.largest:
            raise self._too_large(f"{size} bytes long")
        if http.headers.get("Content-Encoding", "identity") != "identity":
            raise Refused(415, "the body is compressed, which the API server's never is")
        if size is not None and size <= SMALL:
            yield await self._receive(http, loop_time() + self.timeout, held=False)
            return
        end = loop_time() + self.timeout
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(end):
                    await stack.enter_async_context(self._gate.hold(size or self.largest))
            except TimeoutError:
                raise Refused(503, self._no_place()) from None
            yield await self._receive(http, end, held=True)

    async def _receive(self, http: web.Request, end: float, *, held: bool) -> bytes:
        parts: list[bytes] = []
        size, begun = 0, loop_time()
        while not http.content.at_eof():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(end, loop_time() + _PATIENCE)):
                    parts.append(await http.content.readany())
                    size += len(parts[-1])
            if size > self.largest:
                raise self._too_large("longer")
            now = loop_time()
            hindering = held and self._gate.crowded and now - begun >= _PATIENCE
            if not http.content.at_eof() and (now >= end or hindering):
                raise Refused(408, f"the body was not there within {now - begun:.0f} s")
        return b"".join(parts)

    def _too_large(self, shown: str) -> Refused:
        return Refused(
            413,
            f"the admission request is {shown}, the limit is {self.largest} bytes: "
            "raise --max-body (or RETROFIT_MAX_BODY) of retrofit-admission",
        )

    def _no_place(self) -> str:
        return (
            f"other large admission requests held {self._gate.used} bytes for {self.timeout:g} s,"
            f" and --max-bodies allows {self.together}: try again, or raise it"
        )


def loop_time() -> float:
    """Return the monotonic time of the running loop."""
    return asyncio.get_running_loop().time()
