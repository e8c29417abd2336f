"""Unauthenticated clients of the webhook port, and a well-behaved one that is measured."""

import asyncio
import contextlib
import functools
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from devcluster.parts import HOST
from reconciler.api.meta import Object
from reconciler.serving.connections import ConnectionLimits

HEAD = b"POST /validate/fail HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
_AT_ONCE = 60
_PIECE = 64 * 1024
_SECONDS = 3.0
"""Seconds for which a stranger tries to connect and send."""
_OFTEN = 0.05
_LARGE = "x" * 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """The behaviour of an unauthenticated client.

    Attributes:
        sends: The bytes to send immediately, as far as the server reads them.
        drips: The bytes to send every second after that.
        tls: Whether the client performs a TLS handshake first.
    """

    sends: bytes = b""
    drips: bytes = b""
    tls: bool = True


@dataclass(slots=True)
class Held:
    """An open connection of a stranger."""

    stranger: Stranger
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def stays(self) -> bool:
        """Return whether the connection is still open after twice the header timeout."""
        end = time.monotonic() + 2 * ConnectionLimits().header_timeout
        while time.monotonic() < end:
            try:
                async with asyncio.timeout(1.0):
                    if not await self.reader.read(_PIECE):
                        return False
            except TimeoutError:
                self.writer.write(self.stranger.drips)
            except OSError:
                return False
        return True


@contextlib.asynccontextmanager
async def crowd(port: int, strangers: Sequence[Stranger]) -> AsyncIterator[Sequence[Held]]:
    """Open a connection for each stranger, and abort all of them at the end."""
    held: list[Held] = []
    try:
        for begun in range(0, len(strangers), _AT_ONCE):
            tries = (_come(port, item) for item in strangers[begun : begun + _AT_ONCE])
            held += [item for item in await asyncio.gather(*tries) if item is not None]
        assert held
        yield held
    finally:
        for item in held:
            item.writer.transport.abort()


async def flood(port: int, sent: bytes, number: int) -> None:
    """Open ``number`` connections in another process, send the same bytes on each, and abort.

    Sending costs CPU time and must not delay the clients that are measured in this process.
    """
    command = (sys.executable, "-m", __name__, str(port), str(number))
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    try:
        await process.communicate(sent)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0


async def _come(port: int, stranger: Stranger) -> Held | None:
    opened = None
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            context = _trust() if stranger.tls else None
            opened = Held(stranger, *await asyncio.open_connection(HOST, port, ssl=context))
            for begun in range(0, len(stranger.sends), _PIECE):
                opened.writer.write(stranger.sends[begun : begun + _PIECE])
                await opened.writer.drain()
    return opened


@dataclass(slots=True, kw_only=True)
class Caller:
    """Sends reviews as the API server does: small and large in turn, over one connection.

    Attributes:
        seconds: The duration of each review.
    """

    port: int
    review: Object
    seconds: list[float] = field(default_factory=list)

    async def work(self) -> None:
        """Send reviews until cancelled."""
        large = {**self.review["request"]["object"], "data": {"a": _LARGE}}
        reviews = [self.review, {"request": {**self.review["request"], "object": large}}]
        url, headers = f"https://{HOST}:{self.port}/validate/fail", {"Content-Type": _JSON}
        connector = aiohttp.TCPConnector(ssl=_trust(), limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                for item in reviews:
                    body = json.dumps({**self.review, **item}).encode()
                    begun = time.monotonic()
                    async with session.post(url, data=body, headers=headers) as answer:
                        assert answer.status == 200, await answer.text()
                        assert (await answer.json())["response"]["allowed"]
                    self.seconds.append(time.monotonic() - begun)
                    await asyncio.sleep(_OFTEN)


_JSON = "application/json"


@functools.cache
def _trust() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _flood() -> None:
    port, number = map(int, sys.argv[1:])
    async with crowd(port, [Stranger(sends=sys.stdin.buffer.read())] * number):
        pass


if __name__ == "__main__":
    asyncio.run(_flood())
