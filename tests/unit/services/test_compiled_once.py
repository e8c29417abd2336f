"""Policies are compiled when they are applied, and never again for a trigger."""

import asyncio

from jmespath.parser import Parser

from reconciler.dialects.registry import compile_policy
from reconciler.services.catalog.policy_store import PolicyStore
from tests.calls import counted

TRIGGERS = 30
RULE = {
    "preconditions": {
        "all": [{"key": "{{ request.object.data.a }}", "operator": "Equals", "value": "b"}]
    }
}
PATCH = {"metadata": {"labels": {"seen": "{{ request.object.data.a }}"}}}


async def test_concurrent_requests_for_a_policy_compile_it_once(make):
    index, policy = PolicyStore(), make.policy(patch=PATCH, **RULE)
    with counted(compile_policy) as calls:
        found = await asyncio.gather(*(index.take_in(policy) for _ in range(5)))
    assert {item.key for item in found} == {"p"}
    assert calls == {"compile_policy": 1}


async def test_the_controller_compiles_a_policy_once(world, make):
    world.cluster.add(make.object("Secret", "s"))
    with counted(compile_policy, Parser.parse) as calls:
        policy = world.install(make.policy(patch=PATCH, **RULE))
        once = dict(calls)
        assert once["compile_policy"] == 1
        assert once["parse"] > 0
        for number in range(TRIGGERS):
            trigger = world.cluster.add(make.object(name=f"c{number}", data={"a": "b"}))
            world.dispatcher.on_stored(await world.ask(policy, trigger, name=f"ur-{number}"))
        await world.settle()
        assert calls == once
    states = [(await world.status(f"ur-{number}")).state for number in range(TRIGGERS)]
    assert set(states) == {"Completed"}
