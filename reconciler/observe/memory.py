"""What becomes of memory that nothing uses any more.

Requests make many short-lived objects and hardly any cycles: Python's default, a look for cycles
per 700 new objects, took 15 to 20 % of the CPU of both servers (measured, 500 requests at 16 at a
time).

glibc gives large blocks back to the system at once, until it has seen a large one freed: then it
keeps blocks up to that size among the small ones. So bodies and buffers of many connections left a
heap of holes (measured: 50 MiB of 250 after 1,600 connections).
"""

import contextlib
import ctypes
import gc
from typing import Final

_THRESHOLDS = (50_000, 20, 100)
_M_MMAP_THRESHOLD: Final = -3
"""The name of the parameter in glibc's malloc.h."""
_LARGE: Final = 128 * 1024
"""Bytes from which a block is of its own: glibc's default, which it would raise by itself."""


def relax_collector() -> None:
    """Leave out what lives as long as the process, and look less often at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def give_back_large_blocks() -> None:
    """Keep glibc from raising what it calls large; another C library goes on as it does."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)
