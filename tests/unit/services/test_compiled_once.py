"""Policies are compiled when they come, and never again for a trigger."""

import asyncio

import pytest
from jmespath.parser import Parser

from reconciler.dialects.registry import compile_policy
from reconciler.services.catalog import policies

TRIGGERS = 30
RULE = {
    "preconditions": {
        "all": [{"key": "{{ request.object.data.a }}", "operator": "Equals", "value": "b"}]
    }
}
PATCH = {"metadata": {"labels": {"seen": "{{ request.object.data.a }}"}}}


@pytest.fixture
def counted(monkeypatch):
    """How often a policy was compiled, and how often an expression was parsed."""
    seen = {"policies": 0, "expressions": 0}
    parse = Parser.parse

    def compiling(obj, **given):
        seen["policies"] += 1
        return compile_policy(obj, **given)

    def parsing(self, text):
        seen["expressions"] += 1
        return parse(self, text)

    monkeypatch.setattr(policies, "compile_policy", compiling)
    monkeypatch.setattr(Parser, "parse", parsing)
    return seen


async def test_requests_that_ask_for_a_policy_at_once_have_it_compiled_once(make, counted):
    index, policy = policies.PolicyIndex(), make.policy(patch=PATCH, **RULE)
    found = await asyncio.gather(*(index.take_in(policy) for _ in range(5)))
    assert {item.key for item in found} == {"p"}
    assert counted["policies"] == 1


async def test_the_controller_compiles_a_policy_once(world, make, counted):
    world.cluster.add(make.object("Secret", "s"))
    policy = world.install(make.policy(patch=PATCH, **RULE))
    assert counted["policies"] == 1
    expressions = counted["expressions"]
    assert expressions > 0
    for number in range(TRIGGERS):
        trigger = world.cluster.add(make.object(name=f"c{number}", data={"a": "b"}))
        world.dispatcher.on_stored(await world.ask(policy, trigger, name=f"ur-{number}"))
    await world.settle()
    states = [(await world.status(f"ur-{number}")).state for number in range(TRIGGERS)]
    assert set(states) == {"Completed"}
    assert counted == {"policies": 1, "expressions": expressions}
