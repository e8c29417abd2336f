"""The parts of an entry's data that have names, evaluated where nothing else waits for them."""

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
"""All entries take turns as one, so that rules have the other process."""
_RETRY_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluated:
    """What came of a projection on one revision of the data.

    Attributes:
        until: Monotonic time at which it has to be tried again, though the data is the same.
    """

    revision: int
    value: Any = None
    error: RetrofitError | None = None
    exhausted: bool = False
    until: float = float("inf")


_NEVER: Final = _Evaluated(revision=-1)


@dataclass(slots=True, kw_only=True)
class Projections:
    """Evaluates each projection once per revision, whoever asks for it.

    What takes long is evaluated in a process of its own; a projection that took long once is not
    tried here again.
    """

    source: Source
    expressions: Mapping[str, Expression]
    isolation: Isolation
    clock: Clock
    _known: dict[str, _Evaluated] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _long: set[str] = field(default_factory=set)

    async def value(self, name: str) -> Any:
        """Return a projection of the data as it is now, or was changed to meanwhile.

        Raises:
            EvaluationError: It fails on the data, or costs too much.
            Interrupted: It was ended from outside; later it may succeed.
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
            # Whoever stops waiting stops nobody else.
            await asyncio.wait([running])
            if running.cancelled():
                raise Interrupted("the entry was changed or deleted meanwhile")
            running.result()

    @property
    def due(self) -> bool:
        """Return whether one that was interrupted may be tried again."""
        now = self.clock.monotonic()
        return any(now >= known.until for known in self._known.values())

    def close(self) -> tuple[asyncio.Task[None], ...]:
        """End what is being evaluated; return what is ending."""
        ending = tuple(self._running.values())
        for task in ending:
            task.cancel()
        return ending

    async def _evaluate(self, name: str) -> None:
        # The source makes its data anew when it changes, and nobody changes what it gave.
        revision, data = self.source.revision, self.source.data()
        expression = self.expressions[name]
        try:
            found = _NEVER
            if name not in self._long:
                found = _search(expression, revision, data, BRIEF_STEPS)
                if found.exhausted:
                    self._long.add(name)
            if name in self._long:
                # The limits of an expression are within what one evaluation may cost.
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
