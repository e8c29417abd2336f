"""A control plane that the fault tests may break, with both programs at work on it."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from reconciler.cli.dev.binaries import Binaries
from reconciler.cli.dev.install import ProgramSettings, install
from reconciler.cli.dev.programs import CONTROLLER, Programs, start_programs
from tests.faults.rig import SHORT_LEASE, SHORT_WAR, Rig, open_rig
from tests.usedrights import audited


@pytest.fixture(scope="session")
def breakable(binaries: Binaries | Path) -> Iterator[Programs]:
    """Both programs on a control plane of their own; the leader is followed quickly."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with audited(binaries) as plane:
        settings = install(plane, "demo")
        shipped = settings[CONTROLLER]
        settings[CONTROLLER] = ProgramSettings(
            flags=(*shipped.flags, *SHORT_LEASE, *SHORT_WAR), env=shipped.env
        )
        with start_programs(plane, settings=settings) as programs:
            yield programs


@pytest.fixture
async def rig(breakable: Programs) -> AsyncIterator[Rig]:
    """Both programs at work, and a namespace of this test's own."""
    async with open_rig(breakable.cluster, breakable, f"fault-{uuid.uuid4().hex[:8]}") as rig:
        yield rig
