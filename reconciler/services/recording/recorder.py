"""Recording: every trigger is stored in the cluster before the admission request is answered.

Each trigger has a request of its own, until so many wait that rebuildable rules are diverted.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass

from reconciler.clock import Deadline
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import ClusterError
from reconciler.requests.draft import Draft
from reconciler.requests.overload import holders_of
from reconciler.requests.rebuild import why_not_rebuildable
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.ports.requests import Requests
from reconciler.services.recording.backlog import BacklogEstimate
from reconciler.services.recording.diversion import Diversion
from reconciler.services.recording.joining import SharedRequests

OVERLOAD = "overload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecorded:
    """A draft that is not known to be stored.

    Attributes:
        reason: One word for metrics: ``timeout``, ``overload``, or the fault's name in lower
            case.
        message: The error of the API server, or why it was not called.
    """

    draft: Draft
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The results for the drafts of one admission request.

    Attributes:
        joined: Drafts that the request of another attempt at the same write stands for.
    """

    stored: tuple[Draft, ...] = ()
    joined: tuple[Draft, ...] = ()
    diverted: tuple[Draft, ...] = ()
    failed: tuple[Unrecorded, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Records the triggers that one replica receives."""

    index: PolicyStore
    requests: Requests
    estimate: BacklogEstimate
    diversion: Diversion
    shared: SharedRequests

    async def record(self, drafts: Sequence[Draft], deadline: Deadline) -> Recorded:
        """Record drafts at the same time and wait for all of them.

        A draft that is stored already is a success, so a retry of the API server succeeds. A draft
        that is not stored by the deadline counts as failed. It may have been stored all the same,
        which does no harm: processing checks whether the triggering request was stored.
        """
        work: list[Awaitable[Unrecorded | None]] = []
        diverted, refused = list[Draft](), list[Unrecorded]()
        versions: dict[str, str] = {}
        turned = self.estimate.turn()
        for draft in drafts:
            over = self.estimate.is_over(holders_of(draft.spec))
            rule = self._divertible(draft) if turned or over else None
            if rule is not None:
                diverted.append(draft)
                work.append(_by(deadline, draft, self.diversion.divert(*rule)))
            elif self.estimate.full or self.estimate.full_for(holders_of(draft.spec)):
                refused.append(self._refused(draft))
            else:
                # Counted before the first await: other admission requests decide meanwhile.
                self.estimate.begin(holders_of(draft.spec))
                versions[draft.name] = ""
                work.append(_by(deadline, draft, self._store(draft, versions)))
        try:
            # Most triggers fire one rule, which needs no task of its own.
            results = [await work[0]] if len(work) == 1 else await asyncio.gather(*work)
        finally:
            for draft in drafts:
                if draft.name in versions:
                    self.estimate.end(versions[draft.name], holders_of(draft.spec))
        failed = (*refused, *(item for item in results if item is not None))
        missing = {item.draft.name for item in failed}
        joined = {item.name for item in drafts if item.alone and not versions.get(item.name, "-")}
        return Recorded(
            stored=_but(missing | joined | {item.name for item in diverted}, drafts),
            joined=tuple(item for item in drafts if item.name in joined - missing),
            diverted=_but(missing, diverted),
            failed=failed,
        )

    def _divertible(self, draft: Draft) -> tuple[CompiledPolicy, Program] | None:
        policy = self.index.get(draft.spec.policy)
        program = None if policy is None else policy.program(draft.spec.rule)
        if policy is None or program is None or why_not_rebuildable(program):
            return None
        if policy.match_conditions:
            # Only the API server can evaluate them, and only on a request.
            return None
        return policy, program

    def _refused(self, draft: Draft) -> Unrecorded:
        thresholds = self.estimate.thresholds()
        number, limit = self.estimate.waiting, "--hard-limit"
        allowed = max(thresholds.hard, thresholds.limit)
        who = ""
        if not self.estimate.full:
            holder = self.estimate.full_for(holders_of(draft.spec))
            kind, _, name = holder.partition("/")
            who, limit = f" of {kind} {name}", f"its --{kind}-share of --hard-limit"
            number, allowed = self.estimate.held(holder), thresholds.of(holder).hard
        message = (
            f"{number} requests{who} wait, and {limit} allows {allowed}: find out why with"
            " kubectl retrofit status, check that retrofit-controller is running, or raise the"
            " limit"
        )
        return Unrecorded(draft=draft, reason=OVERLOAD, message=message)

    async def _store(self, draft: Draft, versions: dict[str, str]) -> None:
        if draft.alone:
            versions[draft.name] = await self.shared.store(draft)
            return
        # The Secret first: a request must never refer to one that does not exist.
        if draft.secret is not None:
            await self.requests.create_recorded(draft.name, draft.labels, draft.secret)
        versions[draft.name] = await self.requests.create(draft.name, draft.labels, draft.spec)


async def _by(deadline: Deadline, draft: Draft, work: Awaitable[None]) -> Unrecorded | None:
    try:
        async with asyncio.timeout(deadline.left):
            await work
    except TimeoutError:
        message = f"the API server did not store it within {deadline.seconds:g} s"
        return Unrecorded(draft=draft, reason="timeout", message=message)
    except ClusterError as error:
        return Unrecorded(draft=draft, reason=failure_label(error), message=str(error))
    return None


def _but(names: set[str], drafts: Iterable[Draft]) -> tuple[Draft, ...]:
    return tuple(item for item in drafts if item.name not in names)


def failure_label(error: ClusterError) -> str:
    """Return the fault of an error as one word for metrics."""
    return type(error).__name__.lower()
