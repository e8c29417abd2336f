"""Rules that use up their allowance neither cost the Lease nor delay other tenants."""

import pytest

from devcluster.programs import CONTROLLER
from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from tests.attacks.roles import Neighbour, Roles
from tests.attacks.vitals import WORKED, measured, share
from tests.faults.rig import Rig, config_map, rule, target
from tests.linux import linux

pytestmark = [linux, pytest.mark.cluster, pytest.mark.timeout(180)]

TRIGGERS = 300
WORTH = 40
"""Number of the neighbour's triggers to measure during the attack."""
DATA = {f"k{at}": "x" for at in range(8)}
TENFOLD = f"[{', '.join(['@'] * 10)}][]"
SLOW = f"request.object.data | keys(@) | {TENFOLD} | {TENFOLD} | map(&parse_yaml('a: 1'), @)"
"""One of the expressions that take the most time per counted step."""


def attack(place: str) -> Object:
    """Return a rule whose preconditions take about a second to evaluate."""
    made = rule(
        place, [target(place, "x")], {"data": {"last": "{{ request.object.metadata.name }}"}}
    )
    condition = {"key": f"{{{{ length({SLOW}) }}}}", "operator": "GreaterThan", "value": 1}
    return {**made, "preconditions": {"all": [condition] * 80}}


async def test_slow_triggers_of_a_tenant_do_not_delay_other_tenants(
    rig: Rig, roles: Roles, neighbour: Neighbour
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "x"))
    await rig.apply(attack(place))
    await neighbour.rig.one_to_one(1)
    async with measured(rig, neighbour, "0") as vitals:
        await roles.namespace_admin.create_all(
            config_map(place, f"trigger-{at}", **DATA) for at in range(TRIGGERS)
        )
        enough = len(vitals.works) + WORTH

        async def unmeasured() -> str:
            done = len(vitals.works)
            return "" if done >= enough else f"{done} of {enough} triggers of the neighbour"

        await rig.settle(unmeasured, within=60.0)
    waiting = len(await rig.waiting())
    print(f"slow triggers left {waiting}: {vitals}")  # noqa: T201 - the figures of the note
    assert waiting > TRIGGERS // 2, "the attack was over before it could be measured"
    assert share(vitals.works, 0.9) < WORKED, vitals
    vitals.check()
    failed = await rig.requests(state=State.FAILED)
    assert failed == []
    # The remaining evaluations would occupy a core for a minute and slow down later tests.
    await rig.kill(CONTROLLER)


async def test_slow_projections_of_a_global_entry_do_not_delay_other_tenants(
    rig: Rig, neighbour: Neighbour
) -> None:
    """Each change of the data causes a new evaluation of all projections."""
    place = rig.namespace
    copies = f"[{', '.join(['@'] * 50)}][]"
    slow = f"{copies} | {copies} | length(map(&parse_json('[1,2,3]'), @))"
    wanted = {"version": "v1", "resource": "configmaps", "namespace": place}
    failing = {"name": "failing", "jmesPath": "sum([].metadata.name)"}
    entry: Object = {
        "apiVersion": "kyverno.io/v2",
        "kind": "GlobalContextEntry",
        "metadata": {"name": place},
        "spec": {
            "kubernetesResource": wanted,
            "projections": [
                *({"name": f"slow-{at}", "jmesPath": slow} for at in range(20)),
                failing,
            ],
        },
    }
    await rig.create_all(config_map(place, f"data-{at}") for at in range(40))
    await neighbour.rig.one_to_one(1)
    await rig.learn("kyverno.io/v2", "GlobalContextEntry")
    async with measured(rig, neighbour, "0") as vitals:
        await rig.create(entry)

        async def unmeasured() -> str:
            return "" if len(vitals.works) >= WORTH else f"{len(vitals.works)} triggers"

        await rig.settle(unmeasured, within=60.0)
    print(f"slow projections: {vitals}")  # noqa: T201 - the figures of the note
    await rig.delete("GlobalContextEntry", place, "")
    assert share(vitals.works, 0.9) < WORKED, vitals
    vitals.check()
    # The remaining evaluations would occupy a core for a minute and slow down later tests.
    await rig.kill(CONTROLLER)
