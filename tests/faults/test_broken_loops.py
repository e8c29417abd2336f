"""A program in which a loop fails reports that and exits, instead of running without the loop."""

from pathlib import Path

import pytest

from devcluster.install import ProgramSettings
from devcluster.programs import CONTROLLER
from tests.faults.rig import Rig

pytestmark = pytest.mark.cluster

BROKEN = Path(__file__).with_name("broken_loop")


async def test_a_controller_whose_loop_fails_reports_it_and_exits(
    rig: Rig, tmp_path: Path
) -> None:
    now = tmp_path / "now"
    env = {"PYTHONPATH": str(BROKEN), "RETROFIT_TEST_BROKEN": str(now)}
    rig.programs.start(CONTROLLER, ProgramSettings(env=env), name="broken")
    now.touch()

    async def running() -> str:
        ended = rig.programs.supervision.exit_code("broken")
        return "it still runs" if ended is None else ""

    await rig.settle(running, within=30.0)
    assert rig.programs.supervision.exit_code("broken") == 1
    lines = rig.log("broken")
    (line,) = [line for line in lines if line.get("loop") == "gauges"]
    assert "because of a bug in kube-retrofit" in line["message"]
    said = "Error: gauges ended because of a bug in kube-retrofit (ZeroDivisionError); see its log"
    assert said in [line.get("text") for line in lines]
