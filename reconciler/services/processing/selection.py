"""Selection of a rule's targets: GET by exact name, else a LIST as narrow as possible."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Self

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Kind, Object, TargetKey
from reconciler.engine.run import RuleRun
from reconciler.engine.targets import TargetQuery
from reconciler.errors import ClusterError, EvaluationError, Interrupted, NoKindMatch, NotFound
from reconciler.services.ports.objects import Kinds, Reader
from reconciler.services.processing.loading import Loads
from reconciler.services.processing.memory_budget import ByteAllowance, InFlight
from reconciler.services.processing.results import TargetResult, failure
from reconciler.values import value_class


@value_class(frozen=True, slots=True, kw_only=True)
class SelectedTarget:
    """An object that a target query selected; ``obj`` is None where it is still to be read."""

    query: TargetQuery
    key: TargetKey
    obj: Object | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class Selection:
    """The objects that the targets of a rule select for one trigger.

    Attributes:
        errors: Errors of targets that cannot be resolved, which no retry corrects.
        failures: Results, as of the lanes, for targets whose objects could not be listed.
    """

    found: tuple[SelectedTarget, ...]
    errors: tuple[EvaluationError, ...]
    failures: tuple[TargetResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFinder:
    """Finds targets through live reads.

    Attributes:
        flight: Bounds the bytes of lists in memory.
    """

    kinds: Kinds
    reader: Reader
    page: int = 500
    flight: InFlight = field(default_factory=InFlight)

    def acting_as(self, account: ServiceAccount | None) -> Self:
        """Return the finder that reads as an account, as `Reader.acting_as` does."""
        if account is None:
            return self
        return replace(self, reader=self.reader.acting_as(account))

    async def select(
        self, run: RuleRun, loads: Loads, byte_allowance: ByteAllowance | None = None
    ) -> Selection:
        """Return the objects that a rule's targets select; one failing target stops no other.

        A listed object that does not fit into the byte allowance has to be read again.
        """
        try:
            asked, errors = await loads.evaluate(run.queries)
        except EvaluationError as error:
            return Selection(found=(), errors=(error,), failures=())
        except (ClusterError, Interrupted) as error:
            return Selection(found=(), errors=(), failures=(failure(error),))
        found: list[SelectedTarget] = []
        failures: list[TargetResult] = []
        for query in asked:
            try:
                found.extend([item async for item in self._matching(query, byte_allowance)])
            except EvaluationError as error:
                errors.append(error)
            except ClusterError as error:
                failures.append(failure(error))
        return Selection(found=tuple(found), errors=tuple(errors), failures=tuple(failures))

    async def _matching(
        self, query: TargetQuery, byte_allowance: ByteAllowance | None
    ) -> AsyncIterator[SelectedTarget]:
        for kind in await self._kinds(query):
            place = query.namespace if kind.namespaced else None
            namespace = place.text if place is not None and place.exact else ""
            if query.name is not None and query.names_one(namespaced=kind.namespaced):
                key = TargetKey(kind=kind, namespace=namespace, name=query.name.text)
                if await self._is_meant(query, key):
                    yield SelectedTarget(query=query, key=key, obj=query.read)
                continue
            async for item in self._listed(kind, namespace, query, byte_allowance):
                yield item

    async def _kinds(self, query: TargetQuery) -> tuple[Kind, ...]:
        kinds = await self.kinds.find(query.api_version, query.kind)
        if not kinds:
            msg = f"the cluster does not serve {query.api_version} {query.kind}"
            raise NoKindMatch(msg, status=404)
        if query.namespace is None:
            return kinds
        inside = tuple(kind for kind in kinds if kind.namespaced)
        if not inside:
            raise EvaluationError(
                f"{query.api_version} {query.kind} is cluster-scoped, so it cannot be in"
                f" namespace {query.namespace.text}: remove the namespace, and use a ClusterPolicy"
            )
        return inside

    async def _is_meant(self, query: TargetQuery, key: TargetKey) -> bool:
        # The lane checks the object it reads, but a subresource has no labels and may have no uid.
        if not key.kind.subresource or (query.selector is None and not query.uid):
            return True
        parent = replace(key.kind, subresource="")
        try:
            return query.accepts(await self.reader.get(parent, key.namespace, key.name))
        except NotFound:
            return True

    async def _listed(
        self, kind: Kind, namespace: str, query: TargetQuery, byte_allowance: ByteAllowance | None
    ) -> AsyncIterator[SelectedTarget]:
        labels = "" if query.selector is None else query.selector.server
        parent, flight, token = replace(kind, subresource=""), self.flight, ""
        while True:
            async with flight.lists.hold(flight.expected_page(parent.resource)) as hold:
                page = await self.reader.list_page(
                    parent, namespace=namespace, labels=labels, limit=self.page, token=token
                )
                hold.resize(flight.weigh_page(parent.resource, page.size))
                found = [
                    self._found(kind, query, obj, byte_allowance)
                    for obj in page.items
                    if query.accepts(obj)
                ]
                token = page.token
                del page
            for item in found:
                yield item
            if not token:
                return

    def _found(
        self, kind: Kind, query: TargetQuery, obj: Object, byte_allowance: ByteAllowance | None
    ) -> SelectedTarget:
        meta = obj["metadata"]
        key = TargetKey(kind=kind, namespace=meta.get("namespace", ""), name=meta["name"])
        # For a subresource the list returned the parent; the lane reads the subresource.
        keep = not kind.subresource and (
            byte_allowance is None or byte_allowance.take(self.flight.weigh(kind.resource, obj))
        )
        return SelectedTarget(query=query, key=key, obj=obj if keep else None)
