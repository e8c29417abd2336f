"""The counted report; `report` explains it."""

import pytest

from tests.conformance.report import ConformanceReport

# Runners of cases assert outside of test modules.
pytest.register_assert_rewrite("tests.conformance.units")

_PLUGIN = "conformance-report"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make conformance`."""
    parser.addoption(
        "--conformance-report",
        action="store_true",
        help="also run the cases of stage.yaml, and print a table per folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the plugin; this may happen as late as during collection."""
    config.addinivalue_line("markers", "conformance(folder): a counted case of this folder")
    if not config.pluginmanager.has_plugin(_PLUGIN):
        full = config.getoption("conformance_report", default=False)
        config.pluginmanager.register(ConformanceReport(full=full), _PLUGIN)
