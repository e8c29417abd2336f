"""Both programs as processes of this machine: kill, restart and failed starts."""

import pytest

from devcluster.install import ProgramSettings
from devcluster.programs import ADMISSION, CONTROLLER, Programs
from reconciler.errors import Unavailable


def test_programs_are_killed_and_started_again(live_programs: Programs) -> None:
    before = live_programs.supervision.pids[CONTROLLER]
    live_programs.kill(CONTROLLER)
    assert not live_programs.ready(CONTROLLER)
    after = live_programs.restart(CONTROLLER)
    assert after != before
    assert live_programs.ready(CONTROLLER)
    assert live_programs.ready(ADMISSION)
    with pytest.raises(Unavailable, match="runs already"):
        live_programs.restart(CONTROLLER)


def test_a_program_that_fails_to_start_is_reported_with_its_output(
    live_programs: Programs,
) -> None:
    wrong = ProgramSettings(flags=("--no-such-flag",))
    with pytest.raises(Unavailable, match=r"(?s)third ended \(code 2\).*no-such-flag"):
        live_programs.start(CONTROLLER, wrong, name="third")
