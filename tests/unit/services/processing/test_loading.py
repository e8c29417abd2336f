"""The data of context entries is loaded once per attempt, when it is first needed."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace

import pytest
from typing_extensions import override

from reconciler.clock import Deadline, SystemClock
from reconciler.dialects.kyverno.entries import ConfigMapEntry, VariableEntry, with_entries
from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.allowance import BRIEF_STEPS, EVALUATION_STEPS
from reconciler.engine.context import Context
from reconciler.engine.loads import ConfigMapLoad
from reconciler.errors import (
    EvaluationError,
    Forbidden,
    Invalid,
    NoKindMatch,
    NotFound,
    Unavailable,
)
from reconciler.isolation import ChildProcesses
from reconciler.languages.jmespath import compile_expression
from reconciler.services.processing.loading import (
    ATTEMPT_STEPS,
    MAX_LOADS,
    EvaluationOwner,
    Loads,
    LongEvaluations,
)


class Shelf:
    """A loader that returns each ConfigMap with its own name, and counts the calls."""

    def __init__(self):
        self.calls = Counter()
        self.failures = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def load(self, load):
        self.calls[load.name] += 1
        self.asked.set()
        await self.gate.wait()
        if load.name in self.failures:
            raise self.failures[load.name]
        return {"data": {"k": load.name}}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def config_map(name):
    template = compile_template(f"of-{name}", location="entry")
    return ConfigMapEntry(name=name, config_map=template, namespace=None, home="default", bound="")


def reading(source, loads, *entries):
    """Return an evaluation of an expression on a context with the entries."""
    context = with_entries(loads.of(Context({})), entries)
    return lambda: context.search(compile_expression(source))


ONE, TWO = config_map("one"), config_map("two")


async def test_only_referenced_entries_are_read(shelf):
    loads = Loads(shelf)
    assert await loads.evaluate(reading("'x'", loads, ONE, TWO)) == "x"
    assert not shelf.calls
    assert await loads.evaluate(reading("two.data.k", loads, ONE, TWO)) == "of-two"
    assert shelf.calls == {"of-two": 1}


async def test_an_entry_that_depends_on_another_is_read_after_it(shelf):
    template = compile_template("{{ one.data.k }}-next", location="entry")
    chained = ConfigMapEntry(
        name="chained", config_map=template, namespace=None, home="default", bound=""
    )
    loads = Loads(shelf)
    found = await loads.evaluate(reading("chained.data.k", loads, ONE, chained))
    assert found == "of-one-next"
    assert shelf.calls == {"of-one": 1, "of-one-next": 1}


class Together(Shelf):
    """A loader that answers only once a given number of calls wait."""

    def __init__(self, waiting):
        super().__init__()
        self.all_here = asyncio.Barrier(waiting)

    @override
    async def load(self, load):
        async with asyncio.timeout(5):
            await self.all_here.wait()
        return await super().load(load)


async def test_independent_entries_are_read_in_parallel():
    shelf, three = Together(3), config_map("three")
    again = replace(ONE, name="again")
    loads = Loads(shelf)
    source = "join(' ', [one.data.k, two.data.k, again.data.k, three.data.k])"
    found = await loads.evaluate(reading(source, loads, ONE, TWO, again, three))
    assert found == "of-one of-two of-one of-three"
    assert shelf.calls == {"of-one": 1, "of-two": 1, "of-three": 1}


async def test_the_first_of_several_failing_entries_is_the_error(shelf):
    shelf.failures = {"of-one": Unavailable("one"), "of-two": Unavailable("two")}
    loads = Loads(shelf)
    with pytest.raises(Unavailable, match="one"):
        await loads.evaluate(reading("[two, one]", loads, ONE, TWO))
    shelf.failures.clear()
    found = await loads.evaluate(reading("[two.data.k, one.data.k]", loads, ONE, TWO))
    assert found == ["of-two", "of-one"]


async def test_an_entry_after_one_that_fails_is_not_read(shelf):
    broken = VariableEntry(
        name="broken", value=None, path=compile_template("nothing.here"), default=None
    )
    loads = Loads(shelf)
    with pytest.raises(EvaluationError, match="broken"):
        await loads.evaluate(reading("[one, broken, two]", loads, ONE, broken, TWO))
    assert shelf.calls == {"of-one": 1}


async def test_evaluations_of_one_attempt_share_the_entries_that_were_read(shelf):
    loads = Loads(shelf)
    shelf.gate.clear()
    running = [
        asyncio.create_task(loads.evaluate(reading("one.data.k", loads, ONE))) for _ in range(9)
    ]
    await shelf.asked.wait()
    shelf.gate.set()
    assert await asyncio.gather(*running) == ["of-one"] * 9
    assert await loads.evaluate(reading("one.data.k", loads, ONE)) == "of-one"
    assert shelf.calls == {"of-one": 1}
    other = Loads(shelf)
    await other.evaluate(reading("one", other, ONE))
    assert shelf.calls == {"of-one": 2}


async def test_a_cancelled_evaluation_does_not_stop_a_read_that_another_needs(shelf):
    loads = Loads(shelf)
    shelf.gate.clear()
    first, second = (
        asyncio.create_task(loads.evaluate(reading("one.data.k", loads, ONE))) for _ in range(2)
    )
    await shelf.asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    shelf.gate.set()
    assert await second == "of-one"
    assert shelf.calls == {"of-one": 1}


class Stuck(Shelf):
    """A loader that never answers."""

    def __init__(self):
        super().__init__()
        self.ended = asyncio.Event()

    @override
    async def load(self, load):
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.ended.set()


async def test_a_read_ends_with_the_deadline_of_its_callers():
    stuck = Stuck()
    loads = Loads(stuck, deadline=Deadline(SystemClock(), 0.05))
    with pytest.raises(TimeoutError):
        await loads.evaluate(reading("one.data.k", loads, ONE))
    async with asyncio.timeout(10):
        await stuck.ended.wait()


@pytest.mark.parametrize(
    "error",
    [NotFound("it is gone"), NoKindMatch("it is gone"), Invalid("it is gone")],
    ids=lambda error: type(error).__name__,
)
async def test_an_entry_that_is_missing_or_invalid_is_an_error_of_the_rule(shelf, error):
    shelf.failures["of-one"] = error
    loads = Loads(shelf)
    for _ in range(2):
        with pytest.raises(EvaluationError, match="context entry one: it is gone"):
            await loads.evaluate(reading("one", loads, ONE))
    assert shelf.calls == {"of-one": 1}


async def test_a_default_replaces_an_entry_that_is_missing(shelf):
    shelf.failures["of-one"] = NotFound("it is gone")
    rescued = VariableEntry(
        name="v",
        value=None,
        path=compile_template("one.data.k", location="entry"),
        default=compile_template("d", location="entry"),
    )
    loads = Loads(shelf)
    assert await loads.evaluate(reading("v", loads, ONE, rescued)) == "d"


@pytest.mark.parametrize(
    "error",
    [Unavailable("later"), Forbidden("later", permission="get configmaps")],
    ids=lambda error: type(error).__name__,
)
async def test_a_transient_error_of_a_read_is_raised_and_not_kept(shelf, error):
    shelf.failures["of-one"] = error
    loads = Loads(shelf)
    with pytest.raises(type(error)):
        await loads.evaluate(reading("one", loads, ONE))
    del shelf.failures["of-one"]
    assert await loads.evaluate(reading("one.data.k", loads, ONE)) == "of-one"
    assert ConfigMapLoad(namespace="default", name="of-one") in loads.found


async def test_a_rule_that_exceeds_the_limit_of_reads_is_stopped(shelf):
    loads = Loads(shelf)
    for number in range(MAX_LOADS):
        entry = config_map(f"e{number}")
        await loads.evaluate(reading(f"e{number}", loads, entry))
    with pytest.raises(EvaluationError, match=f"more than {MAX_LOADS} reads"):
        await loads.evaluate(reading("one", loads, ONE))
    assert await loads.evaluate(reading("e7.data.k", loads, config_map("e7"))) == "of-e7"
    assert sum(shelf.calls.values()) == MAX_LOADS


class Warehouse(Shelf):
    """A loader that returns a megabyte each time, and counts the calls that run."""

    def __init__(self):
        super().__init__()
        self.running = self.most = 0

    @override
    async def load(self, load):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        return {**await super().load(load), "blob": "x" * 1_000_000}


async def test_a_rule_that_reads_too_much_for_one_trigger_is_stopped():
    warehouse = Warehouse()
    loads = Loads(warehouse)
    entries = [config_map(f"e{number}") for number in range(MAX_LOADS)]
    source = f"[{', '.join(entry.name for entry in entries)}]"
    with pytest.raises(EvaluationError, match=r"read more than 8 MiB .* one trigger"):
        await loads.evaluate(reading(source, loads, *entries))
    assert warehouse.most <= 16
    calls = sum(warehouse.calls.values())
    assert calls <= 32
    with pytest.raises(EvaluationError, match="more than 8 MiB"):
        await loads.evaluate(reading("one", loads, ONE))
    assert sum(warehouse.calls.values()) == calls


def spending(steps, loads):
    """Return an evaluation that spends these steps, and answers even beyond its allowance."""

    def work():
        with contextlib.suppress(EvaluationError):
            loads.allowance.spend(steps)
        return "an answer"

    return work


async def test_one_evaluation_has_an_allowance(shelf):
    loads = Loads(shelf)
    assert await loads.evaluate(spending(EVALUATION_STEPS - 1, loads)) == "an answer"
    with pytest.raises(EvaluationError) as caught:
        await loads.evaluate(spending(EVALUATION_STEPS, loads))
    assert f"more than {EVALUATION_STEPS} steps for one object" in str(caught.value)
    # The message contains no value, so it is also used where values are left out.
    assert caught.value.without_values == str(caught.value)


async def test_all_evaluations_of_an_attempt_share_one_allowance(shelf):
    loads = Loads(shelf)
    for _ in range(ATTEMPT_STEPS // EVALUATION_STEPS):
        await loads.evaluate(spending(EVALUATION_STEPS - 100, loads))
    with pytest.raises(EvaluationError) as caught:
        await loads.evaluate(spending(1_000, loads))
    assert f"more than {ATTEMPT_STEPS} steps for one trigger" in str(caught.value)


async def test_searches_of_the_context_count_towards_the_allowance(shelf):
    loads = Loads(shelf)
    context = loads.of(Context({"x": ["a" * 1_000] * 1_000}))
    source = compile_expression("length(join('', map(&to_upper(@), x)))")
    with pytest.raises(EvaluationError, match="steps for one object"):
        await loads.evaluate(lambda: [context.search(source) for _ in range(100)])


class Clock:
    """A clock that only a test advances."""

    def __init__(self):
        self.seconds = 100.0

    def monotonic(self):
        return self.seconds


class Counting(ChildProcesses):
    """Child processes that count their evaluations."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    @override
    async def evaluate(self, work, tenant):
        self.calls += 1
        return await super().evaluate(work, tenant)


JOINED = compile_expression("length(join('', map(&to_upper(@), x)))")


def texts(count):
    """Return data whose evaluation takes about a thousand steps per text."""
    return Context({"x": ["a" * 500] * count})


async def test_only_long_evaluations_run_in_a_child_process(shelf):
    apart = Counting()
    loads = Loads(shelf, long_evaluations=LongEvaluations(apart, Clock()))
    for count, calls in ((50, 0), (2_000, 1)):
        context = loads.of(texts(count))
        assert await loads.evaluate(lambda within=context: within.search(JOINED)) == 500 * count
        assert apart.calls == calls
    assert loads.left < ATTEMPT_STEPS - BRIEF_STEPS - 1_000_000


async def test_a_slow_rule_runs_directly_in_a_child_process_for_a_minute(shelf):
    apart, clock = Counting(), Clock()
    long_evaluations = LongEvaluations(apart, clock)

    async def calls(count, **whose):
        before = apart.calls
        loads = Loads(shelf, long_evaluations=long_evaluations, owner=EvaluationOwner(**whose))
        context = loads.of(texts(count))
        await loads.evaluate(lambda: context.search(JOINED))
        return apart.calls - before

    slow = {"tenant": "a", "policy": "p", "rule": "r"}
    assert await calls(2_000, **slow) == 1
    assert await calls(50, **slow) == 1
    for other in ("tenant", "policy", "rule"):
        assert await calls(50, **slow | {other: "other"}) == 0
    clock.seconds += 61
    assert await calls(50, **slow) == 0


async def test_evaluations_in_a_child_process_have_the_same_allowance(shelf):
    loads = Loads(shelf, long_evaluations=LongEvaluations(ChildProcesses(), Clock()))
    context = loads.of(texts(1_000))
    with pytest.raises(
        EvaluationError, match=f"more than {EVALUATION_STEPS} steps for one object"
    ):
        await loads.evaluate(lambda: [context.search(JOINED) for _ in range(200)])
    assert loads.left <= ATTEMPT_STEPS - EVALUATION_STEPS


async def test_entries_that_a_child_process_needs_are_read_by_the_controller(shelf):
    loads = Loads(shelf, long_evaluations=LongEvaluations(ChildProcesses(), Clock()))
    context = with_entries(loads.of(texts(2_000)), [ONE])
    name = compile_expression("one.data.k")
    found = await loads.evaluate(lambda: (context.search(JOINED), context.search(name)))
    assert found == (1_000_000, "of-one")
    assert shelf.calls == {"of-one": 1}


class LateSecond:
    """The `Isolation` port; its second evaluation ends only when the test releases it."""

    def __init__(self):
        self.calls = 0
        self.go_on = asyncio.Event()

    async def evaluate(self, work, _tenant):
        self.calls += 1
        second, ended = self.calls == 2, work()
        if second:
            await self.go_on.wait()
        return ended


async def test_an_entry_read_during_another_evaluation_is_not_read_again(shelf):
    apart, owner = LateSecond(), EvaluationOwner()
    long_evaluations = LongEvaluations(apart, Clock())
    long_evaluations.note(owner)
    loads = Loads(shelf, long_evaluations=long_evaluations, owner=owner)
    first, second = (
        asyncio.create_task(loads.evaluate(reading("one.data.k", loads, ONE))) for _ in range(2)
    )
    async with asyncio.timeout(5):
        assert await first == "of-one"
        assert apart.calls == 3
        apart.go_on.set()
        assert await second == "of-one"
    assert shelf.calls == {"of-one": 1}


async def test_a_default_does_not_replace_a_long_evaluation(shelf):
    entry = VariableEntry(
        name="v",
        value=None,
        path=compile_template("length(join('', map(&to_upper(@), x)))", location="entry"),
        default=compile_template("a default", location="entry"),
    )
    loads = Loads(shelf, long_evaluations=LongEvaluations(ChildProcesses(), Clock()))
    context = with_entries(loads.of(texts(2_000)), [entry])
    assert await loads.evaluate(lambda: context.search(compile_expression("v"))) == 1_000_000
