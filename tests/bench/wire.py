"""An API client of little cost, which sends raw bytes over persistent connections."""

from dataclasses import dataclass
from typing import Any, Self

import aiohttp
import orjson

from tests.conformance.kubeconfig import Access

MERGE = "application/merge-patch+json"
JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Refused(Exception):
    """The API server answered with an error."""


@dataclass(slots=True)
class Wire:
    """One user's connections to the API server."""

    server: str
    session: aiohttp.ClientSession

    @classmethod
    def open(cls, access: Access, connections: int) -> Self:
        """Return a client with at most ``connections`` connections."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=access.trust, limit=connections),
            headers=access.headers,
            timeout=aiohttp.ClientTimeout(total=60.0),
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )
        return cls(server=access.server, session=session)

    async def __aenter__(self) -> Self:
        """Return this client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.session.close()

    async def send(
        self, method: str, path: str, body: bytes | None = None, media: str = JSON
    ) -> bytes:
        """Send a request and return the body of the answer.

        Raises:
            Refused: The API server answered with an error.
        """
        async with self.session.request(
            method, self.server + path, data=body, headers={"Content-Type": media}
        ) as response:
            answer = await response.read()
        if response.status >= 400:
            raise Refused(f"{method} {path}: {response.status} {answer.decode(errors='replace')}")
        return answer

    async def read(self, path: str) -> dict[str, Any]:
        """Return the decoded answer to a GET."""
        answer: dict[str, Any] = orjson.loads(await self.send("GET", path))
        return answer

    def watch(self, path: str) -> Any:
        """Return the context manager of an endless response that streams only metadata."""
        return self.session.get(
            self.server + path,
            headers={"Accept": METADATA_ONLY},
            timeout=aiohttp.ClientTimeout(total=None),
        )
