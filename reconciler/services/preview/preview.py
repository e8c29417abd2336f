"""Preview of a rule on existing objects, by the same services that would carry it out.

Existing triggers are listed as in a sweep and passed to the `Processor`, whose lanes read and
write a `DryRun` instead of the cluster.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from reconciler.api.meta import Object, ref_of
from reconciler.api.updaterequest import (
    Outcome,
    Reason,
    RequestSpec,
    RequestStatus,
    Source,
    TargetStatus,
    UpdateRequest,
)
from reconciler.clock import Clock
from reconciler.engine.match import Decision
from reconciler.engine.program import Phase, Program
from reconciler.errors import ClusterError, Forbidden
from reconciler.requests.lifecycle import Fail, Retry, Skip, identity
from reconciler.requests.schedule import Backoff
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.settings import Filters
from reconciler.services.ports.objects import Kinds, MergeKeys, Reader, RuleLoader, Writer
from reconciler.services.ports.policies import Policies
from reconciler.services.ports.requests import Requests
from reconciler.services.preview.dryrun import DryRun, Identity, Write
from reconciler.services.processing.attempt import Attempt, Processor
from reconciler.services.processing.lanes import Lanes
from reconciler.services.processing.pacing import Pacer
from reconciler.services.processing.selection import TargetFinder
from reconciler.services.processing.trigger import TriggerReader
from reconciler.services.sweeping.listing import ListScope, ObjectLister, list_key, within

POLICY_CHANGE = ""
"""The operation where no request is previewed: the policy itself is stored."""

_REFUSALS = frozenset({Outcome.INVALID, Outcome.DENIED, Outcome.FORBIDDEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """The previewed outcome at one target of one trigger.

    Attributes:
        refused: The API server refused the change in a dry run.
    """

    target: Identity
    outcome: Outcome
    message: str
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An object that match selects, and the effect of the rule on it.

    Attributes:
        unmet: Why the rule does not act on it, such as preconditions; empty if it does.
        errors: Errors that are not those of a single target.
    """

    trigger: Object
    unmet: str = ""
    touches: tuple[Touch, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Results for some objects, in the order of the API server's lists.

    Attributes:
        read: How many objects were read, whether or not match selects them.
        left: How many objects of this list follow, if the API server reports it.
        writes: The changes that would be written, by target.
        failure: Why a whole list cannot be read.
    """

    read: int = 0
    left: int = 0
    seen: tuple[Seen, ...] = ()
    writes: Mapping[Identity, Write] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """The event for which a rule is previewed.

    Attributes:
        operation: That of a request for each trigger that leaves it unchanged, or `POLICY_CHANGE`.
        user: ``{userInfo, roles, clusterRoles}`` of the requests' sender; empty if unspecified.
        namespace: The namespace that triggers are limited to; empty for all.
    """

    operation: str = POLICY_CHANGE
    user: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Previews rules, one after the other; a later rule sees the changes of the earlier ones.

    Attributes:
        cluster: The view of the cluster that keeps all writes.
        parallel: Triggers that are processed concurrently.
        filters: Filters that exclude triggers in this cluster; None if unknown.
    """

    cluster: DryRun
    processor: Processor
    triggers: TriggerReader
    lister: ObjectLister
    parallel: int = 64
    filters: Filters | None = None

    async def walk(self, program: Program, occasion: Occasion) -> AsyncIterator[Chunk]:
        """Yield the effects of a rule; a list that cannot be read does not stop the others."""
        listings = program.match.listings(requests=bool(occasion.operation))
        try:
            places = await self.lister.places(listings)
        except ClusterError as error:
            yield Chunk(failure=str(error))
            return
        met: set[str] | None = set() if len(places) > 1 else None
        # A trigger that is its own target is not read again, so the list must show kept writes.
        itself = Phase.EXISTING in program.phases
        source: Reader = self.cluster if itself else self.lister.reader
        reader = source.acting_as(program.origin.account)
        lister = replace(self.lister, reader=reader)
        for place in within(places, occasion.namespace):
            async for chunk, objects in self._chunks(lister, place):
                if chunk.failure:
                    yield chunk
                    continue
                new = _new(objects, met)
                seen = await asyncio.gather(*(self._one(program, occasion, obj) for obj in new))
                writes = dict(self.cluster.writes)
                self.cluster.writes.clear()
                self.cluster.refused.clear()
                yield replace(chunk, read=len(new), seen=tuple(filter(None, seen)), writes=writes)

    async def unseen(self, program: Program, occasion: Occasion) -> list[str]:
        """Return the kinds in match whose objects cannot be listed, and why."""
        found: dict[str, None] = {}
        for listing in program.match.listings(requests=bool(occasion.operation)):
            for selector in listing.kinds:
                name = "/".join(filter(None, (selector.kind, selector.subresource)))
                if not selector.is_listable:
                    found[f"{name}: its requests leave no object that can be listed"] = None
                elif not await self.lister.served(selector):
                    found[f"{name}: the cluster does not serve it"] = None
        return list(found)

    async def _chunks(
        self, lister: ObjectLister, place: ListScope
    ) -> AsyncIterator[tuple[Chunk, list[Object]]]:
        try:
            async for page in lister.all_pages(place):
                items = list(page.items)
                for start in range(0, len(items), self.parallel):
                    objects = items[start : start + self.parallel]
                    left = len(items) - start - len(objects) + page.remaining
                    yield Chunk(left=left), objects
        except ClusterError as error:
            if isinstance(error, Forbidden):
                self.cluster.permissions.add(error.permission)
            yield Chunk(failure=str(error)), []

    async def _one(self, program: Program, occasion: Occasion, obj: Object) -> Seen | None:
        try:
            triggers = self.triggers.acting_as(program.origin.account)
            trigger = await triggers.of_object(
                obj, program, operation=occasion.operation, user=occasion.user
            )
        except ClusterError as error:
            return Seen(trigger=obj, errors=(str(error),))
        if program.match.evaluate(trigger.subject).decision is Decision.NO_MATCH:
            return None
        if self.filters and (reason := self.filters.why_excluded(trigger.subject)):
            return Seen(trigger=obj, unmet=reason)
        request = _request(program, obj, self.triggers.clock.now())
        attempt = await self.processor.apply(request, program, trigger, 0.0)
        return self._seen(obj, attempt)

    def _seen(self, obj: Object, attempt: Attempt) -> Seen:
        ended = attempt.disposition
        if isinstance(ended, Skip):
            return Seen(trigger=obj, unmet=ended.message)
        if isinstance(ended, Retry) and ended.missing_permission:
            self.cluster.permissions.add(ended.missing_permission)
        touches = tuple(map(self._touch, attempt.targets))
        return Seen(trigger=obj, touches=touches, errors=_errors(attempt))

    def _touch(self, status: TargetStatus) -> Touch:
        target = identity(status)
        return Touch(
            target=target,
            outcome=status.outcome,
            message=status.message,
            refused=target in self.cluster.refused and status.outcome in _REFUSALS,
        )


def preview_over(
    *,
    kinds: Kinds,
    keys: MergeKeys,
    reader: Reader,
    loader: RuleLoader,
    policies: Policies,
    requests: Requests,
    server: Writer | None,
    exceptions: ExceptionIndex,
    filters: Filters | None,
    clock: Clock,
    randbelow: Callable[[int], int],
    parallel: int = 64,
) -> Preview:
    """Connect the services of the controller to a view of the cluster that keeps all writes.

    Args:
        server: Writer of server-side dry runs; None to send none.
        filters: Filters that exclude triggers in this cluster; None if unknown.
    """
    cluster = DryRun(reader, server)
    triggers = TriggerReader(
        kinds=kinds,
        reader=cluster,
        requests=requests,
        clock=clock,
        randbelow=randbelow,
    )
    processor = Processor(
        index=PolicyStore(),
        policies=policies,
        finder=TargetFinder(kinds=kinds, reader=cluster),
        triggers=triggers,
        # No other writer is about to create a missing target, so there is nothing to wait for.
        lanes=Lanes(
            reader=cluster,
            writer=cluster,
            keys=keys,
            parallel=parallel,
            missing_pauses=(),
        ),
        loader=loader,
        backoff=Backoff(),
        exceptions=exceptions,
        pacer=Pacer(index=PolicyStore(), clock=clock),
    )
    return Preview(
        cluster=cluster,
        processor=processor,
        triggers=triggers,
        lister=ObjectLister(kinds=kinds, reader=reader),
        parallel=parallel,
        filters=filters,
    )


def _new(objects: list[Object], met: set[str] | None) -> list[Object]:
    """Return the objects that no earlier list of the rule has shown."""
    if met is None:
        return objects
    new = [obj for obj in objects if ref_of(obj).uid not in met]
    met.update(ref_of(obj).uid for obj in new)
    return new


def _errors(attempt: Attempt) -> tuple[str, ...]:
    """Return the errors of an attempt that none of its targets reports."""
    match attempt.disposition:
        case Fail(reason=Reason.EVALUATION_FAILED | Reason.TARGET_UNRESOLVED, message=message):
            return (message,)
        case Retry(message=message) if all(message != it.message for it in attempt.targets):
            return (message,)
        case _:
            return ()


def _request(program: Program, obj: Object, now: datetime) -> UpdateRequest:
    ref = ref_of(obj)
    return UpdateRequest(
        # The name decides the order of work on one target: that in which triggers are listed.
        name=f"preview-{list_key(obj)}",
        namespace="",
        uid="",
        resource_version="",
        created=now,
        labels={},
        spec=RequestSpec(
            policy=program.origin.policy,
            rule=program.rule,
            resource=ref,
            # It has no operation: nothing was recorded at admission, and the trigger exists.
            source=Source.MANUAL,
        ),
        status=RequestStatus(),
    )
