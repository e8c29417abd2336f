"""The running programs, with a separate namespace for each test."""

import uuid
from collections.abc import AsyncIterator

import pytest

from devcluster.programs import Programs
from tests.faults.rig import Rig, open_rig


@pytest.fixture
async def rig(live_programs: Programs) -> AsyncIterator[Rig]:
    """The running programs, with a namespace for this test only."""
    name = f"live-{uuid.uuid4().hex[:8]}"
    async with open_rig(live_programs.cluster, live_programs, name) as rig:
        yield rig
