"""Fixtures that restore global state after a test."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def kept_logs() -> Iterator[None]:
    """Logging that the test may configure; it is restored afterwards."""
    handlers, level = logging.root.handlers[:], logging.root.level
    configured = structlog.get_config()
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.configure(**configured)
