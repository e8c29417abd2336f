"""Projections: named expressions on the data of a global entry, and their evaluation."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.clock import Clock
from reconciler.engine.allowance import BRIEF_STEPS, EVALUATION_STEPS, Allowance
from reconciler.errors import EvaluationError, Interrupted, RetrofitError
from reconciler.languages.jmespath import Expression
from reconciler.services.catalog.globalcontext.sources import Source
from reconciler.services.ports.isolation import Isolation

_TENANT: Final = "GlobalContextEntries"
"""All entries are one tenant, which may run one child process; the other is left to rules."""
_RETRY_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluated:
    """The result of a projection on one revision of the data.

    Attributes:
        until: Monotonic time at which it has to be evaluated again even if the data is the same.
    """

    revision: int
    value: Any = None
    error: RetrofitError | None = None
    exhausted: bool = False
    until: float = float("inf")


_NEVER: Final = _Evaluated(revision=-1)


@dataclass(slots=True, kw_only=True)
class Projections:
    """Evaluates each projection once per revision of the data, for all readers.

    Long evaluations run in a separate process. A projection that once exceeded the brief
    allowance is not tried in this process again.
    """

    source: Source
    expressions: Mapping[str, Expression]
    isolation: Isolation
    clock: Clock
    _known: dict[str, _Evaluated] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _long: set[str] = field(default_factory=set)

    async def value(self, name: str) -> Any:
        """Return a projection of the current data, or of a revision that arrives meanwhile.

        Raises:
            EvaluationError: The projection fails on the data, or costs too much.
            Interrupted: The evaluation was ended from outside; it may succeed later.
        """
        wanted = self.source.revision
        while True:
            known = self._known.get(name, _NEVER)
            if known.revision >= wanted and self.clock.monotonic() < known.until:
                if known.error is not None:
                    raise known.error.with_traceback(None)
                return known.value
            running = self._running.get(name)
            if running is None:
                running = asyncio.create_task(self._evaluate(name))
                self._running[name] = running
            # Cancelling one waiting caller must not cancel the task for the others.
            await asyncio.wait([running])
            if running.cancelled():
                raise Interrupted("the entry was changed or deleted meanwhile")
            running.result()

    @property
    def due(self) -> bool:
        """Return whether an interrupted projection may be tried again."""
        now = self.clock.monotonic()
        return any(now >= known.until for known in self._known.values())

    def close(self) -> tuple[asyncio.Task[None], ...]:
        """Cancel all running evaluations and return their tasks."""
        ending = tuple(self._running.values())
        for task in ending:
            task.cancel()
        return ending

    async def _evaluate(self, name: str) -> None:
        # The source builds a new object when its data changes, and no reader modifies it.
        revision, data = self.source.revision, self.source.data()
        expression = self.expressions[name]
        try:
            found = _NEVER
            if name not in self._long:
                found = _search(expression, revision, data, BRIEF_STEPS)
                if found.exhausted:
                    self._long.add(name)
            if name in self._long:
                # The limits of an expression are within the allowance of one evaluation.
                found = await self.isolation.evaluate(
                    lambda: _search(expression, revision, data, EVALUATION_STEPS), _TENANT
                )
        except EvaluationError as error:
            found = _Evaluated(revision=revision, error=error)
        except Interrupted as error:
            until = self.clock.monotonic() + _RETRY_PAUSE
            found = _Evaluated(revision=revision, error=error, until=until)
        finally:
            del self._running[name]
        self._known[name] = found


def _search(expression: Expression, revision: int, data: Any, steps: int) -> _Evaluated:
    allowance = Allowance(steps)
    value, failed = None, None
    try:
        value = expression.search(data, allowance)
    except EvaluationError as error:
        failed = error
    return _Evaluated(revision=revision, value=value, error=failed, exhausted=allowance.exhausted)
