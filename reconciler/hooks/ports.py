"""Ports for running hooks, which may be declared in an object or be executables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import override

from reconciler.api.meta import PolicyRef
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.responses import ResponseFiles

_Said = TypeVar("_Said")

HookRef = PolicyRef
"""The `Hook` or `ClusterHook` of a hook; an executable has a `Hook` as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """Why a run failed.

    Attributes:
        reason: One line that users see: the last line of a process on stderr, or the error.
        exit_code: That of a process that exited by itself; else None.
        signal: Name of the signal that ended the process; else empty.
    """

    reason: str
    exit_code: int | None = None
    signal: str = ""

    @override
    def __str__(self) -> str:
        if self.brief == self.reason or not self.reason:
            return self.brief
        return f"{self.brief}: {self.reason}"

    @property
    def brief(self) -> str:
        """Return the reason without output of the process, fit for clients of the API server."""
        if self.exit_code is not None:
            return f"exit {self.exit_code}"
        return f"ended by {self.signal}" if self.signal else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run.

    Attributes:
        operations: Documents from `operations.decode_operations`, not yet validated. Of a failed
            run, only those with ``ignoreHookError`` are carried out.
        failure: None if it succeeded.
    """

    operations: Sequence[Any] = ()
    failure: RunFailure | None = None


class Runs(Protocol):
    """Runs hooks; the adapter itself handles other output of a run, such as metrics."""

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        """Run a hook once, until it has ended.

        Args:
            contexts: The binding contexts, as `contexts.render` returns them.

        Raises:
            ClusterError: It could not be run now; it is retried like a failed run.
            Interrupted: It was stopped for a reason outside the hook.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[_Said]):
    """A run's reply to a call of the API server.

    Attributes:
        answer: None if it gave no readable answer.
        failure: Why there is no answer; None if there is one.
        ran: The hook itself succeeded, so a failure is that of its answer.
    """

    answer: _Said | None = None
    failure: RunFailure | None = None
    ran: bool = False


class Answers(Protocol):
    """Runs hooks to answer calls of the API server."""

    async def ask(
        self,
        hook: HookRef,
        config: HookConfig,
        contexts: Sequence[Mapping[str, Any]],
        read: Callable[[ResponseFiles], _Said],
        *,
        seconds: float,
    ) -> Reply[_Said]:
        """Return the reply of a hook to a review.

        Args:
            contexts: As `contexts.render` returns them.
            read: Parses the answer; raises `InvalidPolicy` if it has none.
            seconds: The time after which the hook is stopped.

        Raises:
            Interrupted: It was stopped for a reason outside the hook.
        """
