"""The existing objects that a rule may match: finds their lists and reads them page by page.

The caller has to match each object again: a list is only as narrow as the API server can make it.
"""

import contextlib
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field, replace

from reconciler.api.meta import Kind, Object
from reconciler.engine.match import KindSelector, Listing
from reconciler.errors import Gone
from reconciler.services.ports.objects import Kinds, Page, Reader
from reconciler.services.processing.memory_budget import InFlight


@dataclass(frozen=True, slots=True, kw_only=True)
class ListScope:
    """One list to walk: a kind in one namespace or in all of them."""

    kind: Kind
    namespace: str
    listing: Listing

    @property
    def label(self) -> str:
        """Return the key of this list among the lists of a rule."""
        return f"{self.kind.resource}@{self.namespace}?{self.listing.label_selector}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLister:
    """Finds the lists of a rule and walks them.

    Attributes:
        tenant: Whose share of the memory budget the pages take.
    """

    kinds: Kinds
    reader: Reader
    page: int = 500
    flight: InFlight = field(default_factory=InFlight)
    tenant: str = ""

    async def places(self, listings: Iterable[Listing]) -> list[ListScope]:
        """Return the lists that together contain all objects that a rule may match."""
        found: list[ListScope] = []
        for listing in listings:
            for selector in listing.kinds:
                for kind in await self.served(selector):
                    spaces = listing.namespaces if kind.namespaced else None
                    found.extend(
                        ListScope(kind=kind, namespace=namespace, listing=listing)
                        for namespace in spaces or ("",)
                    )
        return found

    async def served(self, selector: KindSelector) -> tuple[Kind, ...]:
        """Return the served kinds of a selector, none where their objects cannot be listed."""
        if not selector.is_listable:
            return ()
        group, version = selector.group, selector.version
        plain = not group or group == version == "*"
        return await self.kinds.find(version if plain else f"{group}/{version}", selector.kind)

    async def all_pages(self, place: ListScope, after: str = "") -> AsyncGenerator[Page]:
        """Yield the pages of a list; if it expires, which takes minutes, list the rest again.

        Args:
            after: Key of the last object that is left out; empty for none.
        """
        while True:
            begun = after
            try:
                async with contextlib.aclosing(self._pages(place)) as pages:
                    async for page in pages:
                        items = tuple(item for item in page.items if list_key(item) > after)
                        after = list_key(items[-1]) if items else after
                        yield replace(page, items=items)
            except Gone:
                if after == begun:
                    raise
            else:
                return

    async def _pages(self, place: ListScope) -> AsyncGenerator[Page]:
        """Yield the pages of a list; one that takes minutes ends with the error `Gone`.

        A page counts as in memory until the next one is requested, or the iteration is closed.
        """
        token, resource = "", place.kind.resource
        while True:
            size = self.flight.expected_page(resource)
            async with self.flight.pages.hold(size, self.tenant) as hold:
                page = await self.reader.list_page(
                    place.kind,
                    namespace=place.namespace,
                    labels=place.listing.label_selector,
                    limit=self.page,
                    token=token,
                )
                hold.resize(self.flight.weigh_page(resource, page.size))
                yield page
                token = page.token
                del page
            if not token:
                return


def within(places: list[ListScope], namespace: str) -> list[ListScope]:
    """Return the lists restricted to one namespace; an empty name means no restriction."""
    if not namespace:
        return places
    return [
        replace(place, namespace=namespace)
        for place in places
        if place.kind.namespaced and place.namespace in ("", namespace)
    ]


def list_key(obj: Object) -> str:
    """Return the sort key of an object in the order in which the API server lists."""
    meta = obj.get("metadata") or {}
    namespace, name = meta.get("namespace", ""), meta.get("name", "")
    return f"{namespace}/{name}" if namespace else name


async def count_of(reader: Reader, places: Iterable[ListScope]) -> int:
    """Return the number of objects in the lists, -1 where the API server does not count them."""
    total = 0
    for place in places:
        page = await reader.list_page(
            place.kind,
            namespace=place.namespace,
            labels=place.listing.label_selector,
            limit=1,
        )
        if page.token and not page.remaining:
            # The API server does not count the remaining objects of a list with a selector.
            return -1
        total += len(page.items) + page.remaining
    return total


def left_of(places: list[ListScope], cursor: str) -> list[tuple[ListScope, str]]:
    """Return the lists that are not done, each with the key of the last object that is done.

    If the list in the cursor no longer exists, because its kind does not, all lists begin again.
    """
    label, _, list_key = cursor.partition(":")
    labels = [place.label for place in places]
    begin = labels.index(label) if label in labels else 0
    return [(place, list_key if place.label == label else "") for place in places[begin:]]
