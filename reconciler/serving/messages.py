"""Requests and answers of HTTP/1.1, as far as the API server uses it with webhooks."""

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
"""What a sender may wait for before its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer, whose body is JSON."""

    body: bytes
    status: int = HTTPStatus.OK


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A request whose head is there, and whose body comes.

    Attributes:
        path: Without the query.
        headers: By their names in small letters.
        whole: All of its body has come.
        held: Bytes of the body that have come.
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
        """Return the value of a header, empty without one."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def content_type(self) -> str:
        """Return the media type of the body, without its parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    @property
    def size(self) -> int | None:
        """Return how many bytes the body has, None where its sender does not say."""
        found = self.headers.get(b"content-length")
        return None if found is None else int(found)

    def take(self, part: bytes) -> None:
        """More of the body has come."""
        self._parts.append(part)
        self.held += len(part)
        self._tell()

    def end(self) -> None:
        """All of the body has come."""
        self.whole = True
        self._tell()

    def leave(self) -> None:
        """The sender has left."""
        self._has_left = True
        if not self.whole:
            self._parts.clear()
        self._tell()

    def body(self) -> bytes:
        """Return what has come of the body; it is not kept here any longer."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def arrive(self) -> bool:
        """Wait until more of the body has come; return whether all of it has.

        Raises:
            ConnectionResetError: The sender has left.
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
    """Return an error in the form that the API server shows to people."""
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
        response: What is answered.
        date: The time of now, as HTTP writes it (RFC 9110 5.6.7).
        method: Of the request; the answer to HEAD has no body.
        ends: The connection ends with it.
    """
    code = response.status
    phrase = b"OK" if code == HTTPStatus.OK else HTTPStatus(code).phrase.encode()
    head = _HEAD % (code, phrase, len(response.body), date)
    end = b"Connection: close\r\n\r\n" if ends else b"\r\n"
    return head + end + (b"" if method == "HEAD" else response.body)
