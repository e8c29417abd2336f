"""Keeps what the tests of a group share, until the first test of another group begins.

An idle control plane with both programs takes some percent of a core. Kept for all tests of a
worker, a handful of them would be idle at the end, beside the tests that still run.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Shared:
    """What is opened for a group, once, and closed with it in the opposite order."""

    def __init__(self) -> None:
        self._group = ""
        self._open: dict[Callable[..., Any], Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what is open."""
        self._end()

    def begin(self, group: str) -> None:
        """Close what another group has opened."""
        if group != self._group:
            self._group = group
            self._end()

    def get(self, make: Callable[..., AbstractContextManager[T]], *args: object) -> T:
        """Return what this group has opened, or open it."""
        if make not in self._open:
            self._open[make] = self._stack.enter_context(make(*args))
        found: T = self._open[make]
        return found

    def _end(self) -> None:
        self._open.clear()
        self._stack.close()
