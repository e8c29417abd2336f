"""Every case of the data, and the project's own cases, run by the runner of its kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.data import required, root
from tests.conformance.units.runners import deviations, load, run

CASES = load(root() / "units")
OWN_CASES = load(Path(__file__).parent / "own", counted=False)
DEVIATIONS = deviations()


def test_the_data_is_there() -> None:
    if not CASES:
        (pytest.fail if required() else pytest.skip)("conformance data absent")


@pytest.mark.parametrize(("file", "case"), CASES)
def test_case(file: str, case: Mapping[str, Any]) -> None:
    run(file, case, DEVIATIONS)


@pytest.mark.parametrize(("file", "case"), OWN_CASES)
def test_own_case(file: str, case: Mapping[str, Any]) -> None:
    """The project's own cases have further values, and fields that are rare in the data."""
    run(file, case, DEVIATIONS)
