"""Where the conformance data lies, and what its absence means."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def root() -> Path:
    """Return the folder of the data, present or not."""
    named = os.environ.get("CONFORMANCE_DATA")
    return Path(named) if named else PROJECT.parent / "shared" / "conformance"


def required() -> bool:
    """Whether absent data is a failure instead of a skip."""
    return os.environ.get("CONFORMANCE_REQUIRED") == "1"
