"""The `Runs` port: hooks that are executables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from reconciler.clock import Clock, SystemClock
from reconciler.errors import InvalidPolicy
from reconciler.execution.discovery import Executable
from reconciler.execution.executables import Answer, Executables
from reconciler.hooks.bindings import (
    MAIN_QUEUE,
    HookConfig,
    KubernetesBinding,
    ScheduleBinding,
)
from reconciler.hooks.metrics import HookMetrics, parse_metrics
from reconciler.hooks.operations import decode_operations
from reconciler.hooks.ports import HookRef, RunFailure, RunResult
from reconciler.hooks.values import render_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabels:
    """What a run is told by in logs and metrics.

    Attributes:
        hook: Its path below the folder of hooks.
        binding: Of the first thing that it is run for, as ``event``, which may be empty.
        allow_failure: That it fails holds nothing up.
    """

    hook: str
    binding: str
    queue: str
    event: str
    allow_failure: bool


class RunObserver(Protocol):
    """Sees what runs say, and how they end."""

    def said(self, run: RunLabels, line: str, stream: str) -> None:
        """Take a line that a hook printed."""
        ...

    def noticed(self, run: RunLabels, problem: str) -> None:
        """Take a sentence on what went wrong without failing the run."""
        ...

    def ended(
        self, run: RunLabels, answer: Answer, seconds: float, failure: RunFailure | None
    ) -> None:
        """Take how a run ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableRuns:
    """Runs executables by the `Hook` that each of them has.

    Attributes:
        known: All there are.
        seconds: That a run may take; None for no limit.
    """

    executables: Executables
    known: Mapping[HookRef, Executable]
    metrics: HookMetrics
    observer: RunObserver
    seconds: float | None = None
    clock: Clock = field(default_factory=SystemClock)

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        """Run a hook once, until it has ended; one that is not there any more fails.

        Raises:
            Interrupted: The machine could not run it.
        """
        executable = self.known.get(hook)
        if executable is None:
            return RunResult(failure=RunFailure(reason="its executable is not there any more"))
        run = labels_of(executable.name, config, contexts)

        def say(line: str, stream: str) -> None:
            self.observer.said(run, line, stream)

        begun = self.clock.monotonic()
        context = render_json(list(contexts))
        answer = await self.executables.run(executable, context, say, seconds=self.seconds)
        result = self._result(run, answer)
        self.observer.ended(run, answer, self.clock.monotonic() - begun, result.failure)
        return result

    def _result(self, run: RunLabels, answer: Answer) -> RunResult:
        for problem in problems_of(answer):
            self.observer.noticed(run, problem)
        failure = answer.failure
        operations: list[Any] = []
        try:
            operations = decode_operations(answer.operations)
            # Of a run that failed the metrics do not count, as in the original.
            found = parse_metrics(answer.metrics) if failure is None else ()
        except InvalidPolicy as error:
            said = "; ".join(map(str, (error, *error.others)))
            return RunResult(operations=operations, failure=failure or RunFailure(reason=said))
        for problem in self.metrics.take(run.hook, found):
            self.observer.noticed(run, problem)
        return RunResult(operations=operations, failure=failure)


def problems_of(answer: Answer) -> list[str]:
    """Return what is to be said of a run whether it went well or not."""
    found: list[str] = []
    if answer.left_out:
        found.append(f"{answer.left_out} lines are left out: more than 1,000 in a second")
    if answer.ended is not None and answer.ended.left_behind:
        found.append("it left processes behind, which were ended")
    return found


def labels_of(hook: str, config: HookConfig, contexts: Sequence[Mapping[str, Any]]) -> RunLabels:
    """Return what a run is told by: the first of its contexts says it."""
    first = contexts[0] if contexts else {}
    name = str(first.get("binding", ""))
    bindings: tuple[KubernetesBinding | ScheduleBinding, ...] = (
        *config.kubernetes,
        *config.schedules,
    )
    binding = next((item for item in bindings if item.name == name), None)
    return RunLabels(
        hook=hook,
        binding=name,
        queue=MAIN_QUEUE if binding is None else binding.queue,
        event=str(first.get("watchEvent", "")),
        allow_failure=binding is not None and binding.allow_failure,
    )
