"""Value classes that are instantiated many times per request.

A frozen dataclass sets each field through `object.__setattr__`, which makes instantiation take
three times as long: a tenth of a review. So these classes are frozen for mypy, which CI runs over
all code, and plain at run time.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as value_class
else:

    def value_class(*, frozen: bool, slots: bool, kw_only: bool = False) -> Any:
        """Return a decorator like `dataclass`; ``frozen`` makes the class hashable."""
        return dataclass(unsafe_hash=frozen, slots=slots, kw_only=kw_only)


__all__ = ["value_class"]
