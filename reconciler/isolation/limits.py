"""What a child process may take, as far as the platform can hold it to that."""

import contextlib
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MIB: Final = 1024 * 1024
_NICENESS: Final = 10
_STATM: Final = Path("/proc/self/statm")
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one evaluation may take.

    Attributes:
        seconds: Until it is killed, by the clock on the wall.
        memory: Bytes of address space beyond what the parent has.
        answer: Bytes of its pickled result.
    """

    seconds: float = 20.0
    memory: int = 128 * _MIB
    answer: int = 4 * _MIB

    def impose(self) -> None:
        """Hold this process to them, and let every other one go first; for a child only."""
        # Should the parent be gone, nobody else ends it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.seconds + 1.0)
        os.nice(_NICENESS)
        with contextlib.suppress(OSError):
            _OOM_SCORE.write_text("1000", encoding="ascii")
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Without /proc nobody knows what the parent has: there only the steps limit it.
        with contextlib.suppress(OSError, ValueError):
            pages = int(_STATM.read_text(encoding="ascii").split()[0])
            most = pages * resource.getpagesize() + self.memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
