"""Entry point of `retrofit` and `kubectl retrofit`."""

from reconciler.cli import interrupts


def main() -> None:
    """Run the program, in which Ctrl-C prints no traceback, also at its beginning and its end."""
    interrupts.end_at_once()
    from reconciler.cli.main import main as run  # noqa: PLC0415 - the point of this module

    try:
        run()
    finally:
        interrupts.ignore()
