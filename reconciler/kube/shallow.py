"""Answers for another library, without values nested too deeply for its JSON parser."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from typing_extensions import override

from reconciler.kube.decoding import cut_deep


class ShallowResponse(aiohttp.ClientResponse):
    """An answer for another library, without what is nested too deeply for its parser.

    The parser fails at a thousand levels, and the library ends with it.
    """

    @override
    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        response = await super().start(connection)
        content: Any = _ShallowContent(self.content)
        self.content = content
        return response

    @override
    async def json(
        self,
        *,
        encoding: str | None = None,
        loads: Callable[..., Any] = json.loads,
        content_type: str | None = "application/json",
    ) -> Any:
        return await super().json(
            encoding=encoding,
            loads=lambda text: loads(cut_deep(text.encode())),
            content_type=content_type,
        )


class _ShallowContent:
    """The content of an answer, cut line by line."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines, all that arrived with a chunk at once, and no part of a last one."""
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield b"".join(cut_deep(line) + b"\n" for line in lines)
