"""Plans of runs, stored before the first operation, so that a new process can resume.

A run is planned if repeating it could do harm: if it answers several operations, or one that is
not idempotent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import orjson

from reconciler.errors import Invalid
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
"""Maximum number of steps whose outcomes are stored in one write."""
_SUFFIX: Final = 5
_LONGEST_PREFIX: Final = 58


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operation of a plan.

    Attributes:
        document: The operation, as the hook answered it.
        uncertain: It was or may have been sent without an answer: it may be done, in which case
            the object to create exists.
        outcome: An `Outcome`; empty while the step is open.
    """

    document: Mapping[str, Any]
    uncertain: bool = False
    outcome: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The operations of one run.

    Attributes:
        covers: Names of the requests that it is for; the first holds the plan.
        after_secrets: The run may have read a Secret.
    """

    steps: tuple[Step, ...]
    covers: tuple[str, ...]
    after_secrets: bool = False

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations, in the order of the steps."""
        found = read_operations([step.document for step in self.steps])
        return tuple(replace(item, after_secrets=self.after_secrets) for item in found)

    def with_step(self, index: int, step: Step) -> "Plan":
        """Return the plan with the step at an index replaced."""
        return replace(self, steps=(*self.steps[:index], step, *self.steps[index + 1 :]))

    def reopened(self) -> "Plan":
        """Return the plan with its failed steps open again, for another attempt."""
        return replace(
            self,
            steps=tuple(
                replace(step, outcome="", message="") if step.message else step
                for step in self.steps
            ),
        )

    def resumed(self) -> "Plan":
        """Return the plan as a new process resumes it.

        Its first open steps may have been sent, up to as many as are stored together. Steps that
        failed before them are opened again: it is unknown whether the run was to be repeated for
        them.
        """
        plan = self
        for index in next(iter(self.shares()), ()):
            plan = plan.with_step(index, replace(self.steps[index], uncertain=True))
        return plan.reopened()

    def shares(self) -> list[list[int]]:
        """Return the indices of the open steps, grouped by the write that stores them.

        The steps of a group can all be repeated in order, because each has an object of its own. A
        step that is not idempotent is a group of its own.
        """
        found: list[list[int]] = []
        touched: set[tuple[str, str]] = set()
        closed = True
        for index, (step, operation) in enumerate(zip(self.steps, self.operations(), strict=True)):
            if step.outcome:
                continue
            place = _place(operation) if operation.type in _REPEATABLE | _MADE else None
            full = len(touched) == _TOGETHER
            if closed or place is None or full or any(_may_be_one(place, it) for it in touched):
                found.append([])
                touched.clear()
            found[-1].append(index)
            closed = place is None
            if place is not None:
                touched.add(place)
        return found


def needs_plan(operations: Sequence[Operation]) -> bool:
    """Return whether repeating these operations could do harm."""
    return len(operations) > 1 or any(item.type not in _REPEATABLE for item in operations)


def planned(
    documents: Sequence[Any], operations: Sequence[Operation], covers: Sequence[str]
) -> Plan:
    """Return the plan of a run.

    An object to create with ``generateName`` gets a unique name here. If an object of that name
    exists already, this run or the one that it repeats has created it.

    Args:
        covers: Names of the requests that the run is for.
    """
    steps = tuple(
        _step(document, operation, f"{covers[0]}/{index}")
        for index, (document, operation) in enumerate(zip(documents, operations, strict=True))
    )
    after_secrets = any(operation.after_secrets for operation in operations)
    return Plan(steps=steps, covers=tuple(covers), after_secrets=after_secrets)


def _place(operation: Operation) -> tuple[str, str] | None:
    """Return namespace and name of an operation's object; None if they are not known yet."""
    if operation.type not in OBJECTS:
        return operation.namespace, operation.name
    if not isinstance(operation.payload, Mapping):
        return None
    meta = operation.payload.get("metadata")
    if not isinstance(meta, Mapping):
        return None
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _may_be_one(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two places may be those of one object.

    Its kind may be written in several ways, and a Hook need not name its own namespace.
    """
    return one[1] == other[1] and (one[0] == other[0] or not (one[0] and other[0]))


def _step(document: Any, operation: Operation, place: str) -> Step:
    obj = document.get("object")
    if operation.type not in _MADE or not isinstance(obj, Mapping):
        return Step(document=document)
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping) or meta.get("name") or not meta.get("generateName"):
        return Step(document=document)
    # A repeated run may answer another document, which then gets another name.
    seed = f"{place}/{json.dumps(document)}"
    suffix = blake2b(seed.encode(), digest_size=_SUFFIX).hexdigest()
    name = f"{str(meta['generateName'])[:_LONGEST_PREFIX]}{suffix}"[:63]
    named = {**document, "object": {**obj, "metadata": {**meta, "name": name}}}
    return Step(document=named, uncertain=True)


def encode(operations: object) -> bytes:
    """Return operations encoded as JSON.

    Raises:
        Invalid: They hold a value that JSON cannot.
    """
    try:
        return orjson.dumps(operations)
    except orjson.JSONEncodeError as error:
        raise Invalid(f"the operations cannot be written as JSON: {error}") from error


def render_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as it is stored.

    Raises:
        Invalid: An operation cannot be written as JSON.
    """
    return {
        "covers": list(plan.covers),
        **({"afterSecrets": True} if plan.after_secrets else {}),
        "operations": [
            {
                name: value
                for name, value in (
                    # The API server drops every null of a status, but not from a text.
                    ("operation", step.document and encode(step.document).decode()),
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
        after_secrets=raw.get("afterSecrets") is True,
        steps=tuple(
            Step(
                document=_document(item.get("operation")),
                uncertain=item.get("uncertain") is True,
                outcome=str(item.get("outcome", "")),
                message=str(item.get("message", "")),
            )
            for item in raw.get("operations") or ()
        ),
    )


def _document(stored: Any) -> Mapping[str, Any]:
    # Earlier versions stored an operation as an object.
    document: Mapping[str, Any] = orjson.loads(stored) if isinstance(stored, str) else stored
    return document or {}
