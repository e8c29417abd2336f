"""A map with a bound, for what is remembered only for a while."""

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A map that keeps its newest entries, ten thousand unless another number is given."""

    def __init__(self, most: int = 10_000) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> None:
        """Store an entry as the newest one."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
