"""What somebody writes costs the others no time: neither to be compiled nor to be evaluated."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.errors import ClusterError
from tests.attacks.roles import Neighbour, Roles
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

BOMB = "length(join('', map(&to_upper(@), request.object.data.*)))"
LARGE = {f"k{at}": "x" * 4_000 for at in range(200)}
ENOUGH = 3.0
"""Seconds within which 99 of 100 writes of another tenant are done: on a quiet machine it is less
than one, and these attacks took half a minute and more."""


@contextlib.asynccontextmanager
async def working(neighbour: Neighbour) -> AsyncIterator[None]:
    task = asyncio.create_task(neighbour.work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert neighbour.refused == []
    assert neighbour.percentile(0.99) < ENOUGH, neighbour.percentile(0.99)


def aliases() -> str:
    lines = ["- op: add", "  path: /data/x", "  value:", "    a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"    a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 7)]
    return "\n".join(lines)


def deep() -> Object:
    value: Any = "x"
    for _ in range(200):
        value = {"a": value}
    return {"data": value}


@pytest.mark.parametrize(
    ("patch", "words"),
    [(aliases(), "more than 20000 values"), (deep(), "nested deeper than 100 levels")],
    ids=["aliases", "depth"],
)
async def test_a_policy_is_measured_before_it_is_compiled(
    rig: Rig, roles: Roles, neighbour: Neighbour, patch: Any, words: str
) -> None:
    place = rig.namespace
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": "attack", "namespace": place},
        "spec": {"rules": [rule(place, [target(place, "x")], patch)]},
    }
    async with working(neighbour):
        for _ in range(20):
            with pytest.raises(ClusterError, match=words):
                await roles.policy_writer.create(policy)


def conditions() -> Object:
    return {
        "all": [
            {"key": f"{{{{ {BOMB} }}}}", "operator": "GreaterThan", "value": at}
            for at in range(150)
        ]
    }


def elements() -> Object:
    patch = {"data": {"x": f"{{{{ {BOMB} }}}}"}}
    return {"foreach": [{"list": "values(request.object.data)", "patchStrategicMerge": patch}]}


@pytest.mark.parametrize("part", ["preconditions", "foreach"])
async def test_what_is_evaluated_has_an_allowance(
    rig: Rig, roles: Roles, neighbour: Neighbour, part: str
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "x"))
    attack = rule(place, [target(place, "x")], {"data": {"a": "b"}})
    if part == "preconditions":
        attack["preconditions"] = conditions()
    else:
        attack["mutate"] = {"targets": [target(place, "x")], **elements()}
    await rig.apply(attack)
    async with working(neighbour):
        for number in range(5):
            await roles.namespace_admin.create(config_map(place, f"trigger-{number}", **LARGE))

        async def unfinished() -> str:
            failed = len(await rig.requests(state=State.FAILED))
            return "" if failed == 5 else f"{failed} of 5 failed"

        await rig.settle(unfinished, within=60.0)
    for request in await rig.requests(state=State.FAILED):
        assert "more than 80000000 steps" in request.status.message
    assert await rig.data("x") == {}
