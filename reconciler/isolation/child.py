"""The life of a child process between the fork and its end.

The child has a copy of everything, and may use next to nothing of it: no event loop, no socket,
no lock that another thread of the parent may have held. It evaluates, writes a pickle into a
pipe, and ends without cleanup.
"""

import gc
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from reconciler.isolation.limits import Limits

VALUE: Final = b"v"
OUT_OF_MEMORY: Final = b"m"
TOO_LARGE: Final = b"l"
FAULT: Final = b"f"
"""First byte of the answer: VALUE is followed by a pickle, FAULT by a text."""
_KEPT: Final = 3
_FILES: Final = Path("/dev/fd")
_FORKED_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def live(work: Callable[[], Any], pipe: int, limits: Limits) -> NoReturn:
    """Evaluate, answer, and end the process.

    Args:
        work: A pure function with a result that can be pickled.
        pipe: File descriptor that the answer is written to.
        limits: Imposed before the evaluation.
    """
    code = 1
    try:
        _detach(pipe)
        limits.impose()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        _write(pipe, _answer(work, limits))
        code = 0
    finally:
        os._exit(code)


def _detach(pipe: int) -> None:
    # Otherwise signals of the child would wake the parent, through the shared socket of its loop.
    signal.set_wakeup_fd(-1)
    for number in _FORKED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.closerange(_KEPT, pipe)
    # The limit of open files is no bound: macOS often has none, and it may be set later.
    os.closerange(pipe + 1, max(int(file.name) for file in _FILES.iterdir()) + 1)
    # The collector must not walk the parent's objects: each page that is touched is copied.
    gc.freeze()


def _answer(work: Callable[[], Any], limits: Limits) -> bytes:
    try:
        found = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        return OUT_OF_MEMORY
    except BaseException as error:  # noqa: BLE001 - the parent raises it
        # Only the type and the place: the text of an error may quote objects.
        places = "".join(traceback.format_tb(error.__traceback__))
        return FAULT + f"{type(error).__name__}\n{places}".encode(errors="replace")
    return VALUE + found if len(found) <= limits.answer else TOO_LARGE


def _write(pipe: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]
