"""The short form of the fault table: all kinds of faults, with few triggers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from tests.faults.table.play import Scenario, play
from tests.faults.table.scenarios import scenarios
from tests.faults.table.stage import House, Setting, open_house

SHORT = [item for item in scenarios() if item.short]


@pytest.fixture(scope="module")
def house(binaries: Binaries | Path) -> Iterator[House]:
    """Both programs behind a proxy, on a control plane for this module alone."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with open_house(binaries, Setting()) as house:
        yield house


@pytest.mark.cluster
@pytest.mark.parametrize("scenario", SHORT, ids=[item.name for item in SHORT])
async def test_no_trigger_is_lost_or_applied_twice(house: House, scenario: Scenario) -> None:
    assert scenario.setting == Setting()
    row = await play(house, scenario.shortened())
    assert row.good, row
