"""Every case of the data, and of our own beside this file, run by the runner of its kind."""

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
    """The same kinds with values of ours, and with the fields that the data rarely has."""
    run(file, case, DEVIATIONS)
