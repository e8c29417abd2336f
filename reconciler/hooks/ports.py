"""What runs a hook: something declared in an object, or a process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from typing_extensions import override

from reconciler.api.meta import PolicyRef
from reconciler.hooks.bindings import HookConfig

HookRef = PolicyRef
"""The `Hook` or `ClusterHook` that a hook is known by; an executable has a `Hook` as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """Why a run failed.

    Attributes:
        reason: One line for everybody: the last that a process wrote to stderr, or what is wrong.
        exit_code: Of a process that ended by itself; else None.
    """

    reason: str
    exit_code: int | None = None

    @override
    def __str__(self) -> str:
        if self.exit_code is None:
            return self.reason
        return f"exit {self.exit_code}" + (f": {self.reason}" if self.reason else "")


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
