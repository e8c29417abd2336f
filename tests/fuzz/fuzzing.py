"""Fuzzers: the generated inputs of an entry point, and the check of each input."""

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
"""Passes one input to the programs, and fails if they do not handle it as they must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzer:
    """An entry point of the programs, with generated inputs and their check.

    Attributes:
        inputs: Strategy for the inputs of the entry point.
        open: Returns a context manager that yields the check and runs what it needs.
        short: Number of inputs in `make test`.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    open: Callable[[], AbstractContextManager[Check]]
    short: int

    def run(self, inputs: int, tried: Callable[[], None] = lambda: None) -> None:
        """Try a number of inputs; after a failure, shrink its input and raise the error."""
        # Log lines about bad input would hide the findings; a logged exception is a failure.
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
                # No explain phase, which takes longer than the search; reuse retries old failures.
                phases=(Phase.reuse, Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            )(tested)()


def samples(inputs: st.SearchStrategy[T], count: int) -> list[T]:
    """Return a number of inputs, the same ones on each call."""
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
    """An event loop for consecutive checks, in which unhandled errors fail the check."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._faults: list[str] = []
        runner.get_loop().set_exception_handler(self._take)

    def run(self, work: Awaitable[Any], *, within: float) -> Any:
        """Return the result of an awaitable; fail if it is late or leaves unhandled errors."""
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
    """Yield an event loop, and close it at the end."""
    with asyncio.Runner() as runner:
        yield Loop(runner)
