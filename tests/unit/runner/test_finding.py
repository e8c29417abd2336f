"""The executables of a folder are registered as Hooks, or reported as unusable."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reconciler.api.meta import Object
from reconciler.execution.executables import Executables
from reconciler.execution.workspace import clear
from reconciler.isolation.jq import JqWorkers
from reconciler.runner.finding import FoundHooks, find_hooks
from tests.linux import linux


@pytest.fixture
async def jq() -> AsyncIterator[JqWorkers]:
    made = JqWorkers(workers=1)
    yield made
    await made.close()


RULES = "rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]"


class Folder:
    def __init__(self, path: Path, jq: JqWorkers) -> None:
        self.said: list[str] = []
        self._path, self._jq = path, jq

    def put(self, name: str, config: str, mode: int = 0o755) -> None:
        path = self._path / "hooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{config}\nEND\n")
        path.chmod(mode)

    async def find(self, *stored: Object) -> FoundHooks:
        clear(self._path / "tmp")
        executables = Executables(folder=self._path / "tmp", environment={"PATH": "/usr/bin:/bin"})
        hooks = self._path / "hooks"
        return await find_hooks(
            hooks,
            executables,
            self._jq,
            namespace="shop",
            stored=stored,
            warn=self.said.append,
        )


@pytest.fixture
def folder(tmp_path: Path, jq: JqWorkers) -> Folder:
    return Folder(tmp_path, jq)


@linux
async def test_a_hook_is_registered_with_the_configuration_that_it_prints(folder: Folder) -> None:
    folder.put("a/one.sh", "configVersion: v1\nonStartup: 1")
    folder.put("two.sh", '{"configVersion": "v1", "schedule": [{"crontab": "0 3 * * *"}]}')
    found = await folder.find()
    assert [hook.render() for hook in found.registered] == [
        hook("a.one.sh", {"executable": "a/one.sh", "onStartup": 1}),
        hook("two.sh", {"executable": "two.sh", "schedule": [{"crontab": "0 3 * * *"}]}),
    ]
    assert [item.name for item in found.known.values()] == ["a/one.sh", "two.sh"]
    assert list(found.specs) == list(found.known)
    assert folder.said == []


def hook(name: str, spec: dict[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "kube-retrofit.dev/v1alpha1",
        "kind": "Hook",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "retrofit-hooks"},
        },
        "spec": spec,
    }


@linux
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", "--config: prints nothing"),
        ("configVersion: v1\nonstartup: 1", "onstartup: unknown field"),
        (
            "configVersion: v1\nkubernetes: [{kind: Pod, jqFilter: '.a['}]",
            "kubernetes[0].jqFilter: the jq program cannot be compiled",
        ),
        (
            f"configVersion: v1\nkubernetesMutating: [{{name: short, {RULES}}}]",
            "kubernetesMutating[0].name: 'short' must be a domain of at least three segments",
        ),
        (
            f"""
            configVersion: v1
            kubernetesValidating: [{{name: a.b.c, {RULES}}}]
            kubernetesMutating: [{{name: a.b.c, {RULES}}}]
            """,
            "kubernetesMutating[0].name: bad.sh has a webhook 'a.b.c' already",
        ),
    ],
)
async def test_an_unusable_hook_is_reported_and_does_not_affect_other_hooks(
    folder: Folder, config: str, said: str
) -> None:
    folder.put("bad.sh", config)
    folder.put("good.sh", "configVersion: v1\nonStartup: 1")
    found = await folder.find()
    bad, good = found.registered
    assert bad.refused.startswith(said)
    assert (bad.spec, good.refused) == ({"executable": "bad.sh"}, "")
    assert [ref.name for ref in found.known] == ["good.sh"]
    assert folder.said == [f"bad.sh is not run: {bad.refused}"]


async def test_a_hook_that_is_no_longer_executable_is_refused(folder: Folder) -> None:
    folder.put("b.sh", "configVersion: v1\nonStartup: 1", 0o644)
    folder.put("c/common.sh", "a library", 0o644)
    was = hook("b.sh", {"executable": "b.sh", "onStartup": 1})
    foreign = {**hook("c.common.sh", {"run": {}}), "metadata": {"name": "c.common.sh"}}
    found = await folder.find(was, foreign)
    (kept,) = found.registered
    reason = "it is not executable; chmod +x makes it a hook"
    assert (kept.ref.name, kept.spec, kept.refused) == ("b.sh", {"executable": "b.sh"}, reason)
    assert not found.known
    assert found.specs == {kept.ref: None}
    assert folder.said == [f"b.sh is skipped: {reason}", f"c/common.sh is skipped: {reason}"]


@linux
async def test_a_second_hook_with_the_same_webhook_name_is_refused(folder: Folder) -> None:
    text = f"configVersion: v1\nkubernetesValidating: [{{name: a.b.c, {RULES}}}]"
    folder.put("one.sh", text)
    folder.put("two.sh", text)
    found = await folder.find()
    reason = "kubernetesValidating[0].name: one.sh has a webhook 'a.b.c' already"
    assert [hook.refused for hook in found.registered] == ["", reason]
    (hook,) = found.answering
    assert (hook.name, [item.binding.name for item in hook.asked]) == ("one.sh", ["a.b.c"])
