"""Watches that stay open without delivering events: caches are outdated without any error."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from devcluster.install import install
from devcluster.programs import Programs, start_programs
from reconciler.api.updaterequest import State
from tests.faults.proxy import CALM, Disturbance, Proxy, open_proxy
from tests.faults.rig import Rig, config_map, open_rig, rule, target
from tests.usedrights import audited

pytestmark = pytest.mark.cluster

COUNT = 40


@pytest.fixture
def proxied(binaries: Binaries | Path) -> Iterator[tuple[ControlPlane, Programs, Proxy]]:
    """Both programs behind a proxy; the test reaches the control plane directly."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with (
        audited(binaries) as plane,
        open_proxy(plane, binaries) as (proxy, behind),
        start_programs(behind, settings=install(plane, "demo")) as programs,
    ):
        yield plane, programs, proxy
        proxy.disturbance = CALM


@pytest.fixture
async def behind(
    proxied: tuple[ControlPlane, Programs, Proxy],
) -> AsyncIterator[tuple[Rig, Proxy]]:
    """A rig that bypasses the proxy, with a namespace of the test's own, and the proxy."""
    plane, programs, proxy = proxied
    async with open_rig(plane, programs, "silence") as rig:
        yield rig, proxy


async def test_a_changed_namespace_label_is_found_despite_silent_watches(
    behind: tuple[Rig, Proxy],
) -> None:
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
    # Longer than it takes to detect a silent watch: an idle watch must not be taken for one.
    burst = await rig.burst(
        (config_map("quiet", f"trigger-{n}", n=str(n)) for n in range(COUNT)), per_second=5
    )
    assert not burst.refused
    assert not await rig.requests()

    proxy.disturbance = Disturbance(silent=True, kinds=frozenset({"namespaces"}))

    async def heard() -> str:
        return "" if proxy.silenced >= 2 else f"{proxy.silenced} watches are silent"

    await rig.settle(heard, within=30)
    labels = {"metadata": {"labels": {"team": "a"}}}
    await rig.merge("Namespace", place, labels, namespace="")
    triggers = (config_map(place, f"trigger-{n}", n=str(n)) for n in range(COUNT))
    burst = await rig.burst(triggers, per_second=20)
    assert not burst.refused
    await rig.applied({f"target-{n}": {"got": "yes"} for n in range(COUNT)}, within=30)
    await rig.finish(count=COUNT)
    assert await rig.states() == {State.COMPLETED: COUNT}
