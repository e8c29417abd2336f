"""The memory budgets of both programs, with objects of the largest size that is stored."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from devcluster.install import install
from devcluster.programs import ADMISSION, CONTROLLER, start_programs
from reconciler.api.meta import Object
from reconciler.api.updaterequest import Source, State, UpdateRequest
from reconciler.errors import Denied
from tests.faults.rig import Rig, config_map, open_rig, rule, target
from tests.usedrights import audited

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc"),
]

COUNT, SIZE = 64, 900_000
MIB = 1024 * 1024
IN_FLIGHT = 8 * MIB
MOST = 150 * MIB
"""Limit of the controller's memory, in bytes; without the budget it needs 200 MiB or more."""
MOST_BEFORE_STORING = 250 * MIB
"""Limit of the admission server's memory; without the budget it needs 350 MiB or more."""
CREATES, READ = 100, 8


@pytest.fixture
async def rig(binaries: Binaries | Path) -> AsyncIterator[Rig]:
    """A rig with both programs running, on a control plane that ends with the test.

    The API server caches watch events. With this amount of data in the cache, each later call of
    other tests would be slower.
    """
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which may want its memory")
    with audited(binaries) as plane:
        settings = install(plane, "demo")
        shipped = settings[CONTROLLER]
        settings[CONTROLLER] = replace(
            shipped, flags=(*shipped.flags, f"--max-in-flight={IN_FLIGHT}")
        )
        with start_programs(plane, settings=settings) as programs:
            async with open_rig(plane, programs, "large") as rig:
                yield rig


def forget_peak(rig: Rig, program: str = CONTROLLER) -> None:
    """Reset the peak of a program's memory to its current value."""
    Path(f"/proc/{pid(rig, program)}/clear_refs").write_text("5")


def peak(rig: Rig, program: str = CONTROLLER) -> int:
    """Return the peak of a program's resident memory since `forget_peak`, in bytes."""
    lines = Path(f"/proc/{pid(rig, program)}/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith("VmHWM:"))
    return int(found.split()[1]) * 1024


def pid(rig: Rig, program: str) -> int:
    return rig.programs.supervision.pids[program]


async def large(rig: Rig) -> None:
    names = (f"trigger-{n}" for n in range(COUNT))
    objects = (config_map(rig.namespace, name, blob="x" * SIZE) for name in names)
    await rig.create_all(_labelled(obj) for obj in objects)


async def test_a_backlog_a_sweep_and_a_list_of_large_objects_stay_below_the_limit(
    rig: Rig,
) -> None:
    place = rig.namespace
    own = target(place, "{{ request.object.metadata.name }}")
    await rig.apply(rule(place, [own], {"metadata": {"labels": {"seen": "yes"}}}))
    await rig.pause()
    await large(rig)

    forget_peak(rig)
    await rig.resume()
    await rig.finish(count=COUNT, within=120)
    found = await rig.requests()
    assert {item.status.state for item in found} == {State.COMPLETED}
    # A slow catch-up may record a trigger again before it sees its request, which is harmless.
    sources = Counter(item.spec.source for item in found)
    assert sources[Source.ADMISSION] == COUNT, sources
    assert peak(rig) < MOST

    forget_peak(rig)
    await rig.apply(
        rule(place, [own], {"metadata": {"labels": {"swept": "yes"}}}),
        mutateExistingOnPolicyUpdate=True,
    )
    await rig.finish(count=COUNT + 1, within=120)
    assert (await newest(rig)).status.counts.patched == COUNT
    assert peak(rig) < MOST

    forget_peak(rig)
    chosen = {**own, "selector": {"matchLabels": {"size": "large"}}}
    del chosen["name"]
    await rig.apply(
        rule(place, [chosen], {"metadata": {"labels": {"chosen": "yes"}}}, names="one"),
    )
    await rig.create(config_map(place, "one"))
    await rig.finish(count=COUNT + 2, within=120)
    assert (await newest(rig)).status.counts.patched == COUNT
    assert peak(rig) < MOST
    assert rig.running()


async def test_a_rule_that_reads_many_large_objects_for_one_trigger_stays_below_the_limit(
    rig: Rig,
) -> None:
    place = rig.namespace
    await large(rig)
    reads = [
        {"name": f"read{n}", "configMap": {"name": f"trigger-{n}", "namespace": place}}
        for n in range(COUNT)
    ]
    used = ", ".join(f"length(read{n}.data.blob)" for n in range(COUNT))
    data = {"data": {"read": f"{{{{ sum([{used}]) }}}}"}}
    await rig.apply(
        rule(place, [target(place, "one")], data, names="one", context=reads),
    )
    forget_peak(rig)
    await rig.create(config_map(place, "one"))
    await rig.finish(count=1, within=120)
    (request,) = await rig.requests()
    assert peak(rig) < MOST
    assert request.status.state is State.FAILED
    assert "context entries read more than 8 MiB" in request.status.message
    assert rig.running()


async def test_many_creates_whose_rule_reads_large_objects_stay_below_the_limit(rig: Rig) -> None:
    """Each is changed, or refused because of the others; the next ones are answered again."""
    place = rig.namespace
    names = [f"read{n}" for n in range(READ)]
    await rig.create_all(config_map(place, name, blob="x" * SIZE) for name in names)
    reads = [{"name": name, "configMap": {"name": name, "namespace": place}} for name in names]
    used = "-".join(f"{{{{ {name}.metadata.name }}}}" for name in names)
    changing = rule(place, [], {"data": {"read": used}}, names="one-*", context=reads)
    del changing["mutate"]["targets"]
    await rig.apply(changing)

    async def create(number: int) -> str:
        try:
            obj = await rig.create(config_map(place, f"one-{number}"))
        except Denied as error:
            return str(error)
        return str(obj["data"]["read"])

    forget_peak(rig, ADMISSION)
    found = Counter(await asyncio.gather(*map(create, range(CREATES))))
    assert peak(rig, ADMISSION) < MOST_BEFORE_STORING
    changed = found.pop("-".join(names))
    assert changed, found
    assert all("of --max-reads: try again" in text for text in found), found
    assert await create(CREATES) == "-".join(names)
    assert rig.running()


async def newest(rig: Rig) -> UpdateRequest:
    return max(await rig.requests(), key=lambda item: item.created)


def _labelled(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {"size": "large"}}}
