"""The groups of tests that share a control plane: existing paths, and the group of a test."""

import pytest

from tests.architecture.conftest import ROOT
from tests.distribution import GROUPS, group_of, is_aside, next_group, place_of

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


@pytest.mark.parametrize(("workers", "aside"), [(2, []), (3, []), (4, ["gw3"]), (6, ["gw5"])])
def test_the_last_of_four_workers_or_more_stands_aside(workers: int, aside: list[str]) -> None:
    names = [f"gw{number}" for number in range(workers)]
    assert [name for name in names if is_aside(name, workers)] == aside


def test_a_worker_that_stands_aside_gets_only_tests_without_a_control_plane() -> None:
    alone, file = group_of(CASE.format(0)), "tests/unit/test_config.py"
    queue = ["live", "cluster", alone, file, "tests/unit/test_clock.py"]
    assert next_group(queue, aside=True) == file
    assert next_group(queue[:3], aside=True) is None
    assert next_group(queue, aside=False) == "live"
    assert next_group(queue[3:], aside=False) == file
