from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.requests.queue import RequestQueue

NAMES = st.sampled_from("abcd")
TIMES = st.integers(0, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), NAMES, TIMES),
        st.tuples(st.just("drop"), NAMES, st.none()),
        st.tuples(st.just("finish"), NAMES, st.none()),
        st.tuples(st.just("take"), st.none(), TIMES),
    ),
    max_size=60,
)


@dataclass
class Model:
    """The reference model: two tables that are searched from end to end."""

    planned: dict[str, Any] = field(default_factory=dict)
    working: dict[str, Any] = field(default_factory=dict)

    def push(self, name, due):
        table = self.working if name in self.working else self.planned
        known = table.get(name)
        table[name] = due if known is None else min(known, due)

    def drop(self, name):
        self.planned.pop(name, None)
        if name in self.working:
            self.working[name] = None

    def finish(self, name):
        again = self.working.pop(name, None)
        if again is not None:
            self.push(name, again)

    def take(self, now):
        ready = sorted((due, name) for name, due in self.planned.items() if due <= now)
        if not ready:
            return None
        del self.planned[ready[0][1]]
        self.working[ready[0][1]] = None
        return ready[0][1]


@given(STEPS)
def test_the_queue_behaves_like_the_reference_model(steps):
    queue, model = RequestQueue(), Model()
    now = 0
    for action, name, number in steps:
        # Time never goes back.
        now += number if action == "take" else 0
        time = now if action == "take" else number
        arguments = [item for item in (name, time) if item is not None]
        assert getattr(queue, action)(*arguments) == getattr(model, action)(*arguments)
        assert queue.next_due() == min(model.planned.values(), default=None)
        assert set(queue.working) == set(model.working)
        assert queue.depth == len(model.planned) + len(model.working)


def test_names_come_in_the_order_of_their_times():
    queue = RequestQueue()
    for name, due in (("late", 3), ("early", 1), ("middle", 2)):
        queue.push(name, due)
    assert [queue.take(9) for _ in range(4)] == ["early", "middle", "late", None]


def test_nothing_comes_before_its_time():
    queue = RequestQueue()
    queue.push("a", 5)
    assert queue.take(4.9) is None
    assert queue.take(5) == "a"


def test_a_name_is_brought_forward_and_never_put_off():
    queue = RequestQueue()
    for due in (5, 2, 8):
        queue.push("a", due)
    assert queue.next_due() == 2
    assert (queue.take(9), queue.take(9)) == ("a", None)


def test_a_name_pushed_while_it_is_in_work_comes_again_afterwards():
    queue = RequestQueue()
    queue.push("a", 0)
    assert queue.take(0) == "a"
    queue.push("a", 0)
    assert queue.take(0) is None
    queue.finish("a")
    assert queue.take(0) == "a"


def test_a_dropped_name_does_not_come_again():
    queue = RequestQueue()
    queue.push("planned", 0)
    queue.push("working", 0)
    queue.take(0)
    queue.push("planned", 0)
    queue.drop("planned")
    queue.drop("working")
    queue.finish("planned")
    queue.finish("working")
    assert (queue.take(9), queue.depth) == (None, 0)


def test_tenants_take_turns():
    queue = RequestQueue()
    for number in range(4):
        queue.push(f"a{number}", 0, "a")
    queue.push("b0", 1, "b")
    queue.push("c0", 1, "c")
    assert [queue.take(1) for _ in range(6)] == ["a0", "b0", "c0", "a1", "a2", "a3"]


def test_a_tenant_has_no_more_than_its_share_in_work():
    queue = RequestQueue(share=2)
    for number in range(3):
        queue.push(f"a{number}", 0, "a")
    queue.push("b0", 5, "b")
    assert [queue.take(1) for _ in range(3)] == ["a0", "a1", None]
    assert queue.next_due() == 5
    assert queue.take(5) == "b0"
    queue.finish("a0")
    assert queue.next_due() == 0
    assert queue.take(5) == "a2"


def test_a_name_that_comes_again_keeps_its_tenant():
    queue = RequestQueue(share=1)
    queue.push("a0", 0, "a")
    assert queue.take(0) == "a0"
    queue.push("a0", 0)
    queue.finish("a0")
    queue.push("a1", 0, "a")
    assert [queue.take(0), queue.take(0)] == ["a0", None]


def test_a_name_is_taken_out_of_turn_only_when_it_is_due():
    queue = RequestQueue(share=1)
    queue.push("a0", 0, "a")
    queue.push("a1", 5, "a")
    queue.take(0)
    assert not queue.take_out_of_turn("unknown", 9)
    assert not queue.take_out_of_turn("a1", 4)
    assert queue.take_out_of_turn("a1", 5)
    assert set(queue.working) == {"a0", "a1"}
    assert not queue.take_out_of_turn("a1", 9)


def test_finished_work_frees_one_place_of_a_share():
    queue = RequestQueue(share=2)
    for number in range(4):
        queue.push(f"a{number}", 0, "a")
    assert [queue.take(0) for _ in range(3)] == ["a0", "a1", None]
    queue.finish("a0")
    assert [queue.take(0) for _ in range(2)] == ["a2", None]


def test_the_next_due_name_is_the_first_of_those_that_are_ready_or_not():
    queue = RequestQueue()
    queue.push("a0", 1, "a")
    queue.push("a1", 1, "a")
    queue.push("b0", 2, "b")
    queue.push("later", 7)
    queue.take(2)
    assert queue.next_due() == 1
