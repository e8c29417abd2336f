"""CustomResourceDefinitions whose objects hooks convert."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.meta import PolicyRef
from reconciler.errors import Conflict, NotFound
from reconciler.hooks.config import load_config
from reconciler.services.hooks.answering import AnsweredHook
from reconciler.services.hooks.conversions import HookConversions
from reconciler.services.ports.webhooks import Endpoint

REF = PolicyRef(
    api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name="hook.sh"
)
HOOK = AnsweredHook(
    ref=REF,
    name="hook.sh",
    config=load_config(
        """
        configVersion: v1
        kubernetesCustomResourceConversion:
        - {name: up, crdName: a.g, conversions: [{fromVersion: v1, toVersion: v2}]}
        - {name: down, crdName: a.g, conversions: [{fromVersion: v2, toVersion: v1}]}
        - {name: other, crdName: b.g, conversions: [{fromVersion: v2, toVersion: v1}]}
        """
    ),
)
WANTED = {
    "strategy": "Webhook",
    "webhook": {
        "clientConfig": {
            "service": {"name": "svc", "namespace": "shop", "path": "/a.g", "port": 443},
            "caBundle": "Q0E=",
        },
        "conversionReviewVersions": ["v1"],
    },
}


class Stored:
    def __init__(self, **found: Mapping[str, Any]) -> None:
        self.found = {f"{name}.g": conversion for name, conversion in found.items()}
        self.writes = 0

    async def conversion(self, name: str) -> Mapping[str, Any]:
        if name not in self.found:
            raise NotFound(f"{name} is not there")
        return self.found[name]

    async def convert_by(self, name: str, conversion: Mapping[str, Any]) -> None:
        self.found[name] = conversion
        self.writes += 1


def keeper(stored: Stored, reported: dict[str, str]) -> HookConversions:
    made = HookConversions(
        definitions=stored,
        namespace="shop",
        endpoint=lambda: Endpoint(service="svc", ca_bundle=b"CA"),
        converters=HOOK.converters,
        warn=lambda _: None,
    )
    made.assessed.subscribe(lambda _hook, key, problem: reported.update({key: problem}))
    return made


async def test_custom_resource_definitions_are_written_once() -> None:
    none = {"strategy": "None"}
    stored, reported = Stored(a=none, b=none), dict[str, str]()
    made = keeper(stored, reported)
    assert made.problem(REF, "conversion up").endswith("has not been updated yet")
    for _ in range(3):
        await made.settle()
    assert stored.found["a.g"] == WANTED
    assert stored.writes == 2
    assert reported == {"conversion up": "", "conversion down": "", "conversion other": ""}


async def test_a_missing_definition_does_not_hold_up_the_others() -> None:
    stored, reported = Stored(a={}), dict[str, str]()
    made = keeper(stored, reported)
    with pytest.raises(NotFound):
        await made.settle()
    assert stored.found["a.g"] == WANTED
    assert reported == {
        "conversion up": "",
        "conversion down": "",
        "conversion other": "other: b.g is not there",
    }
    assert made.problem(REF, "conversion other") == "other: b.g is not there"


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"service": {"name": "s", "namespace": "else"}}, "already converted by Service else/s"),
        ({"url": "https://a"}, "already converted by https://a: remove"),
    ],
)
async def test_a_definition_that_another_client_converts_is_not_changed(
    client: dict[str, Any], said: str
) -> None:
    theirs = {"strategy": "Webhook", "webhook": {"clientConfig": client}}
    stored = Stored(a=theirs, b={})
    with pytest.raises(Conflict, match=said):
        await keeper(stored, {}).settle()
    assert stored.found["a.g"] == theirs


async def test_a_conversion_that_shell_operator_left_in_the_namespace_is_taken_over() -> None:
    client = {"service": {"name": "shell-operator-conversion-svc", "namespace": "shop"}}
    stored = Stored(a={"strategy": "Webhook", "webhook": {"clientConfig": client}}, b={})
    await keeper(stored, {}).settle()
    assert stored.found["a.g"] == WANTED
