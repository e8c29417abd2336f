"""Detection of a live Kyverno by its Leases, independent of the clocks."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from reconciler.api.updaterequest import render_time
from reconciler.errors import Unavailable
from reconciler.services.upkeep.coexistence import KyvernoDetector
from tests.unit.services.conftest import World


class Leases:
    """Leases by name; a stored error is raised."""

    def __init__(self):
        self.stored = {}

    async def lease(self, name):
        found = self.stored.get(name)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def detector(world: World, reported: list[str]) -> Callable[..., KyvernoDetector]:
    def build(**options):
        return KyvernoDetector(
            leases=Leases(),
            clock=world.clock,
            namespace="kyverno",
            take_over=options.get("take_over", False),
            warn=reported.append,
        )

    return build


def held(moment, holder="kyverno-7d9"):
    return {"spec": {"holderIdentity": holder, "renewTime": render_time(moment)}}


async def test_no_kyverno_is_found_without_leases(detector, reported):
    alone = detector()
    await alone.look()
    assert (alone.found, alone.standing_by, reported) == ("", "", [])
    assert alone.looked.is_set()


async def test_a_freshly_renewed_lease_means_a_live_kyverno(world, detector, reported):
    beside, heard = detector(), []
    beside.changed.subscribe(lambda: heard.append(beside.found))
    beside.leases.stored["kyverno-background-controller"] = held(world.clock.now())
    await beside.look()
    assert beside.found == "kyverno-background-controller"
    assert "scale Kyverno's controllers to 0" in beside.standing_by
    await beside.look()
    assert heard == ["kyverno-background-controller"]
    assert reported == [beside.standing_by]


async def test_a_kyverno_that_stops_renewing_its_lease_is_gone(world, detector, reported):
    beside, heard = detector(), []
    beside.changed.subscribe(lambda: heard.append(beside.found))
    beside.leases.stored["kyverno"] = held(world.clock.now())
    await beside.look()
    world.clock.tick(29)
    await beside.look()
    assert beside.found
    world.clock.tick(2)
    await beside.look()
    assert heard == ["kyverno", ""]
    assert reported[-1] == "the live Kyverno is gone: resuming"


async def test_leases_of_an_uninstalled_kyverno_are_ignored(world, detector):
    alone = detector()
    alone.leases.stored["kyverno"] = held(world.clock.now() - timedelta(hours=1))
    alone.leases.stored["kyverno-background-controller"] = held(world.clock.now(), holder="")
    alone.leases.stored["kyverno-health"] = {"metadata": {"name": "kyverno-health"}}
    await alone.look()
    assert alone.found == ""


async def test_a_wrong_clock_hides_a_live_kyverno_for_one_check_only(world, detector):
    beside = detector()
    late = world.clock.now() - timedelta(hours=1)
    beside.leases.stored["kyverno"] = held(late)
    await beside.look()
    assert beside.found == ""
    world.clock.tick(10)
    beside.leases.stored["kyverno"] = held(late + timedelta(seconds=10))
    await beside.look()
    assert beside.found == "kyverno"


async def test_a_heartbeat_means_a_live_kyverno_as_well(world, detector):
    beside = detector()
    moment = render_time(world.clock.now())
    annotations = {"kyverno.io/last-request-time": moment}
    beside.leases.stored["kyverno-health"] = {"metadata": {"annotations": annotations}}
    await beside.look()
    assert beside.found == "kyverno-health"


async def test_taking_over_warns_instead_of_standing_by(world, detector):
    beside = detector(take_over=True)
    beside.leases.stored["kyverno"] = held(world.clock.now())
    await beside.look()
    assert beside.standing_by == ""
    assert "may be applied twice" in beside.description


async def test_an_unreadable_lease_leaves_the_last_result(world, detector):
    beside = detector()
    beside.leases.stored["kyverno"] = held(world.clock.now())
    await beside.look()
    beside.leases.stored["kyverno"] = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await beside.look()
    assert beside.found == "kyverno"
