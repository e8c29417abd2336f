"""Signals, to which parts of a program subscribe while it is wired."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """One kind of event: its owner emits it, which calls each subscriber in order."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Add a subscriber; its exceptions propagate to the owner."""
        self._subscribers.append(subscriber)

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all subscribers."""
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
