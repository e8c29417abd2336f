"""The `MergeKeys` port: lists that merge by key, from the API server's OpenAPI documents."""

import asyncio
import math
from collections.abc import Callable

import orjson

from reconciler.clock import Clock
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.patch.keytable import VERSION
from reconciler.engine.patch.openapi import Kinds, read_document
from reconciler.errors import ClusterError
from reconciler.kube.client import Client

_ROOT = "/openapi/v3"
_TIMEOUT = 10.0
_LONGEST_AGE = 60.0
_MOST_GONE = 100
"""Tables of group versions that the cluster no longer publishes, or does not publish yet."""
_PAUSE = 2.0
"""Between reads for a group version that the index lacks, and after a failed read."""


class KubeMergeKeys:
    """The keys that the cluster publishes, a document per group version, over the shipped table.

    The index holds a hash of each document, which changes with a CustomResourceDefinition. It is
    read when keys are requested, at most once a minute, and a document once per hash. If a read
    fails, the previous keys stay, else the shipped table; one warning reports it.
    """

    def __init__(self, client: Client, clock: Clock, warn: Callable[[str], None]) -> None:
        self._client = client
        self._clock = clock
        self._warn = warn
        self._said: set[str] = set()
        self._hashes: dict[str, str] = {}
        self._read_at: dict[str, float] = {}
        self._tables: dict[str, tuple[str, KeyTable]] = {}
        self._lock = asyncio.Lock()

    async def merge_keys(self, api_version: str) -> KeyTable:
        """Return the merge keys for objects of a group version and for the types inside them."""
        place = f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"
        if self._stale_index(place) or self._stale_table(place):
            async with self._lock:
                if self._stale_index(place):
                    await self._read_index()
                if self._stale_table(place):
                    await self._read_table(place)
        known = self._tables.get(place)
        return SHIPPED if known is None else known[1]

    def _stale_index(self, place: str) -> bool:
        return self._age(_ROOT) >= (_LONGEST_AGE if place in self._hashes else _PAUSE)

    def _stale_table(self, place: str) -> bool:
        published, known = self._hashes.get(place), self._tables.get(place)
        changed = published is not None and (known is None or known[0] != published)
        return changed and self._age(f"{_ROOT}/{place}") >= _PAUSE

    def _age(self, path: str) -> float:
        read_at = self._read_at.get(path)
        return math.inf if read_at is None else self._clock.monotonic() - read_at

    async def _read_index(self) -> None:
        requested_at = self._clock.monotonic()
        answer = await self._read(_ROOT)
        if answer is not None:
            self._hashes = _hashes(answer)
            self._forget_gone()
        # Set only after the answer has arrived, so that callers meanwhile wait for it.
        self._read_at[_ROOT] = requested_at

    def _forget_gone(self) -> None:
        for place in [item for item in self._tables if item not in self._hashes][:-_MOST_GONE]:
            del self._tables[place]
            del self._read_at[f"{_ROOT}/{place}"]

    async def _read_table(self, place: str) -> None:
        path, requested_at, published = (
            f"{_ROOT}/{place}",
            self._clock.monotonic(),
            self._hashes[place],
        )
        answer = await self._read(path)
        if answer is not None:
            kinds = await asyncio.to_thread(_kinds, answer)
            self._tables[place] = (published, SHIPPED.with_kinds(kinds))
        self._read_at[path] = requested_at

    async def _read(self, path: str) -> bytes | None:
        try:
            answer = await self._client.request("GET", path, timeout=_TIMEOUT)
        except ClusterError as error:
            if path not in self._said:
                self._said.add(path)
                self._warn(
                    f"merge keys: {path} cannot be read; until it can, those read before are used,"
                    f" or else those of Kubernetes {VERSION}, without custom resources:"
                    f" {error}"
                )
            return None
        self._said.discard(path)
        return answer


def _kinds(body: bytes) -> Kinds:
    # An aggregated API may publish anything; what is not a document has no keys.
    try:
        return read_document(orjson.loads(body))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _hashes(body: bytes) -> dict[str, str]:
    try:
        paths = orjson.loads(body)["paths"]
        return {place: str(entry["serverRelativeURL"]) for place, entry in paths.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
