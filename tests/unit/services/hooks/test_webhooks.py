"""The webhook configurations of hooks: creation, restoration, removal, and foreign ones."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.meta import Object, PolicyRef
from reconciler.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotInstalled
from reconciler.hooks.config import load_config
from reconciler.services.hooks.answering import AnsweredHook
from reconciler.services.hooks.webhooks import HookWebhooks
from reconciler.services.ports.webhooks import (
    MUTATING,
    VALIDATING,
    ConfigurationRef,
    Endpoint,
    ref_of,
)

REF = PolicyRef(
    api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name="hook.sh"
)
RULES = "rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]"
BOTH = f"""
configVersion: v1
kubernetesValidating:
- name: one.example.com
  failurePolicy: Ignore
  sideEffects: NoneOnDryRun
  timeoutSeconds: 3
  labelSelector: {{matchExpressions: [{{key: a, operator: Exists}}]}}
  namespace: {{labelSelector: {{matchLabels: {{b: c}}}}}}
  matchConditions: [{{name: x, expression: "true"}}]
  {RULES}
- {{name: two.example.com, {RULES}}}
kubernetesMutating: [{{name: three.example.com, {RULES}}}]
"""
NAME = "shell-operator-hooks"
FIRST = ConfigurationRef(VALIDATING, NAME)
SECOND = ConfigurationRef(MUTATING, NAME)


class Stored:
    """Webhook configurations in memory, as an API server stores them."""

    def __init__(self) -> None:
        self.found: dict[ConfigurationRef, Object] = {}
        self.refused = ""
        self.forbidden = False
        self.owned = True
        self.writes = 0

    async def get(self, ref: ConfigurationRef) -> Object | None:
        if self.forbidden:
            raise Forbidden("no right", permission="get")
        return self.found.get(ref)

    async def create(self, configuration: Object) -> Object:
        if ref_of(configuration) in self.found:
            raise AlreadyExists("there is one")
        return self._keep(configuration)

    async def replace(self, configuration: Object) -> Object:
        stored = self.found[ref_of(configuration)]["metadata"]["resourceVersion"]
        if configuration["metadata"]["resourceVersion"] != stored:
            raise Conflict("another version is stored")
        return self._keep(configuration)

    async def delete(self, ref: ConfigurationRef) -> None:
        del self.found[ref]

    async def check(self, configuration: Object) -> None:
        if self.refused in {item["name"] for item in configuration["webhooks"]}:
            raise Invalid("webhooks[0].matchConditions[0]: no")

    async def owner(self) -> Mapping[str, Any] | None:
        if not self.owned:
            return None
        return {"apiVersion": "v1", "kind": "ClusterRole", "name": NAME, "uid": "u"}

    def _keep(self, configuration: Object) -> Object:
        if self.refused in {item["name"] for item in configuration["webhooks"]}:
            raise Invalid("webhooks[0].matchConditions[0]: no")
        self.writes += 1
        meta = {**configuration["metadata"], "resourceVersion": str(self.writes)}
        self.found[ref_of(configuration)] = {**configuration, "metadata": meta}
        return self.found[ref_of(configuration)]


class World:
    def __init__(self) -> None:
        self.stored = Stored()
        self.said: list[str] = []
        self.reported: dict[str, str] = {}
        self.bundle = b"CA"

    def endpoint(self) -> Endpoint:
        if not self.bundle:
            raise NotInstalled("no certificate yet")
        return Endpoint(service="svc", ca_bundle=self.bundle)

    def keeper(
        self, text: str = BOTH, namespace: str = "shop", *, complete: bool = True
    ) -> HookWebhooks:
        hook = AnsweredHook(ref=REF, name="hook.sh", config=load_config(text))
        made = HookWebhooks(
            webhooks=self.stored,
            name=NAME,
            namespace=namespace,
            endpoint=self.endpoint,
            asked=hook.asked,
            complete=complete,
            warn=self.said.append,
        )
        made.assessed.subscribe(self._tell)
        return made

    def _tell(self, hook: PolicyRef, key: str, problem: str) -> None:
        assert hook == REF
        self.reported[key] = problem

    def names(self, ref: ConfigurationRef = FIRST) -> list[str]:
        return [item["name"] for item in self.stored.found[ref]["webhooks"]]


@pytest.fixture
def world() -> World:
    return World()


async def test_a_webhook_has_the_settings_of_its_binding(world: World) -> None:
    keeper = world.keeper()
    assert keeper.problem(REF, "admission one.example.com").endswith("has not been written yet")
    await keeper.settle()
    first, second = world.stored.found[FIRST]["webhooks"]
    assert first == {
        "name": "one.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "name": "svc",
                "namespace": "shop",
                "path": "/validating/one.example.com",
                "port": 443,
            },
            "caBundle": "Q0E=",
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
                "scope": "*",
            }
        ],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 3,
        "namespaceSelector": {
            "matchLabels": {"b": "c"},
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": [
                        "kube-retrofit-beside-recorded",
                        "kube-retrofit-recorded",
                        "kube-system",
                        "shop",
                    ],
                }
            ],
        },
        "objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        "matchConditions": [{"name": "x", "expression": "true"}],
    }
    assert (second["failurePolicy"], second["timeoutSeconds"]) == ("Fail", 10)
    (third,) = world.stored.found[SECOND]["webhooks"]
    assert third["reinvocationPolicy"] == "Never"
    assert third["clientConfig"]["service"]["path"] == "/mutating/three.example.com"
    assert set(world.reported.values()) == {""}
    assert keeper.problem(REF, "admission one.example.com") == ""


@pytest.mark.parametrize(
    ("groups", "spared"),
    [
        (("apps",), ""),
        (("'*'",), "authentication.k8s.io authorization.k8s.io coordination.k8s.io"),
        (("'*'", "coordination.k8s.io"), "authentication.k8s.io authorization.k8s.io"),
    ],
)
async def test_a_rule_for_all_api_groups_spares_the_groups_that_a_cluster_needs(
    world: World, groups: tuple[str, ...], spared: str
) -> None:
    rest = "apiVersions: ['*'], resources: ['*'], operations: ['*']"
    rules = ", ".join(f"{{apiGroups: [{group}], {rest}}}" for group in groups)
    binding = f"{{name: one.example.com, rules: [{rules}]}}"
    await world.keeper(f"configVersion: v1\nkubernetesValidating: [{binding}]").settle()
    (webhook,) = world.stored.found[FIRST]["webhooks"]
    listed = ", ".join(f"'{group}'" for group in spared.split())
    expression = f"!(request.resource.group in [{listed}])"
    wanted = [{"name": "kube-retrofit.dev/spared-groups", "expression": expression}]
    assert webhook.get("matchConditions", []) == (wanted if spared else [])


@pytest.mark.parametrize("owned", [True, False], ids=["owned", "without the role"])
async def test_a_configuration_that_is_up_to_date_is_not_written_again(
    world: World, *, owned: bool
) -> None:
    world.stored.owned = owned
    keeper = world.keeper()
    for _ in range(3):
        await keeper.settle()
    assert world.stored.writes == 2
    # The next process does not write it either.
    await world.keeper().settle()
    assert world.stored.writes == 2


async def test_a_deleted_or_changed_configuration_is_restored_and_reported(world: World) -> None:
    keeper = world.keeper()
    await keeper.settle()
    del world.stored.found[FIRST]
    world.stored.found[SECOND] = {**world.stored.found[SECOND], "webhooks": []}
    await keeper.settle()
    assert world.names() == ["one.example.com", "two.example.com"]
    assert world.names(SECOND) == ["three.example.com"]
    assert world.said == [
        f"restoring {FIRST}, which another client deleted",
        f"restoring {SECOND}, which another client changed",
    ]


async def test_a_new_certificate_is_written_without_a_message(world: World) -> None:
    keeper = world.keeper()
    await keeper.settle()
    world.bundle = b"CB"
    await keeper.settle()
    client = world.stored.found[FIRST]["webhooks"][0]["clientConfig"]
    assert client["caBundle"] == "Q0I="
    assert world.said == []


async def test_a_configuration_that_no_hook_needs_is_removed(world: World) -> None:
    await world.keeper().settle()
    await world.keeper("configVersion: v1\nonStartup: 1").settle()
    assert world.stored.found == {}
    assert world.said[0] == f"removed {FIRST}, which no hook needs any longer"


@pytest.mark.parametrize(
    "text",
    [
        "configVersion: v1\nonStartup: 1",
        BOTH.replace("- {name: two.example.com, " + RULES + "}", ""),
    ],
    ids=["all", "one"],
)
async def test_while_an_executable_is_refused_no_webhook_is_removed(
    world: World, text: str
) -> None:
    await world.keeper().settle()
    before = {ref: stored["webhooks"] for ref, stored in world.stored.found.items()}
    keeper = world.keeper(text, complete=False)
    for _ in range(2):
        await keeper.settle()
    assert {ref: stored["webhooks"] for ref, stored in world.stored.found.items()} == before
    assert world.stored.writes == 2
    assert world.said == []


async def test_without_admission_hooks_no_rights_are_needed(world: World) -> None:
    world.stored.forbidden = True
    await world.keeper("configVersion: v1\nonStartup: 1").settle()
    with pytest.raises(Forbidden):
        await world.keeper().settle()


async def test_a_configuration_for_hooks_of_another_namespace_is_not_changed(world: World) -> None:
    await world.keeper(namespace="other").settle()
    before = dict(world.stored.found)
    with pytest.raises(Conflict, match="belongs to the hooks of namespace other: choose another"):
        await world.keeper().settle()
    await world.keeper("configVersion: v1\nonStartup: 1").settle()
    assert world.stored.found == before


@pytest.mark.parametrize(("place", "taken"), [("shop", True), ("elsewhere", False)])
async def test_a_configuration_that_shell_operator_left_in_the_namespace_is_taken_over(
    world: World, place: str, *, taken: bool
) -> None:
    service = {"name": "old", "namespace": place}
    old = {
        "kind": VALIDATING,
        "metadata": {"name": NAME, "resourceVersion": "7"},
        "webhooks": [{"name": "old.example.com", "clientConfig": {"service": service}}],
    }
    world.stored.found[FIRST] = old
    if taken:
        await world.keeper().settle()
        assert world.names() == ["one.example.com", "two.example.com"]
        return
    with pytest.raises(Conflict, match="was created by another client: choose another name"):
        await world.keeper().settle()
    assert world.stored.found[FIRST] == old


async def test_a_configuration_that_cannot_be_written_does_not_delay_the_other(
    world: World,
) -> None:
    foreign = {"metadata": {"name": NAME}, "webhooks": [{"clientConfig": {"url": "https://a"}}]}
    world.stored.found[FIRST] = foreign
    running = asyncio.create_task(world.keeper().run())
    async with asyncio.timeout(20):
        while len(world.reported) < 3:  # noqa: ASYNC110  (only the reports show it)
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    assert world.stored.found[FIRST] == foreign
    assert world.names(SECOND) == ["three.example.com"]
    said = world.reported["admission one.example.com"]
    assert said.startswith("cannot write the webhook configurations of hooks: ")
    assert "was created by another client: choose another name" in said
    assert world.reported["admission two.example.com"] == said
    assert not world.reported["admission three.example.com"]


async def test_a_webhook_that_the_api_server_refuses_is_left_out_and_reported(
    world: World,
) -> None:
    world.stored.refused = "one.example.com"
    await world.keeper().settle()
    assert world.names() == ["two.example.com"]
    assert world.reported == {
        "admission one.example.com": "one.example.com: the API server refuses it:"
        " webhooks[0].matchConditions[0]: no",
        "admission two.example.com": "",
        "admission three.example.com": "",
    }


async def test_without_a_certificate_nothing_is_written(world: World) -> None:
    world.bundle = b""
    with pytest.raises(NotInstalled, match="no certificate yet"):
        await world.keeper().settle()
    assert world.stored.found == {}
