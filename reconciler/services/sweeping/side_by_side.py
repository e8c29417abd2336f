"""Work on several triggers of a sweep at the same time, such that only few can fail at once."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from reconciler.api.meta import Object, ref_of
from reconciler.api.updaterequest import RequestSpec, RequestStatus, Source, UpdateRequest
from reconciler.engine.match import Decision, Subject
from reconciler.engine.program import Program
from reconciler.requests.lifecycle import Done, Skip
from reconciler.services.processing.attempt import Attempt, Processor
from reconciler.services.processing.trigger import LabelsOf

Each: TypeAlias = Callable[[RequestSpec, Attempt], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Works on triggers of a rule at the same time.

    Attributes:
        processor: The processor that acts as the account of the rule.
        request: The sweep.
        each: Called with the result for each trigger, as if requested for that trigger alone.
        is_excluded: Returns whether the settings exclude an object as a trigger of a rule.
        is_closed: Returns whether no work of the policy may be done now, as while it is paused.
    """

    processor: Processor
    request: UpdateRequest
    program: Program
    each: Each
    is_excluded: Callable[[Program, Subject], bool]
    is_closed: Callable[[], bool]

    async def attempts(self, objects: Sequence[Object], width: int) -> list[Attempt | None]:
        """Return the attempts at objects in their order, up to where all places have ended.

        Args:
            objects: Triggers, begun in this order; one that does not fit the rule results in None.
            width: The number of places. A place in which a trigger failed takes no other one, so
                no more can fail. While the policy is closed, no place takes another one.
        """
        labels = await self._labels(objects)
        ended: dict[int, Attempt | None] = {}
        left = deque(enumerate(objects))

        async def work() -> None:
            while left:
                index, obj = left.popleft()
                ended[index] = attempt = await self._one(obj, labels)
                if self.is_closed() or (attempt is not None and has_failed(attempt)):
                    return

        try:
            await asyncio.gather(*(work() for _ in range(width)))
        finally:
            # After an error no place takes another trigger.
            left.clear()
        return [ended[index] for index in sorted(ended)]

    async def _labels(self, objects: Iterable[Object]) -> LabelsOf:
        """Return the labels of the objects' namespaces, each read once, if the rule needs them."""
        if not self.program.match.needs.namespace_labels:
            return {}
        names = list({str(obj["metadata"].get("namespace") or "") for obj in objects})
        reading = self.processor.reading
        found = await asyncio.gather(*(reading.namespace_labels(name) for name in names))
        return dict(zip(names, found, strict=True))

    async def _one(self, obj: Object, labels: LabelsOf) -> Attempt | None:
        program, request = self.program, self.request
        trigger = await self.processor.reading.of_object(obj, program, labels=labels)
        if self.is_excluded(program, trigger.subject):
            return None
        verdict = program.match.evaluate(trigger.subject)
        if verdict.decision is not Decision.MATCH:
            return None
        # The sweep's own results must not make a trigger's targets look done, and its marker on
        # a target must distinguish the triggers.
        ref = ref_of(obj)
        name = marker_of(request, program.origin.generation, ref.uid)
        self.processor.lanes.covered.pop(name, None)
        blank = replace(request, name=name, status=RequestStatus())
        attempt = await self.processor.apply(blank, program, trigger, 0.0, verdict)
        self.each(replace(request.spec, resource=ref, sweep=False, sequence=0), attempt)
        return attempt


def marker_of(sweep: UpdateRequest, generation: int, uid: str) -> str:
    """Return the name that stands for one trigger of a sweep in the markers on its targets.

    A manual run begins again with a newer generation of the rule, and its triggers with it.
    """
    run = f"/{generation}" if sweep.spec.source is Source.MANUAL else ""
    return f"{sweep.name}{run}/{uid}"


def has_failed(attempt: Attempt) -> bool:
    """Return whether an attempt ended neither as done nor as skipped."""
    return not isinstance(attempt.disposition, Done | Skip)
