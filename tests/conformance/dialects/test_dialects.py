"""Every case of the policy languages."""

import pytest

from tests.conformance.data import required
from tests.conformance.dialects import gotemplate, kinitiras, modrule, shell_operator
from tests.conformance.dialects.cases import CASES, Case, deviations, run

MODULES = (gotemplate, kinitiras, modrule, shell_operator)
"""Importing these modules registers their runners."""
DEVIATIONS = deviations()


def test_the_data_is_there() -> None:
    if not CASES:
        (pytest.fail if required() else pytest.skip)("conformance data absent")


def test_every_deviation_names_an_existing_case() -> None:
    if CASES:
        assert not DEVIATIONS.keys() - {param.id for param in CASES}


@pytest.mark.parametrize(("file", "case"), CASES)
def test_case(file: str, case: Case) -> None:
    run(file, case, DEVIATIONS)
