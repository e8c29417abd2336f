"""The rights that a declared hook needs, and the access reviews that check them."""

from typing import Any

import pytest

from reconciler.hooks.declared import compile_hook
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.authoring.rights import HookLack, HookRights
from tests.unit.rights import Account

PATCH = {"operation": "JQPatch", "kind": "ConfigMap", "namespace": "a", "jqFilter": ".data = {}"}


def hook(*operations: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kube-retrofit.dev/v1alpha1",
        "kind": "Hook",
        "metadata": {"name": "h", "namespace": "a"},
        "spec": {
            "kubernetes": [{"name": "pods", "kind": "Pod"}],
            "run": {"operations": list(operations)},
        },
    }


async def lack(account: Account, *operations: dict[str, Any]) -> HookLack:
    rights = HookRights(kinds=MemoryKinds(), access=account)
    return await rights.check(compile_hook(hook(*operations)))


async def test_each_right_is_checked_once_and_no_alternative_to_a_granted_one() -> None:
    account = Account()
    found = await lack(account, {**PATCH, "name": "x"}, {**PATCH, "name": "x"})
    assert found == HookLack()
    assert sorted(account.asked) == [
        "get configmaps in namespace a named x",
        "list pods in namespace a",
        "patch configmaps in namespace a named x",
        "watch pods in namespace a",
    ]


@pytest.mark.parametrize(
    ("lacks", "missing"),
    [
        ({"patch configmaps"}, []),
        ({"patch configmaps", "update configmaps"}, ["spec.run.operations[0]"]),
        ({"watch pods", "list pods"}, ["spec.kubernetes[0]", "spec.kubernetes[0]"]),
    ],
)
async def test_a_missing_right_is_reported_with_its_location_in_the_hook(
    lacks: set[str], missing: list[str]
) -> None:
    found = await lack(Account(lacks=lacks), {**PATCH, "name": "x"})
    assert [need.location for need in found.rights] == missing


async def test_an_unserved_kind_is_reported_with_its_location_in_the_hook() -> None:
    unserved = {"apiVersion": "example.com/v1", "kind": "Gadget", "name": "x"}
    found = await lack(Account(), {**PATCH, **unserved})
    assert found.unserved == (("spec.run.operations[0]", "Gadget"),)
