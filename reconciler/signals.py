"""What happens, for those who subscribed to it while the program was put together."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """One kind of event: its owner emits it, and each subscriber is called, in order, at once."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Have somebody called each time; what it raises is raised to the owner."""
        self._subscribers.append(subscriber)

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all of them."""
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
