"""What runs a hook: something declared in an object, or a process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import override

from reconciler.api.meta import PolicyRef
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.responses import ResponseFiles

_Said = TypeVar("_Said")

HookRef = PolicyRef
"""The `Hook` or `ClusterHook` that a hook is known by; an executable has a `Hook` as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """Why a run failed.

    Attributes:
        reason: One line for everybody: the last that a process wrote to stderr, or what is wrong.
        exit_code: Of a process that ended by itself; else None.
        signal: That ended a process, by its name; else empty.
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
        """Return what may be said to whoever asked, without a line that a process wrote."""
        if self.exit_code is not None:
            return f"exit {self.exit_code}"
        return f"ended by {self.signal}" if self.signal else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run gave.

    Attributes:
        operations: Documents as `operations.decode_operations` gives them, not looked at yet. Of a
            run that failed, only those with ``ignoreHookError`` are carried out.
        failure: None where it went well.
    """

    operations: Sequence[Any] = ()
    failure: RunFailure | None = None


class Runs(Protocol):
    """Runs hooks. What else a run leaves behind, as metrics, is for the adapter to take in."""

    async def run(
        self, hook: HookRef, config: HookConfig, contexts: Sequence[Mapping[str, Any]]
    ) -> RunResult:
        """Run a hook once, until it has ended.

        Args:
            hook: Which.
            config: What it is bound to.
            contexts: The binding contexts, as `contexts.render` gives them.

        Raises:
            ClusterError: It could not be run now; it is tried again like a run that failed.
            Interrupted: It was ended before its end, by nobody's fault who wrote it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[_Said]):
    """What a run said to the API server.

    Attributes:
        answer: None where it gave none that can be read.
        failure: Why not; None where it did.
        ran: The hook itself ended well, so what is wrong is its answer.
    """

    answer: _Said | None = None
    failure: RunFailure | None = None
    ran: bool = False


class Answers(Protocol):
    """Runs hooks that the API server waits for."""

    async def ask(
        self,
        hook: HookRef,
        config: HookConfig,
        contexts: Sequence[Mapping[str, Any]],
        read: Callable[[ResponseFiles], _Said],
        *,
        seconds: float,
    ) -> Reply[_Said]:
        """Return what a hook says of a review.

        Args:
            hook: Which.
            config: What it is bound to.
            contexts: As `contexts.render` gives them.
            read: Reads the answer; raises `InvalidPolicy` where there is none.
            seconds: After which it is ended.

        Raises:
            Interrupted: It was ended before its end, by nobody's fault who wrote it.
        """
        ...
