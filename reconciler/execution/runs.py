"""The ports `Runs` and `Answers` for executable hooks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from reconciler.clock import SystemClock
from reconciler.errors import InvalidPolicy
from reconciler.execution.discovery import Executable
from reconciler.execution.executables import Answer, Executables
from reconciler.hooks.bindings import MAIN_QUEUE, HookConfig
from reconciler.hooks.metrics import HookMetrics, MetricOperation, parse_metrics
from reconciler.hooks.operations import decode_operations
from reconciler.hooks.ports import HookRef, Reply, RunFailure, RunResult
from reconciler.hooks.responses import ResponseFiles
from reconciler.hooks.values import render_json

_Said = TypeVar("_Said")
_Result = TypeVar("_Result", bound="RunResult | Reply[Any]")

_GONE: Final = RunFailure(reason="its executable no longer exists")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabels:
    """Labels of a run in logs and metrics.

    Attributes:
        hook: Path of the executable below the folder of hooks.
        binding: That of the first context, as is ``event``, which may be empty.
        allow_failure: Its failure does not block the queue.
    """

    hook: str
    binding: str
    queue: str
    event: str
    allow_failure: bool


class RunObserver(Protocol):
    """Observes the output and the end of runs."""

    def said(self, run: RunLabels, line: str, stream: str) -> None:
        """Receive a line that a hook printed."""

    def noticed(self, run: RunLabels, problem: str) -> None:
        """Receive a sentence on a problem that does not fail the run."""

    def ended(
        self, run: RunLabels, answer: Answer, seconds: float, failure: RunFailure | None
    ) -> None:
        """Receive the result of a run that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableRuns:
    """Runs executables, identified by their `Hook` objects.

    Attributes:
        seconds: Time limit of a run; None for no limit.
    """

    executables: Executables
    known: Mapping[HookRef, Executable]
    metrics: HookMetrics
    observer: RunObserver
    seconds: float | None = None

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        """Run a hook once, until it has ended; fail if its executable no longer exists.

        Raises:
            Interrupted: The machine could not run it.
        """
        return await self._observed(hook, config, contexts, self._result, self.seconds)

    async def ask(
        self,
        hook: HookRef,
        config: HookConfig,
        contexts: Sequence[Mapping[str, Any]],
        read: Callable[[ResponseFiles], _Said],
        *,
        seconds: float,
    ) -> Reply[_Said]:
        """Return the reply of a hook to a review.

        Raises:
            Interrupted: The machine could not run it.
        """
        reply = partial(self._reply, read=read)
        return await self._observed(hook, config, contexts, reply, seconds)

    async def _observed(
        self,
        hook: HookRef,
        config: HookConfig,
        contexts: Sequence[Mapping[str, Any]],
        read: Callable[[RunLabels, Answer], _Result],
        seconds: float | None,
    ) -> _Result:
        """Run a hook once, report it to the observer, and return the parsed result."""
        executable = self.known.get(hook)
        if executable is None:
            return read(labels_of(str(hook), config, contexts), Answer(failure=_GONE))
        run = labels_of(executable.name, config, contexts)
        say = partial(self.observer.said, run)
        clock = SystemClock()
        begun = clock.monotonic()
        context = render_json(list(contexts), indented=True)
        answer = await self.executables.run(executable, context, say, seconds=seconds)
        for problem in problems_of(answer):
            self.observer.noticed(run, problem)
        result = read(run, answer)
        self.observer.ended(run, answer, clock.monotonic() - begun, result.failure)
        return result

    def _result(self, run: RunLabels, answer: Answer) -> RunResult:
        failure = answer.failure
        operations: list[Any] = []
        try:
            operations = decode_operations(answer.operations)
            # Metrics of a failed run are ignored, as in the original.
            found = parse_metrics(answer.metrics) if failure is None else ()
        except InvalidPolicy as error:
            return RunResult(operations=operations, failure=failure or _failure(error))
        self._report(run, found)
        return RunResult(operations=operations, failure=failure)

    def _reply(
        self, run: RunLabels, answer: Answer, read: Callable[[ResponseFiles], _Said]
    ) -> Reply[_Said]:
        if answer.failure is not None:
            return Reply(failure=answer.failure)
        if answer.operations.strip():
            # The request may be a dry run, or another webhook may refuse it.
            self.observer.noticed(run, "its operations are left out: a webhook changes nothing")
        try:
            self._report(run, parse_metrics(answer.metrics))
        except InvalidPolicy as error:
            return Reply(failure=_failure(error))
        try:
            return Reply(answer=read(answer), ran=True)
        except InvalidPolicy as error:
            return Reply(failure=_failure(error), ran=True)

    def _report(self, run: RunLabels, found: Sequence[MetricOperation]) -> None:
        for problem in self.metrics.take(run.hook, found):
            self.observer.noticed(run, problem)


def _failure(error: InvalidPolicy) -> RunFailure:
    return RunFailure(reason="; ".join(map(str, (error, *error.others))))


def problems_of(answer: Answer) -> list[str]:
    """Return the problems of a run that do not depend on its success."""
    found: list[str] = []
    if answer.left_out:
        found.append(f"{answer.left_out} lines are left out: more than 1,000 in a second")
    if answer.ended is not None and answer.ended.left_behind:
        found.append("it left processes behind, which were ended")
    return found


def labels_of(hook: str, config: HookConfig, contexts: Sequence[Mapping[str, Any]]) -> RunLabels:
    """Return the labels of a run, derived from its first context."""
    first = contexts[0] if contexts else {}
    name = str(first.get("binding", ""))
    binding = next((item for item in config.recorded if item.name == name), None)
    queue = MAIN_QUEUE if binding is None else binding.queue
    return RunLabels(
        hook=hook,
        binding=name,
        # Calls of the API server do not pass through a queue.
        queue="" if "review" in first else queue,
        event=str(first.get("watchEvent", "")),
        allow_failure=binding is not None and binding.allow_failure,
    )
