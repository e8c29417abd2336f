"""The `Runs` port for hooks that are declared as objects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reconciler.engine.allowance import BRIEF_STEPS, EVALUATION_STEPS, Allowance, Exhausted
from reconciler.errors import EvaluationError
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.declared import DeclaredHook, DeclaredRun
from reconciler.hooks.ports import HookRef, RunFailure, RunResult
from reconciler.services.ports.isolation import Isolation
from reconciler.services.ports.jq import Jq


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRuns:
    """Evaluates a declared run in this process, and in an isolated one if it takes long."""

    hook: DeclaredHook
    jq: Jq
    isolation: Isolation

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        """Return the operations that the hook answers for these contexts."""
        del config
        declared = self.hook.run or DeclaredRun()
        try:
            if declared.program:
                return RunResult(operations=await self._filtered(declared.program, contexts))
            return RunResult(operations=await self._answered(hook, declared, contexts))
        except EvaluationError as error:
            return RunResult(failure=RunFailure(reason=error.without_values))

    async def _filtered(self, program: str, contexts: Sequence[Mapping[str, Any]]) -> list[Any]:
        (found,) = await self.jq.evaluate(program, [{"contexts": list(contexts)}])
        if isinstance(found, EvaluationError):
            raise EvaluationError("spec.run.jq fails").bare(f"spec.run.jq: {found.without_values}")
        return found

    async def _answered(
        self, hook: HookRef, declared: DeclaredRun, contexts: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        try:
            return declared.answer(contexts, Allowance(BRIEF_STEPS))
        except Exhausted:
            answer = partial(declared.answer, contexts, Allowance(EVALUATION_STEPS))
            return await self.isolation.evaluate(answer, hook.namespace or str(hook))
