from hypothesis import given
from hypothesis import strategies as st

from reconciler.hooks.contexts import STARTUP, Context, ContextType
from reconciler.hooks.queues import Pause, Queue, Run, Task
from reconciler.requests.pace import Bucket, Pace

TASKS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=12)


def task(order: int, hook: str = "a", *, allow: bool = False, startup: bool = False) -> Task:
    context = Context(type=ContextType.SCHEDULE, binding=f"{order}")
    given = (STARTUP,) if startup else (context,)
    return Task(order=order, hook=hook, contexts=given, allow_failure=allow)


def orders(step: Run | Pause | None) -> list[int]:
    assert isinstance(step, Run)
    return [item.order for item in step.tasks]


def begun(queue: Queue, now: float = 0.0) -> Queue:
    run = queue.next(now)
    assert isinstance(run, Run)
    return queue.begin(run)


def test_adjacent_tasks_of_a_hook_run_together() -> None:
    queue = Queue.of([task(1), task(2), task(3, "b"), task(4)])
    run = queue.next(0)
    assert orders(run) == [1, 2]
    assert isinstance(run, Run)
    assert [context.binding for context in run.contexts] == ["1", "2"]
    assert orders(begun(queue).succeed().next(0)) == [3]


def test_tasks_that_may_fail_run_separately_from_tasks_that_may_not() -> None:
    queue = Queue.of([task(1, allow=True), task(2), task(3)])
    assert orders(queue.next(0)) == [1]
    assert orders(begun(queue).fail(0).next(0)) == [2, 3]


def test_the_startup_task_runs_separately() -> None:
    queue = Queue.of([task(1), task(2, startup=True), task(3)])
    assert orders(queue.next(0)) == [1]
    assert orders(begun(queue).succeed().next(0)) == [2]


def test_a_failing_run_delays_its_queue_for_increasing_times() -> None:
    queue, now, pauses = Queue.of([task(1), task(2, "b")]), 100.0, []
    for _ in range(6):
        queue = begun(queue, now).fail(now)
        step = queue.next(now)
        assert isinstance(step, Pause)
        pauses.append(step.until - now)
        now = step.until
    assert pauses == [5, 10, 20, 32, 32, 32]
    assert orders(queue.next(now)) == [1]
    queue = begun(queue, now).succeed()
    assert (queue.failures, orders(queue.next(now))) == (0, [2])


def test_a_task_added_during_a_failing_run_joins_the_retry() -> None:
    queue = begun(Queue.of([task(1)])).add(task(2))
    assert queue.next(0) is None
    assert orders(queue.fail(0).next(5)) == [1, 2]


def test_a_task_behind_one_that_is_given_up_does_not_wait_for_its_retry() -> None:
    failed = begun(Queue.of([task(1), task(2, "b"), task(3)])).fail(0)
    assert isinstance(failed.without(3).next(0), Pause)
    left = failed.without(1)
    assert (left.failures, orders(left.next(0))) == (0, [2])


def test_a_task_that_is_added_twice_runs_once() -> None:
    queue = begun(Queue.of([task(1), task(2)])).add(task(2)).add(task(1))
    assert queue.succeed().next(0) is None


def test_a_task_that_is_added_late_runs_in_its_order() -> None:
    queue = begun(Queue.of([task(2)])).add(task(5)).add(task(3)).add(task(1))
    assert orders(queue.succeed().next(0)) == [1, 3, 5]


def test_the_pace_of_a_hook_limits_its_queue() -> None:
    pace, now = Pace(interval=3.0, burst=2), 50.0
    bucket = Bucket.full(pace, now)
    starts = []
    for _ in range(4):
        now = bucket.ready_at(pace, now)
        bucket = bucket.take(pace, now)
        starts.append(now)
    assert starts == [50, 50, 53, 56]
    assert Queue.of([task(1)]).next(50, ready_at=53) == Pause(53)
    unlimited = Pace(interval=0.0, burst=0)
    assert Bucket.full(unlimited, 1).take(unlimited, 1).ready_at(unlimited, 1) == 1


@given(given=TASKS, fails=st.lists(st.booleans(), max_size=30))
def test_every_task_is_done_once_and_in_order(
    given: list[tuple[str, bool, bool]], fails: list[bool]
) -> None:
    made = [
        task(order, hook, allow=allow, startup=startup)
        for order, (hook, allow, startup) in enumerate(given)
    ]
    queue, now, done, failing = Queue.of(reversed(made)), 0.0, [], iter(fails)
    while (step := queue.next(now)) is not None:
        if isinstance(step, Pause):
            now = step.until
            continue
        queue = queue.begin(step)
        if next(failing, False):
            queue = queue.fail(now)
            # A crash: the stored state restores the same queue.
            queue = Queue.of(queue.waiting, failures=queue.failures, retry_at=queue.retry_at)
            done += [item for item in step.tasks if item.allow_failure]
        else:
            queue = queue.succeed()
            done += step.tasks
    assert done == made
