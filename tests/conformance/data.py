"""The location of the conformance data, and whether its absence is a failure."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def root() -> Path:
    """Return the folder of the data, which need not exist."""
    named = os.environ.get("CONFORMANCE_DATA")
    return Path(named) if named else PROJECT.parent / "shared" / "conformance"


def required() -> bool:
    """Return whether absent data is a failure instead of a skip."""
    return os.environ.get("CONFORMANCE_REQUIRED") == "1"
