"""What a run is to do, noted before it is begun: a new process goes on where the last one was.

A run is planned where doing it twice would do harm: where it answers several operations, or one
that is no repetition of itself.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from reconciler.hooks.operations import OBJECTS, Operation, OperationType, read_operations

_REPEATABLE: Final = frozenset(
    {
        OperationType.CREATE_OR_UPDATE,
        OperationType.MERGE_PATCH,
        OperationType.DELETE,
        OperationType.DELETE_IN_BACKGROUND,
        OperationType.DELETE_NON_CASCADING,
    }
)
_MADE: Final = frozenset({OperationType.CREATE, OperationType.CREATE_IF_NOT_EXISTS})
_TOGETHER: Final = 32
"""Steps at most whose outcomes are stored by one write."""
_SUFFIX: Final = 5
_LONGEST_PREFIX: Final = 58


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operation of a plan.

    Attributes:
        document: The operation, as the hook answered it.
        uncertain: It was sent and got no answer, or may have been: it may be done, and what is to
            be created is there then.
        outcome: Empty while it is open; an `Outcome`.
        message: Why it failed.
    """

    document: Mapping[str, Any]
    uncertain: bool = False
    outcome: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The operations of one run.

    Attributes:
        covers: Names of the requests that it is for, the one that holds the plan first.
    """

    steps: tuple[Step, ...]
    covers: tuple[str, ...]

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations, in the order of the steps."""
        return read_operations([step.document for step in self.steps])

    def with_step(self, index: int, step: Step) -> "Plan":
        """Return it with another step in a place."""
        return replace(self, steps=(*self.steps[:index], step, *self.steps[index + 1 :]))

    def reopened(self) -> "Plan":
        """Return it with the steps that failed open again, for another attempt."""
        return replace(
            self,
            steps=tuple(
                replace(step, outcome="", message="") if step.message else step
                for step in self.steps
            ),
        )

    def resumed(self) -> "Plan":
        """Return it as a new process goes on with it.

        The first of its open steps may have been sent, as many as are stored together. Those that
        failed before them are open again: nobody knows any more whether the run was to be repeated
        for them.
        """
        plan = self
        for index in next(iter(self.shares()), ()):
            plan = plan.with_step(index, replace(self.steps[index], uncertain=True))
        return plan.reopened()

    def shares(self) -> list[list[int]]:
        """Return the places of the open steps, those together that are stored together.

        They may all be done again in their order, for each is for an object of its own. What is no
        repetition of itself is stored alone.
        """
        found: list[list[int]] = []
        touched: set[tuple[str, str]] = set()
        closed = True
        for index, (step, operation) in enumerate(zip(self.steps, self.operations(), strict=True)):
            if step.outcome:
                continue
            place = _place(operation) if operation.type in _REPEATABLE | _MADE else None
            if closed or place is None or place in touched or len(touched) == _TOGETHER:
                found.append([])
                touched.clear()
            found[-1].append(index)
            closed = place is None
            if place is not None:
                touched.add(place)
        return found


def needs_plan(operations: Sequence[Operation]) -> bool:
    """Return whether doing them twice would do harm."""
    return len(operations) > 1 or any(item.type not in _REPEATABLE for item in operations)


def planned(
    documents: Sequence[Any], operations: Sequence[Operation], covers: Sequence[str]
) -> Plan:
    """Return the plan of a run.

    What is to be created under a name that the API server makes up gets one here, which nothing
    else has: where it is there already, this run or one that it repeats has created it.

    Args:
        documents: As the hook answered.
        operations: The same, read.
        covers: Names of the requests that the run is for.
    """
    steps = tuple(
        _step(document, operation, f"{covers[0]}/{index}")
        for index, (document, operation) in enumerate(zip(documents, operations, strict=True))
    )
    return Plan(steps=steps, covers=tuple(covers))


def _place(operation: Operation) -> tuple[str, str] | None:
    """Return where the object of an operation is, whatever its kind; None: nobody knows yet."""
    if operation.type not in OBJECTS:
        return operation.namespace, operation.name
    if not isinstance(operation.payload, Mapping):
        return None
    meta = operation.payload.get("metadata")
    if not isinstance(meta, Mapping):
        return None
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _step(document: Any, operation: Operation, place: str) -> Step:
    obj = document.get("object")
    if operation.type not in _MADE or not isinstance(obj, Mapping):
        return Step(document=document)
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping) or meta.get("name") or not meta.get("generateName"):
        return Step(document=document)
    # A run that is repeated may answer something else.
    seed = f"{place}/{json.dumps(document)}"
    suffix = blake2b(seed.encode(), digest_size=_SUFFIX).hexdigest()
    name = f"{str(meta['generateName'])[:_LONGEST_PREFIX]}{suffix}"[:63]
    named = {**document, "object": {**obj, "metadata": {**meta, "name": name}}}
    return Step(document=named, uncertain=True)


def render_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as it is stored."""
    return {
        "covers": list(plan.covers),
        "operations": [
            {
                name: value
                for name, value in (
                    ("operation", step.document),
                    ("uncertain", step.uncertain),
                    ("outcome", step.outcome),
                    ("message", step.message),
                )
                if value
            }
            for step in plan.steps
        ],
    }


def parse_plan(raw: Mapping[str, Any]) -> Plan:
    """Return the plan that was stored."""
    return Plan(
        covers=tuple(map(str, raw.get("covers") or ())),
        steps=tuple(
            Step(
                document=item.get("operation") or {},
                uncertain=item.get("uncertain") is True,
                outcome=str(item.get("outcome", "")),
                message=str(item.get("message", "")),
            )
            for item in raw.get("operations") or ()
        ),
    )
