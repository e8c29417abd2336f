"""API calls of the two programs, from the API server's audit log."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from tests.bench.figures import Calls

ACCOUNTS = frozenset(
    f"system:serviceaccount:kyverno:{name}"
    for name in ("kyverno-admission-controller", "kube-retrofit-controller")
)
_ASIDE = frozenset({"events", "leases"})
_CALM = 1.0
_AT_MOST = 15.0


async def position(log: Path) -> int:
    """Return the end of the log, after a second without new calls of the programs or after 15 s.

    The log is written in batches. Other clients make calls all the time and are ignored.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _AT_MOST
    end, since = _end_of_lines(log, 0), loop.time()
    while loop.time() < deadline and loop.time() - since < _CALM:
        await asyncio.sleep(0.2)
        begin, end = end, _end_of_lines(log, end)
        if count(log, begin, end).by_what:
            since = loop.time()
    return end


def _end_of_lines(log: Path, begin: int) -> int:
    with log.open("rb") as file:
        file.seek(begin)
        return begin + file.read().rfind(b"\n") + 1


def count(log: Path, begin: int, end: int) -> Calls:
    """Return the calls of both programs between two positions."""
    by_what: Counter[str] = Counter()
    aside: Counter[str] = Counter()
    for event in _events(log, begin, end):
        if event["user"]["username"] not in ACCOUNTS:
            continue
        named = event.get("objectRef") or {}
        resource = "/".join(filter(None, (named.get("resource"), named.get("subresource"))))
        what = f"{event['verb']} {resource or event['requestURI'].partition('?')[0]}"
        apart = event["verb"] == "watch" or named.get("resource") in _ASIDE
        (aside if apart else by_what)[what] += 1
    return Calls(by_what=dict(by_what), aside=dict(aside))


def rate(log: Path, between: tuple[int, int], namespace: str, verb: str = "patch") -> float:
    """Return the patches, or other writes, per second to ConfigMaps of a namespace by any client.

    The time is measured from the receipt of the first call until the answer to the last one.
    """
    spans = [
        tuple(datetime.fromisoformat(event[f"{name}Timestamp"]) for name in _SPAN)
        for event in _events(log, *between)
        if event["verb"] == verb
        and (named := event.get("objectRef") or {}).get("resource") == "configmaps"
        and named.get("namespace") == namespace
    ]
    if not spans:
        return 0.0
    first, last = min(begun for begun, _ in spans), max(ended for _, ended in spans)
    return len(spans) / (last - first).total_seconds()


def _events(log: Path, begin: int, end: int) -> Iterator[dict[str, Any]]:
    with log.open("rb") as file:
        file.seek(begin)
        for line in file.read(end - begin).splitlines():
            yield orjson.loads(line)


_SPAN = ("requestReceived", "stage")
