"""A watch stays open and gives nothing: what is known is old, and nothing tells."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reconciler.api.updaterequest import State
from reconciler.cli.dev.binaries import Binaries
from reconciler.cli.dev.cluster import ControlPlane, Options
from reconciler.cli.dev.install import install
from reconciler.cli.dev.programs import start_programs
from tests.faults.proxies import Behind, Proxy, open_proxy
from tests.faults.rig import Rig, config_map, open_rig, rule, target

pytestmark = pytest.mark.cluster

COUNT = 40


@pytest.fixture
async def behind(binaries: Binaries | Path, tmp_path: Path) -> AsyncIterator[tuple[Rig, Proxy]]:
    """Both programs behind a proxy."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with ControlPlane.start(Options(binaries=binaries)) as plane:
        async with open_proxy(plane) as (proxy, address):
            settings = await asyncio.to_thread(install, plane, "demo")
            cluster = Behind(plane, binaries, tmp_path, address)
            programs = await asyncio.to_thread(start_programs, cluster, settings=settings)
            try:
                async with open_rig(cluster, programs, "silence") as rig:
                    yield rig, proxy
            finally:
                await asyncio.to_thread(programs.stop)


async def test_the_labels_of_a_namespace_change_unheard(behind: tuple[Rig, Proxy]) -> None:
    rig, proxy = behind
    place = rig.namespace
    await rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet"}})
    selecting = rule(
        place, [target(place, "target-{{ request.object.data.n }}")], {"data": {"got": "yes"}}
    )
    selecting["match"]["any"][0]["resources"] |= {
        "namespaces": [place, "quiet"],
        "namespaceSelector": {"matchLabels": {"team": "a"}},
    }
    await rig.apply(selecting)
    await rig.create_all(config_map(place, f"target-{n}") for n in range(COUNT))
    # Longer than a silence would take to be told: quiet is no silence, and costs no request.
    burst = await rig.burst(
        (config_map("quiet", f"trigger-{n}", n=str(n)) for n in range(COUNT)), per_second=5
    )
    assert not burst.refused
    assert not await rig.requests()

    proxy.silence("namespaces")

    async def heard() -> str:
        return "" if proxy.held >= 2 else f"{proxy.held} watches are silent"

    await rig.settle(heard, within=30)
    labels = {"metadata": {"labels": {"team": "a"}}}
    await rig.merge("Namespace", place, labels, namespace="")
    triggers = (config_map(place, f"trigger-{n}", n=str(n)) for n in range(COUNT))
    burst = await rig.burst(triggers, per_second=20)
    assert not burst.refused
    await rig.applied({f"target-{n}": {"got": "yes"} for n in range(COUNT)}, within=30)
    await rig.finish(count=COUNT)
    assert await rig.states() == {State.COMPLETED: COUNT}
