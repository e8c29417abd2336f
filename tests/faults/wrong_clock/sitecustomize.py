"""Offsets the wall clock of a program by the seconds in a file.

The monotonic clock is not offset, as when an administrator sets the clock. Python runs this module
before the program if PYTHONPATH names this folder. A test may change the file at any time.
"""

import os
from datetime import datetime, timedelta
from pathlib import Path

from reconciler.clock import SystemClock

_AHEAD = Path(os.environ["RETROFIT_TEST_CLOCK"])
_now = SystemClock.now


def _set(clock: SystemClock) -> datetime:
    return _now(clock) + timedelta(seconds=float(_AHEAD.read_text()))


SystemClock.now = _set  # type: ignore[method-assign, assignment]
