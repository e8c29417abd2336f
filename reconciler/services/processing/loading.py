"""Reads for context entries, each made once per attempt, when first needed; long evaluations."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reconciler.clock import Clock, Deadline
from reconciler.engine.allowance import BRIEF_STEPS, EVALUATION_STEPS, Allowance
from reconciler.engine.confidential import may_hold_secrets
from reconciler.engine.context import Context
from reconciler.engine.loads import ApiLoad, GlobalLoad, Load, LoadFailure, NeedsLoad
from reconciler.errors import (
    ClusterError,
    EvaluationError,
    Forbidden,
    Invalid,
    NoKindMatch,
    NotFound,
)
from reconciler.recent import Recent
from reconciler.services.ports.isolation import Isolation
from reconciler.services.ports.objects import Loader
from reconciler.services.processing.memory_budget import size_of
from reconciler.values import value_class

MAX_LOADS = 100
"""The most reads of one attempt; a rule that needs more of them reads in a loop."""
_MAX_READ = 8 * 1024 * 1024
"""The most bytes of what one attempt reads; objects of many small fields take 20 times as many."""
_AT_ONCE = 16
"""The most reads of one attempt at the same time, so that few arrive in vain."""
ATTEMPT_STEPS = 400_000_000
"""The most steps of one attempt, for all its targets and repetitions together."""
_LONG = 60.0
"""Seconds for which a rule that took long is not tried again where other work waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """The limits of evaluation, in steps.

    Attributes:
        evaluation: The limit of one evaluation of a rule at one object.
        trigger: The limit of all evaluations for one trigger.
        shared: All rules for the trigger share that limit; otherwise it is one rule's.
    """

    evaluation: int = EVALUATION_STEPS
    trigger: int = ATTEMPT_STEPS
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOwner:
    """The tenant, policy and rule that an evaluation belongs to."""

    tenant: str = ""
    policy: str = ""
    rule: str = ""


@dataclass(slots=True)
class LongEvaluations:
    """Runs long evaluations in isolation, and remembers which rules needed that.

    A rule that takes long does so for many triggers, which may all begin at the same moment.
    Trying each of them where other work waits would take long as well.
    """

    isolation: Isolation
    clock: Clock
    _long: Recent[EvaluationOwner, float] = field(default_factory=Recent)

    def expects(self, owner: EvaluationOwner) -> bool:
        """Return whether an evaluation of this owner took long lately."""
        return self.clock.monotonic() - self._long.get(owner, float("-inf")) < _LONG

    def note(self, owner: EvaluationOwner) -> None:
        """Note that an evaluation of this owner takes long."""
        self._long.keep(owner, self.clock.monotonic())


T = TypeVar("T")


@value_class(frozen=True, slots=True, kw_only=True)
class _Ended:
    """The end of an evaluation, in this process or elsewhere.

    Attributes:
        loads: The reads that are needed before it can be evaluated again.
    """

    steps: int
    exhausted: bool
    value: Any
    error: EvaluationError | None
    loads: tuple[Load, ...]


@dataclass(slots=True)
class Loads:
    """The reads of one attempt, shared by its targets.

    Attributes:
        confidential: Whether a Secret is the trigger, or may be among the data that was read.
        found: The results by load; a `LoadFailure` where there is nothing to read.
        allowance: The steps that are left for one evaluation.
        left: The steps that are left for the attempt.
        deadline: The deadline of all reads; None where each read has only its own timeout.
        long_evaluations: Runs long evaluations; None where no other work waits for this process.
        owner: The tenant, policy and rule of the attempt.
        count: Called with the bytes of each value that is read for this attempt alone.
        turn: Awaited before reads for this attempt alone; None where it has its turn already.
    """

    loader: Loader
    confidential: bool = False
    deadline: Deadline | None = None
    long_evaluations: LongEvaluations | None = None
    owner: EvaluationOwner = field(default_factory=EvaluationOwner)
    count: Callable[[int], None] = lambda _: None
    turn: Callable[[], Awaitable[None]] | None = None
    found: dict[Hashable, Any] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)
    limits: StepLimits = StepLimits()
    left: int = field(init=False)
    _running: dict[Load, asyncio.Task[None]] = field(default_factory=dict)
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _bytes: int = 0

    def __post_init__(self) -> None:
        self.left = self.limits.trigger

    @property
    def has_data(self) -> bool:
        """Return whether anything was read that a message may quote."""
        return not all(isinstance(item, LoadFailure) for item in self.found.values())

    def drop(self) -> None:
        """Forget what was read, at the end.

        An error of a read may be in a circle with its task and with this, and garbage is seldom
        collected.
        """
        self.found.clear()

    def of(self, context: Context) -> Context:
        """Return the context with these reads and with the allowance of an evaluation."""
        return context.with_loads(self.found, self.allowance)

    async def evaluate(self, work: Callable[[], T]) -> T:
        """Return the result of an evaluation, repeated after each read that it needs.

        A long evaluation is repeated elsewhere, from the start. Most evaluations are brief, and
        it cannot be predicted which are not.

        Raises:
            ClusterError: A read failed, and a later one may succeed.
            EvaluationError: The evaluation failed, or needs too many steps or reads.
            TimeoutError: A read did not end before the deadline.
            Interrupted: The evaluation was ended from outside; another attempt may succeed.
        """
        long_evaluations = self.long_evaluations
        long = long_evaluations is not None and long_evaluations.expects(self.owner)
        while True:
            if long_evaluations is None:
                ended = self._run(work, self.limits.evaluation)
            elif long:
                ended = await long_evaluations.isolation.evaluate(
                    lambda: self._run(work, self.limits.evaluation), self.owner.tenant
                )
            else:
                ended = self._run(work, BRIEF_STEPS)
            self.left -= ended.steps
            if ended.loads:
                await self._read(ended.loads)
            elif not ended.exhausted:
                if ended.error is not None:
                    raise ended.error
                value: T = ended.value
                return value
            elif long_evaluations is None or long or self.left <= 0:
                # An expression may have handled the error, so the result does not count.
                raise self._too_costly() from ended.error
            else:
                long = True
                long_evaluations.note(self.owner)

    def _run(self, work: Callable[[], Any], allowed: int) -> _Ended:
        given = self.allowance.left = min(allowed, self.left)
        value = None
        error: EvaluationError | None = None
        loads: tuple[Load, ...] = ()
        try:
            value = work()
        except NeedsLoad as need:
            loads = need.loads
        except EvaluationError as failed:
            error = failed
        except RecursionError:
            msg = "an object that the rule uses is nested too deeply"
            error = EvaluationError(msg).bare(msg)
        return _Ended(
            steps=given - self.allowance.left,
            exhausted=self.allowance.exhausted,
            value=value,
            error=error,
            loads=loads,
        )

    def _too_costly(self) -> EvaluationError:
        if self.left <= 0 and self.limits.shared:
            msg = (
                f"evaluating all rules takes more than {self.limits.trigger} steps for one"
                " request; narrow down what they match, or the data that they process"
            )
            return EvaluationError(msg).bare(msg)
        if self.left <= 0:
            limit, where = self.limits.trigger, "for one trigger"
            cure = "its targets, or the data that its expressions process"
        else:
            limit, where = self.limits.evaluation, "for one object"
            cure = "the data that its expressions or its foreach process"
        msg = f"evaluating the rule takes more than {limit} steps {where}; narrow down {cure}"
        return EvaluationError(msg).bare(msg)

    async def _read(self, loads: Sequence[Load]) -> None:
        """Read all loads at the same time; raise the error of the first one that fails."""
        # Other targets may have read some of them while this was evaluated elsewhere.
        loads = [load for load in loads if load not in self.found]
        if len(self.found) + len(loads) > MAX_LOADS:
            msg = f"the rule's context entries need more than {MAX_LOADS} reads for one trigger"
            raise EvaluationError(msg).bare(msg)
        own = [load for load in loads if not isinstance(load, GlobalLoad)]
        for load in own:
            self.confidential = self.confidential or may_hold_secrets(load)
        if own and self.turn is not None:
            async with self._time_left():
                await self.turn()
        # A caller that stops waiting must not cancel a read that others share.
        waiting = [asyncio.shield(self._reading(load)) for load in loads]
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            if error is not None:
                try:
                    raise error
                finally:
                    # It knows this frame. Together they would stay until garbage is collected.
                    del error, waiting

    def _time_left(self) -> asyncio.Timeout:
        return asyncio.timeout(None if self.deadline is None else self.deadline.left)

    def _reading(self, load: Load) -> asyncio.Task[None]:
        running = self._running.get(load)
        if running is None:
            running = asyncio.create_task(self._fetch(load))
            self._running[load] = running
        return running

    async def _fetch(self, load: Load) -> None:
        try:
            # Only here: a caller that left at the same time would not see how this ends.
            async with self._time_left(), self._gate:
                self._check_bytes()
                value = await self.loader.load(load)
            if not isinstance(load, GlobalLoad):
                self._count(value)
            self.found[load] = value
            # Not earlier: why an entry is not ready is public, because its status shows it.
            self.confidential = self.confidential or may_hold_secrets(load)
        except (NotFound, NoKindMatch, Invalid) as error:
            self.found[load] = LoadFailure(str(error), bare=error.kind_of_failure)
        except ClusterError as error:
            # The adapter's message quotes the load, which is made of data.
            error.bare(f"a context entry cannot be read: {error.kind_of_failure}")
            made_of_values = isinstance(load, ApiLoad) and load.made_of_values
            if isinstance(error, Forbidden) and self.confidential and made_of_values:
                error.withhold_permission()
            raise
        finally:
            del self._running[load]

    def _count(self, value: Any) -> None:
        size = size_of(value)
        self._bytes += size
        self.count(size)
        self._check_bytes()

    def _check_bytes(self) -> None:
        if self._bytes > _MAX_READ:
            msg = (
                f"the rule's context entries read more than {_MAX_READ >> 20} MiB for one trigger;"
                " read fewer or smaller objects"
            )
            raise EvaluationError(msg).bare(msg)
