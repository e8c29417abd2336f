"""Pauses before a retry: of one call, of a start, and of loops that never end."""

from collections.abc import Awaitable, Callable
from secrets import SystemRandom
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    stop_any,
    stop_before_delay,
    stop_never,
    wait_random_exponential,
)

from reconciler.errors import ClusterError, Forbidden, Throttled, Unavailable

T = TypeVar("T")

_ATTEMPTS = 5
_REPEATABLE = frozenset({0, 408, 429, 502, 503, 504})
_CALL = wait_random_exponential(multiplier=0.2, max=3.0)
_RANDOM = SystemRandom()


def is_repeatable(error: BaseException) -> bool:
    """Return whether the same call may succeed a moment later."""
    return isinstance(error, Throttled | Unavailable) and error.status in _REPEATABLE


async def repeated(attempt: Callable[[], Awaitable[T]], first: ClusterError, limit: float) -> T:
    """Retry a call that failed, a few times and within a limit in seconds."""
    # The first attempt is made by the caller: tenacity costs too much for calls that succeed.
    failures = [first]

    async def once() -> T:
        if failures:
            raise failures.pop()
        return await attempt()

    def passes(error: BaseException) -> bool:
        # An API server that has just started refuses everything until it has read the roles.
        starting = isinstance(first, Unavailable) and isinstance(error, Forbidden)
        return starting or is_repeatable(error)

    retrying = AsyncRetrying(
        retry=retry_if_exception(passes),
        wait=_pause,
        stop=stop_any(stop_after_attempt(_ATTEMPTS), stop_before_delay(limit)),
        reraise=True,
    )
    return await retrying(once)


async def until_done(
    attempt: Callable[[], Awaitable[None]],
    on_wait: Callable[[str], None],
    *,
    passes: Callable[[ClusterError], bool] = lambda _: True,
    longest: float = 30.0,
    limit: float = 0.0,
) -> None:
    """Retry a step that a program cannot start without.

    Args:
        attempt: Raises a `ClusterError` as long as the step fails.
        on_wait: Called with a readable sentence before each pause.
        passes: Returns whether a failure may be temporary; any other is raised.
        longest: Longest pause in seconds.
        limit: Seconds after which to give up; 0 means never.
    """

    def warn(state: RetryCallState) -> None:
        on_wait(f"{_failure(state)}; trying again in {state.upcoming_sleep:.0f}s")

    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, ClusterError) and passes(error)),
        wait=wait_random_exponential(multiplier=1.0, min=1.0, max=longest),
        stop=stop_before_delay(limit) if limit else stop_never,
        before_sleep=warn,
        reraise=True,
    )
    # Called directly, tenacity awaits only coroutine functions that it recognizes, no lambda.
    async for state in retrying:
        with state:
            await attempt()


async def holds(condition: Callable[[], Awaitable[bool]], *, within: float) -> bool:
    """Poll a condition; return whether it held within a limit in seconds."""
    retrying = AsyncRetrying(
        retry=retry_if_result(lambda held: not held),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        stop=stop_after_delay(within),
        retry_error_callback=lambda _: False,
    )
    return bool(await retrying(condition))


def _pause(state: RetryCallState) -> float:
    error = _failure(state)
    requested = error.retry_after if isinstance(error, ClusterError) else None
    return max(requested or 0.0, _CALL(state))


def _failure(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def jittered(seconds: float) -> float:
    """Return a duration varied by up to a fifth, so that replicas do not act in lockstep."""
    return seconds * _RANDOM.uniform(0.8, 1.2)
