"""The groups of tests that share a control plane: existing paths, and the group of a test."""

import pytest

from tests.architecture.conftest import ROOT
from tests.distribution import GROUPS, group_of, place_of

CASE = "tests/conformance/chainsaw/test_chainsaw.py::test_case[{}]"


@pytest.mark.parametrize("path", [path for paths in GROUPS.values() for path in paths])
def test_every_path_of_a_group_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_group_with_the_longest_matching_path_is_chosen() -> None:
    assert group_of("tests/faults/test_new.py::test") == "faults"
    assert group_of("tests/faults/test_overload.py::test[a::b]") == "overload"
    assert group_of("tests/unit/test_config.py::test") == "tests/unit/test_config.py"


def test_cases_of_one_file_are_divided_and_keep_their_position() -> None:
    cases = [CASE.format(number) for number in range(100)]
    groups = {group_of(case) for case in cases}
    assert {group.partition("-")[0] for group in groups} == {"chainsaw"}
    assert len(groups) > 1
    assert {place_of(case) for case in cases} == {list(GROUPS).index("chainsaw")}


def test_files_without_a_group_come_last() -> None:
    assert place_of("tests/unit/test_config.py::test") == len(GROUPS)
