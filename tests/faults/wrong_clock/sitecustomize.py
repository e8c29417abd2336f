"""Sets the clock of one program, whose PYTHONPATH names this folder, and no other's.

Only the wall clock: that is what somebody sets. Python runs this before the program.
"""

import os
from datetime import datetime, timedelta

from reconciler.clock import SystemClock

_AHEAD = timedelta(seconds=float(os.environ["RETROFIT_TEST_CLOCK_AHEAD"]))
_now = SystemClock.now


def _set(clock: SystemClock) -> datetime:
    return _now(clock) + _AHEAD


SystemClock.now = _set  # type: ignore[method-assign]
