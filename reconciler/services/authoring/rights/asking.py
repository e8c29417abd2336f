"""Finds out which needed rights are granted, with as few access reviews as possible."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconciler.api.meta import Kind
from reconciler.api.rights import Need, Right
from reconciler.services.ports.access import Access

ANY_KIND: Final = Kind(group="*", version="*", kind="*", plural="*", namespaced=True)
_PARALLEL: Final = 16


async def ask(access: Access, needs: Iterable[Need]) -> Mapping[Right, bool]:
    """Return which rights are granted, after concurrent reviews of each right at most once.

    Where any of several rights is enough, the next is reviewed only if those before it are
    missing.

    Raises:
        ClusterError: The API server did not answer a review.
    """
    known: dict[Right, bool] = {}
    gate = asyncio.Semaphore(_PARALLEL)

    async def one(right: Right) -> None:
        async with gate:
            known[right] = await access.may(right)

    open_ = list(needs)
    while wanted := _unknown(open_, known):
        await asyncio.gather(*map(one, wanted))
    return known


def missing(needs: Iterable[Need], known: Mapping[Right, bool]) -> Iterator[Need]:
    """Yield the needs that are not granted, each once."""
    for need in dict.fromkeys(needs):
        if not any(known[option] for option in need.options):
            yield need


def _unknown(needs: Iterable[Need], known: Mapping[Right, bool]) -> list[Right]:
    """Return the next right to review for each need that is not met yet, each once."""
    found: dict[Right, None] = {}
    for need in needs:
        for option in need.options:
            if option not in known:
                found[option] = None
                break
            if known[option]:
                break
    return list(found)
