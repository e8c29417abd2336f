"""A lock that admits one process at a time to a folder."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from reconciler.errors import InvalidSetting


@contextlib.contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock file, which the system releases when this process ends in any way.

    Args:
        file: Path of the lock file, which is created if missing and not removed.
        wait: Whether to wait for the holder instead of raising an error.

    Raises:
        InvalidSetting: Another process holds the lock.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InvalidSetting(f"another process is at work in {file.parent}") from None
        yield
