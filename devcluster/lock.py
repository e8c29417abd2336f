"""One worker at a time in a folder."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from reconciler.errors import InvalidSetting


@contextlib.contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock file, which the system gives back however this process ends.

    Args:
        file: Created if missing; it stays.
        wait: Wait for whoever holds it, instead of an error.

    Raises:
        InvalidSetting: Another process holds it.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InvalidSetting(f"another process is at work in {file.parent}") from None
        yield
