"""Sets the clock of one program, whose PYTHONPATH names this folder, and no other's.

Only the wall clock: that is what somebody sets. Python runs this before the program. A file holds
by how many seconds, so that the clock may be set while the program runs.
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
