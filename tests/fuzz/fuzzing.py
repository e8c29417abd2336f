"""What a fuzzer is, and how one is run for so many inputs."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

T = TypeVar("T")

Check = Callable[[Any], None]
"""Takes one input, and fails where it is not met with an answer that somebody can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzer:
    """One way into the programs.

    Attributes:
        inputs: Draws what somebody may send.
        open: Gives the check while what it needs is there.
        short: How many inputs are tried in `make test`.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    open: Callable[[], AbstractContextManager[Check]]
    short: int

    def run(self, inputs: int, tried: Callable[[], None] = lambda: None) -> None:
        """Try so many inputs; the first that fails is made as small as it can be, and raised."""
        # What is logged of bad input would bury what is found.
        with capture_logs(processors=[format_exc_info]) as log, self.open() as check:

            def attempt(value: Any) -> None:
                log.clear()
                tried()
                check(value)
                faults = [entry["exception"] for entry in log if "exception" in entry]
                assert not faults, "\n".join(faults)

            tested = given(self.inputs)(attempt)
            settings(
                max_examples=inputs,
                deadline=None,
                print_blob=False,
                report_multiple_bugs=False,
                # To explain a failure takes longer than to find it; what failed once fails again.
                phases=(Phase.reuse, Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            )(tested)()


def samples(inputs: st.SearchStrategy[T], count: int) -> list[T]:
    """Return so many inputs, the same ones each time."""
    found: list[T] = []

    @given(inputs)
    def collect(value: T) -> None:
        found.append(value)

    settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )(collect)()
    return found


class Loop:
    """An event loop for one check after another, in which nothing fails unseen."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._faults: list[str] = []
        runner.get_loop().set_exception_handler(self._take)

    def run(self, work: Awaitable[Any], *, within: float) -> Any:
        """Return what some work gives, which has to end in time and leave no fault behind."""
        result = self._runner.run(_within(work, within))
        faults, self._faults = self._faults, []
        assert not faults, faults
        return result

    def _take(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._faults.append(f"{context['message']}: {context.get('exception')!r}")


async def _within(work: Awaitable[Any], seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await work


@contextlib.contextmanager
def event_loop() -> Iterator[Loop]:
    """Give an event loop, and close it."""
    with asyncio.Runner() as runner:
        yield Loop(runner)
