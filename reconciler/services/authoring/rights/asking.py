"""Which of the rights that are needed are granted, asked with as few questions as will do."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconciler.api.meta import Kind
from reconciler.api.rights import Need, Right
from reconciler.services.ports.access import Access

ANY_KIND: Final = Kind(group="*", version="*", kind="*", plural="*", namespaced=True)
_PARALLEL: Final = 16


async def ask(access: Access, needs: Iterable[Need]) -> Mapping[Right, bool]:
    """Return what is granted, each right asked for once, side by side.

    Of several rights of which one is enough, the next is asked for only where those before it
    are missing.

    Raises:
        ClusterError: The API server could not be asked.
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
    """Yield what is needed and not granted, each once."""
    for need in dict.fromkeys(needs):
        if not any(known[option] for option in need.options):
            yield need


def _unknown(needs: Iterable[Need], known: Mapping[Right, bool]) -> list[Right]:
    """Return the next right to ask about for each need that is not met yet, each once."""
    found: dict[Right, None] = {}
    for need in needs:
        for option in need.options:
            if option not in known:
                found[option] = None
                break
            if known[option]:
                break
    return list(found)
