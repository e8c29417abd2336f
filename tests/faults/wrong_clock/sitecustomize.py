"""Offsets the wall clock of the one program whose PYTHONPATH names this folder.

The monotonic clock stays right, as when an administrator sets a clock. Python runs this module
before the program. A file holds the offset in seconds, so a test can change it at any time.
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
