"""One attempt at a run: run the hook, carry out its operations, and store the progress.

An operation that found the API server unavailable holds up those after it, which keeps their
order. An error of one object (a missing right, a refusal, a failing webhook) does not.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import ObjectRef, ref_of
from reconciler.api.updaterequest import Outcome, TargetStatus, UpdateRequest
from reconciler.errors import (
    ClusterError,
    Forbidden,
    Invalid,
    InvalidPolicy,
    RetrofitError,
    Throttled,
    Unauthorized,
    Unavailable,
    Unfinished,
)
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.operations import OBJECTS, Operation, after_failure, read_operations
from reconciler.hooks.plan import Plan, Step, encode, needs_plan, planned
from reconciler.hooks.ports import HookRef, Runs
from reconciler.requests.redaction import HIDDEN, quotable_permission, said, withheld
from reconciler.services.hooks.operations import OperationResult, OperationRunner
from reconciler.services.hooks.requests import HookRequests

_REPEATED: Final = (Forbidden, Unavailable, Throttled, Unauthorized)
"""Errors that a retry of the same operation can cure: a temporary one, or a missing right."""
_AWAY: Final = (Unavailable, Throttled, Unauthorized)
_AT_ONE_OBJECT: Final = 500
"""Status of the API server's answer if a webhook fails, which may affect this object alone."""
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0)
"""Seconds between retries of a create; the client retries other calls itself."""
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How an attempt ended.

    Attributes:
        failure: Empty if it succeeded.
        missing: The right that an operation lacked.
    """

    failure: str = ""
    missing: str = ""
    targets: tuple[TargetStatus, ...] = ()


@dataclass(slots=True, kw_only=True)
class HookRun:
    """Runs one hook for requests that belong together, the first of which holds the plan."""

    requests: HookRequests
    runs: Runs
    operations: OperationRunner
    ref: HookRef
    config: HookConfig
    _away: bool = False

    async def attempt(
        self,
        covered: Sequence[UpdateRequest],
        contexts: Callable[[], Sequence[Mapping[str, Any]]],
        *,
        repeated: bool,
    ) -> RunOutcome:
        """Run the hook, or resume the plan of an earlier attempt.

        Args:
            covered: The requests that the run is for, in order.
            contexts: Returns the binding contexts that the hook reads.
            repeated: A failed attempt is followed by another one.

        Raises:
            ClusterError: Nothing can be stored, so nothing was done.
        """
        after_secrets = self._reads_secrets(covered)
        plan = await self.requests.read_plan(covered[0].name)
        if plan is not None:
            plan = replace(plan, after_secrets=plan.after_secrets or after_secrets)
            return await self._carry_out(plan, covered[0].name, repeated=repeated)
        try:
            result = await self.runs.run(self.ref, self.config, contexts())
            documents = list(result.operations)
            encode(documents)
            operations = tuple(
                replace(item, after_secrets=after_secrets) for item in read_operations(documents)
            )
        except InvalidPolicy as error:
            return RunOutcome(failure=_one_line(_invalid(error, confidential=after_secrets)))
        except RetrofitError as error:
            return RunOutcome(failure=_one_line(str(error)))
        if result.failure is not None:
            await self.operations.run(after_failure(operations))
            return RunOutcome(failure=_one_line(str(result.failure)))
        if not needs_plan(operations):
            return self._outcome(await self.operations.run(operations))
        plan = planned(documents, operations, [request.name for request in covered])
        try:
            await self.requests.store_plan(covered[0].name, plan)
        except Invalid as error:
            return RunOutcome(failure=_one_line(str(error)))
        return await self._carry_out(plan, covered[0].name, repeated=repeated)

    def _reads_secrets(self, covered: Sequence[UpdateRequest]) -> bool:
        recorded = any(request.spec.recorded_secret for request in covered)
        return recorded or self.config.shows_secrets

    async def _carry_out(self, plan: Plan, name: str, *, repeated: bool) -> RunOutcome:
        """Carry out the open steps of a plan, and record their outcomes.

        If another attempt has to redo a step first, the steps after it wait.
        """
        results: list[OperationResult] = []
        last = {share[-1] for share in plan.shares()}
        for index, operation in enumerate(plan.operations()):
            step = plan.steps[index]
            if step.outcome:
                results.append(OperationResult(operation=operation, outcome=Outcome(step.outcome)))
                continue
            step, result = await self._step(step, operation)
            results.append(result)
            plan = plan.with_step(index, step)
            self.requests.note_plan(name, plan)
            ended = index in last or result.error is not None
            if ended and index + 1 < len(plan.steps):
                await self.requests.store_plan(name, plan)
            if repeated and _is_away(result.error):
                break
        await self._settle(name, plan, results)
        return self._outcome(results)

    async def _step(self, step: Step, operation: Operation) -> tuple[Step, OperationResult]:
        """Carry out a step; return it with its outcome.

        A plan records what it has created itself, so a create can be retried at once.
        """
        pauses = iter(_PAUSES if operation.type in OBJECTS else ())
        while True:
            result = await self.operations.carry_out(operation, uncertain=step.uncertain)
            # An API server that has just started refuses everything until it has read the roles.
            starting = self._away and isinstance(result.error, Forbidden)
            step = _noted(step, result)
            pause = next(pauses, None)
            self._away = _is_away(result.error) or (starting and pause is not None)
            if pause is None or not self._away:
                return step, result
            await asyncio.sleep(max(_asked(result.error), pause))

    async def _settle(self, name: str, plan: Plan, results: Sequence[OperationResult]) -> None:
        """Keep the plan if retrying can cure all failures, else drop it and run the hook again."""
        errors = [result.error for result in results if result.error is not None]
        if not errors:
            # With a single request its final state says as much.
            if len(plan.covers) > 1:
                await self.requests.store_plan(name, plan)
        elif all(isinstance(error, _REPEATED) for error in errors):
            await self.requests.store_plan(name, plan.reopened())
        else:
            await self.requests.drop_plan(name)

    def _outcome(self, results: Sequence[OperationResult]) -> RunOutcome:
        errors = [result for result in results if result.error is not None]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return RunOutcome(
            failure=_one_line(f"{_said(errors[0])}{more}") if errors else "",
            missing=next(filter(None, map(self._missing, errors)), ""),
            targets=tuple(_target(result) for result in results),
        )

    def _missing(self, result: OperationResult) -> str:
        """Return the right that an operation lacked; empty if it lacked none."""
        if not isinstance(result.error, Forbidden):
            return ""
        permission = result.error.permission
        if not result.operation.after_secrets:
            return permission
        return quotable_permission(permission, frozenset({self.operations.confined_to}))


def _noted(step: Step, result: OperationResult) -> Step:
    return replace(
        step,
        outcome=result.outcome.value,
        message=_said(result),
        uncertain=step.uncertain or isinstance(result.error, Unavailable),
    )


def _is_away(error: RetrofitError | None) -> bool:
    """Return whether the API server was unavailable, so that the next call may fail too."""
    if isinstance(error, Unfinished) or not isinstance(error, _AWAY):
        return False
    return error.status != _AT_ONE_OBJECT


def _asked(error: RetrofitError | None) -> float:
    """Return the seconds of the API server's Retry-After, 0 without one."""
    return (error.retry_after if isinstance(error, ClusterError) else None) or 0.0


def _invalid(error: InvalidPolicy, *, confidential: bool) -> str:
    errors = (error, *error.others)
    if confidential:
        return withheld(f"cannot be used: {', '.join(item.location for item in errors)}")
    return "; ".join(map(str, errors))


def _said(result: OperationResult) -> str:
    """Return why an operation failed; empty if it did not."""
    if result.error is None:
        return ""
    what = said(result.error, confidential=result.operation.is_confidential)
    return _one_line(f"{result.operation.type} {_named(result)}: {what}")


def _target(result: OperationResult) -> TargetStatus:
    return TargetStatus(
        ref=_named(result),
        subresource=result.operation.subresource,
        outcome=result.outcome,
        message=_said(result),
    )


def _named(result: OperationResult) -> ObjectRef:
    """Return the object of an operation, without a name that may come from a Secret.

    Only after a success does the name also stand in the cluster.
    """
    ref = _ref(result.operation)
    if result.error is None or not result.operation.after_secrets:
        return ref
    hidden = HIDDEN if ref.namespace else ""
    return ObjectRef(api_version=ref.api_version, kind=ref.kind, namespace=hidden, name=HIDDEN)


def _ref(operation: Operation) -> ObjectRef:
    if operation.type in OBJECTS and isinstance(operation.payload, Mapping):
        return ref_of(operation.payload)
    return ObjectRef(
        api_version=operation.api_version,
        kind=operation.kind,
        namespace=operation.namespace,
        name=operation.name,
    )


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
