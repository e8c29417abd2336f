"""Ctrl-C while modules are imported and at the end; this module imports nothing that is slow."""

import os
import signal


def end_at_once() -> None:
    """Let Ctrl-C end the program quietly, unless the caller has it ignored, as for jobs of `&`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, so that cleanup code runs."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore() -> None:
    """Let Ctrl-C no longer interrupt what removes temporary files at the end of the program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(_number: int, _frame: object) -> None:
    # An exception could be lost: Python only prints what a callback of its import locks raises.
    os._exit(130)
