"""Finds out whether an object still holds a name, for example of something that is gone."""

import gc
from asyncio import AbstractEventLoop
from types import CodeType, CoroutineType, FrameType, FunctionType, ModuleType
from typing import Final

_SHARED: Final = (
    type,
    ModuleType,
    FunctionType,
    CodeType,
    FrameType,
    CoroutineType,
    AbstractEventLoop,
)
"""What all objects of the process can be reached from."""


def holds(root: object, name: str) -> bool:
    """Return whether a string is among all that an object refers to, however indirectly."""
    seen: set[int] = set()
    ahead: list[object] = [root]
    while ahead:
        here = ahead.pop()
        if here == name:
            return True
        if id(here) not in seen and not isinstance(here, _SHARED):
            seen.add(id(here))
            ahead += gc.get_referents(here)
            if isinstance(here, dict):
                ahead += here  # Of some dicts, only the values are referents.
    return False
