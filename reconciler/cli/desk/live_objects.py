"""The objects of a live cluster on which `retrofit apply` evaluates policies."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from reconciler.api.meta import NAMESPACES, Object, ref_of
from reconciler.cli.desk.live import LiveCluster
from reconciler.engine.loads import Load
from reconciler.engine.patch import KeyTable
from reconciler.engine.program import Program
from reconciler.errors import ClusterError, NotFound
from reconciler.services.preview.dryrun import DryRun
from reconciler.services.processing.selection import SelectedTarget, TargetFinder
from reconciler.services.sweeping.listing import ListScope, ObjectLister, within


class LiveObjects:
    """The objects of a cluster, read through a cache, as a session needs them."""

    def __init__(self, live: LiveCluster) -> None:
        self._reader = DryRun(live.reader)
        self._loader = live.loader
        self._keys = live.keys
        self.finder = TargetFinder(kinds=live.kinds, reader=self._reader)

    async def target(self, found: SelectedTarget) -> Object:
        """Return an object that the finder selected, without its managedFields."""
        if found.obj is not None:
            return readable(found.obj)
        key = found.key
        return readable(await self._reader.get(key.kind, key.namespace, key.name))

    async def merge_keys(self, api_version: str) -> KeyTable:
        """Return the merge keys that the API server publishes."""
        return await self._keys.merge_keys(api_version)

    async def labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace, empty where it does not exist."""
        try:
            found = await self._reader.get(NAMESPACES, "", namespace)
        except NotFound:
            return {}
        labels: Mapping[str, str] = found["metadata"].get("labels") or {}
        return labels

    async def load(self, load: Load) -> Any:
        """Return the data that a context entry reads."""
        return await self._loader.load(load)


class Walk:
    """Lists all existing objects that a rule may match, each once.

    Attributes:
        unread: Messages about kinds that cannot be listed; complete after the last page.
    """

    def __init__(self, live: LiveCluster, programs: Iterable[Program]) -> None:
        self.unread: list[str] = []
        self._lister = ObjectLister(kinds=live.kinds, reader=live.reader)
        self._programs = tuple(programs)

    async def pages(self, namespace: str) -> AsyncIterator[tuple[list[Object], int]]:
        """Yield pages of objects without managedFields, and the number left in their list."""
        places = await self._places(namespace)
        met: set[str] = set()
        for place in places:
            try:
                async for page in self._lister.all_pages(place):
                    new = [obj for obj in page.items if ref_of(obj).uid not in met]
                    if len(places) > 1:
                        met.update(ref_of(obj).uid for obj in new)
                    yield [readable(obj) for obj in new], page.remaining
            except ClusterError as error:
                self.unread.append(str(error))

    async def _places(self, namespace: str) -> list[ListScope]:
        by_label: dict[str, ListScope] = {}
        for program in self._programs:
            listings = program.match.listings(requests=True)
            for place in within(await self._lister.places(listings), namespace):
                by_label.setdefault(place.label, place)
            for selector in (item for listing in listings for item in listing.kinds):
                if not selector.is_listable:
                    name = "/".join(filter(None, (selector.kind, selector.subresource)))
                    self.unread.append(f"{program.rule}: the objects of {name} cannot be listed")
        return list(by_label.values())


def readable(obj: Object) -> Object:
    """Return an object without managedFields, which files do not have and people do not read."""
    meta = {name: item for name, item in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": meta}
