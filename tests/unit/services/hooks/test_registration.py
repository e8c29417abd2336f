"""The Hook objects of executables: creation, restoration and removal."""

import pytest

from reconciler.api.meta import Object, PolicyRef
from reconciler.errors import AlreadyExists, Conflict, Invalid
from reconciler.services.hooks.registration import HookRegistrar, RegisteredHook

MARK = {"app.kubernetes.io/managed-by": "retrofit-hooks"}


class Registry:
    """Hooks in memory."""

    def __init__(self, *stored: Object) -> None:
        self.hooks = {obj["metadata"]["name"]: obj for obj in stored}
        self.refused: dict[str, str] = {}
        self.writes = 0
        self.conflicts = 0
        self.unwanted = ""

    async def stored(self) -> list[Object]:
        return list(self.hooks.values())

    async def create(self, hook: Object) -> Object:
        name = hook["metadata"]["name"]
        if name == self.unwanted:
            raise Invalid(f"{name} is refused", status=422)
        if name in self.hooks:
            raise AlreadyExists(name, status=409)
        return self._write(hook)

    async def replace(self, hook: Object) -> Object:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("somebody was faster", status=409)
        return self._write(hook)

    async def delete(self, name: str) -> None:
        del self.hooks[name]

    async def refuse(self, hook: Object, reason: str) -> None:
        self.refused[hook["metadata"]["name"]] = reason

    def _write(self, hook: Object) -> Object:
        self.writes += 1
        self.hooks[hook["metadata"]["name"]] = hook
        return hook


def registered(name: str, *, refused: str = "") -> RegisteredHook:
    ref = PolicyRef(
        api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name=name
    )
    return RegisteredHook(ref=ref, spec={"executable": name, "onStartup": 1}, refused=refused)


def registration(registry: Registry, *hooks: RegisteredHook) -> HookRegistrar:
    return HookRegistrar(registry=registry, hooks=hooks, warn=print)


async def test_the_hooks_of_executables_are_created_once() -> None:
    registry = Registry()
    work = registration(registry, registered("a.sh"), registered("b.sh", refused="bad"))
    await work.settle()
    await work.settle()
    assert registry.writes == 2
    assert registry.hooks["a.sh"]["spec"] == {"executable": "a.sh", "onStartup": 1}
    assert registry.refused == {"b.sh": "bad"}


async def test_an_edited_hook_is_restored() -> None:
    edited = registered("a.sh").render()
    edited["spec"] = {"executable": "a.sh", "kubernetes": [{"kind": "Secret"}]}
    edited["metadata"] |= {"resourceVersion": "7", "labels": {"team": "x"}}
    registry = Registry(edited)
    registry.conflicts = 1
    work = registration(registry, registered("a.sh"))
    await work.settle()
    assert registry.writes == 0
    await work.settle()
    restored = registry.hooks["a.sh"]
    assert restored["spec"] == {"executable": "a.sh", "onStartup": 1}
    assert restored["metadata"]["resourceVersion"] == "7"
    assert restored["metadata"]["labels"] == {"team": "x", **MARK}


async def test_only_hooks_that_registration_created_are_removed() -> None:
    mine, other = registered("gone.sh").render(), registered("declared").render()
    other["metadata"]["labels"] = {}
    registry = Registry(mine, other)
    await registration(registry).settle()
    assert list(registry.hooks) == ["declared"]


async def test_a_hook_that_cannot_be_registered_does_not_keep_the_others_from_it() -> None:
    former = registered("former.sh").render()
    registry = Registry(former)
    registry.unwanted = "a.sh"
    work = registration(registry, registered("a.sh"), registered("b.sh"))
    with pytest.raises(Invalid, match=r"a\.sh is refused"):
        await work.settle()
    assert list(registry.hooks) == ["b.sh"]
