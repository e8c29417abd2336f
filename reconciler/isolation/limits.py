"""The limits of a child process, as far as the platform can enforce them."""

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
    """The limits of one evaluation.

    Attributes:
        seconds: Wall-clock time until it is killed.
        memory: Bytes of address space beyond those of the parent.
        answer: Bytes of its pickled result.
    """

    seconds: float = 20.0
    memory: int = 128 * _MIB
    answer: int = 4 * _MIB

    def impose(self) -> None:
        """Impose the limits on this process, which must be a child, and lower its priority."""
        # If the parent is gone, nothing else ends the child.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.seconds + 1.0)
        os.nice(_NICENESS)
        with contextlib.suppress(OSError):
            _OOM_SCORE.write_text("1000", encoding="ascii")
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Without /proc the parent's size is unknown: there only the counted steps are a limit.
        with contextlib.suppress(OSError, ValueError):
            pages = int(_STATM.read_text(encoding="ascii").split()[0])
            most = pages * resource.getpagesize() + self.memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
