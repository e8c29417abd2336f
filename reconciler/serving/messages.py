"""Requests and answers of HTTP/1.1, as far as the API server uses it for webhooks."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import orjson

JSON: Final = "application/json"

_HEAD: Final = (
    b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\n"
)
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""The interim response that a client may expect before it sends a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer with a JSON body."""

    body: bytes
    status: int = HTTPStatus.OK


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A request whose head has arrived and whose body is arriving.

    Attributes:
        path: Path without the query.
        headers: Values by lowercase name.
        whole: Whether the whole body has arrived.
        held: Bytes of the body that have arrived.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    whole: bool = False
    held: int = 0
    _parts: list[bytes] = field(default_factory=list)
    _has_left: bool = False
    _news: asyncio.Future[None] | None = None

    def header(self, name: bytes) -> str:
        """Return the value of a header, or "" without one."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def content_type(self) -> str:
        """Return the media type of the body, without its parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    @property
    def size(self) -> int | None:
        """Return the size of the body in bytes, or None without a Content-Length."""
        found = self.headers.get(b"content-length")
        return None if found is None else int(found)

    def take(self, part: bytes) -> None:
        """Append a part of the body."""
        self._parts.append(part)
        self.held += len(part)
        self._tell()

    def end(self) -> None:
        """Mark the body as complete."""
        self.whole = True
        self._tell()

    def leave(self) -> None:
        """Record that the caller has disconnected."""
        self._has_left = True
        if not self.whole:
            self._parts.clear()
        self._tell()

    def body(self) -> bytes:
        """Return the received body and release it here."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def arrive(self) -> bool:
        """Wait until more of the body has arrived; return whether it is complete.

        Raises:
            ConnectionResetError: The caller has disconnected.
        """
        if not self._has_left:
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None
        if self._has_left:
            raise ConnectionResetError("the caller has left")
        return self.whole

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def error_response(code: int, message: str) -> Response:
    """Return an error in the form that the API server shows to users."""
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "message": f"kube-retrofit: {message}",
    }
    return Response(status=code, body=orjson.dumps(status))


def render(response: Response, *, date: bytes, method: str = "", ends: bool = False) -> bytes:
    """Return the bytes of an answer.

    Args:
        date: Current time in the format of HTTP (RFC 9110 5.6.7).
        method: Method of the request; the answer to HEAD has no body.
        ends: Whether the connection ends after it.
    """
    code = response.status
    phrase = b"OK" if code == HTTPStatus.OK else HTTPStatus(code).phrase.encode()
    head = _HEAD % (code, phrase, len(response.body), date)
    end = b"Connection: close\r\n\r\n" if ends else b"\r\n"
    return head + end + (b"" if method == "HEAD" else response.body)
