"""Keeps the resources that the tests of a group share, until a test of another group begins.

An idle control plane with both programs takes some percent of a core. If a worker kept all of its
control planes, a handful would be idle at the end, beside the tests that still run.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Shared:
    """Resources that are opened once per group and closed with it in reverse order."""

    def __init__(self) -> None:
        self._group = ""
        self._open: dict[Callable[..., Any], Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all open resources."""
        self._end()

    def begin(self, group: str) -> None:
        """Close the resources of the previous group if this is another one."""
        if group != self._group:
            self._group = group
            self._end()

    def get(self, make: Callable[..., AbstractContextManager[T]], *args: object) -> T:
        """Return the resource that ``make`` opened for this group, or open it."""
        if make not in self._open:
            self._open[make] = self._stack.enter_context(make(*args))
        found: T = self._open[make]
        return found

    def _end(self) -> None:
        self._open.clear()
        self._stack.close()
