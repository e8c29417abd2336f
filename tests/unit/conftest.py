"""What tests of single modules leave as they found it."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def kept_logs() -> Iterator[None]:
    """Logging that the test may configure."""
    handlers, level = logging.root.handlers[:], logging.root.level
    configured = structlog.get_config()
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.configure(**configured)
