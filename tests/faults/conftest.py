"""The fixture of fault tests: a namespace per test, on a control plane that tests may break."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from devcluster.programs import Programs
from tests.faults.rig import Rig, open_rig


@pytest.fixture
async def rig(binaries: Binaries | Path, live_programs: Programs) -> AsyncIterator[Rig]:
    """A rig with both programs running and a namespace of the test's own."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    cluster, name = live_programs.cluster, f"fault-{uuid.uuid4().hex[:8]}"
    async with open_rig(cluster, live_programs, name) as rig:
        yield rig
