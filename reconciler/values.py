"""Values that are made by the dozen for every request.

A frozen dataclass sets each field through `object.__setattr__`, which makes it take three times
as long to make as one that is not frozen: a tenth of a review. So these are frozen for mypy,
which CI runs over everything, and plain when they run.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as value_class
else:

    def value_class(*, frozen: bool, slots: bool, kw_only: bool = False) -> Any:
        """Return a decorator as `dataclass` does; ``frozen`` makes the class hashable."""
        return dataclass(unsafe_hash=frozen, slots=slots, kw_only=kw_only)


__all__ = ["value_class"]
