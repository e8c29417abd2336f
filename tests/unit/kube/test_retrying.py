"""Which failures of a call are followed by another attempt."""

import asyncio

import pytest

from reconciler.errors import ClusterError, Conflict, Forbidden, Throttled, Unavailable
from reconciler.kube.retrying import repeated
from tests.skipping import SkippingLoop

FORBIDDEN = Forbidden("not yet", permission="")


class Attempts:
    """A call that fails with these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: ClusterError):
        self.errors, self.made = list(errors), 0

    async def once(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def repeat(self, first: ClusterError, limit: float = 60.0) -> str:
        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            return runner.run(repeated(self.once, first, limit))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Unavailable("down"), ()),
        (Throttled("wait", retry_after=1.0), (Unavailable("down"),)),
        # An API server that has just started has no roles yet.
        (Unavailable("down"), (FORBIDDEN, FORBIDDEN)),
    ],
)
def test_a_call_is_repeated_while_it_may_succeed_soon(first, then):
    assert Attempts(*then).repeat(first) == "done"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Unavailable("down"), Conflict("changed")),
        (Throttled("wait"), FORBIDDEN),
        (Throttled("wait"), Unavailable("broken", status=500)),
    ],
)
def test_another_failure_ends_the_attempts(first, then):
    attempts = Attempts(then)
    with pytest.raises(type(then)) as raised:
        attempts.repeat(first)
    assert (raised.value, attempts.made) == (then, 1)


def test_the_attempts_end_after_some_and_within_the_limit():
    down = [Unavailable("down") for _ in range(10)]
    many = Attempts(*down)
    with pytest.raises(Unavailable):
        many.repeat(Unavailable("down"))
    assert many.made == 4
    late = Attempts(*down)
    with pytest.raises(Throttled):
        late.repeat(Throttled("wait", retry_after=9.0), limit=5.0)
    assert late.made == 0
