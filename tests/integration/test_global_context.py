"""GlobalContextEntries: both programs keep their data, rules read it, requests wait for it."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.errors import ClusterError, Denied, Invalid, NotFound
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

ENTRY = "GlobalContextEntry"
WAITS = "EntryNotReady"
ADMISSION_USER = f"system:serviceaccount:{NAMESPACE}:kyverno-admission-controller"


class Entries:
    """Creates GlobalContextEntries named after the test's namespace, and reads their status."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.names: set[str] = set()

    async def create(self, suffix: str = "", version: str = "v2alpha1", **spec: Any) -> str:
        name = f"{self.rig.namespace}{suffix}"
        self.names.add(name)
        await self.rig.learn(f"kyverno.io/{version}", ENTRY)
        await self.rig.create(
            {
                "apiVersion": f"kyverno.io/{version}",
                "kind": ENTRY,
                "metadata": {"name": name},
                "spec": spec,
            }
        )
        return name

    async def condition(self, name: str) -> Object:
        entry = await self.rig.get(ENTRY, name, "")
        found: list[Object] = (entry.get("status") or {}).get("conditions") or [{}]
        (condition,) = found
        return condition

    async def ready(self, name: str, within: float = 15.0) -> Object:
        async def missing() -> Any:
            found = await self.condition(name)
            return None if found.get("status") == "True" else found or "no condition"

        await self.rig.settle(missing, within)
        return await self.rig.get(ENTRY, name, "")

    async def not_ready(self, name: str, text: str, within: float = 15.0) -> None:
        async def missing() -> Any:
            found = await self.condition(name)
            fits = found.get("status") == "False" and text in found["message"]
            return None if fits else found or "no condition"

        await self.rig.settle(missing, within)

    async def described(self, name: str, *wanted: str) -> None:
        """Wait until ``kubectl describe`` shows every text among the events."""

        async def missing() -> str:
            text = await asyncio.to_thread(self.rig.cluster.kubectl, "describe", "gctxentry", name)
            events = text.partition("Events:")[2]
            return "" if all(item in events for item in wanted) else events or "no events"

        await self.rig.settle(missing, within=20)


@pytest.fixture
async def entries(rig: Rig) -> AsyncIterator[Entries]:
    """Entries that are deleted after the test."""
    found = Entries(rig)
    yield found
    for name in found.names:
        with contextlib.suppress(NotFound):
            await rig.delete(ENTRY, name, "")


def reading(rig: Rig, reference: str, value: str, path: str = "") -> Object:
    """Return a rule that writes a value of an entry into ``target``."""
    fields = {"name": reference} | ({"jmesPath": path} if path else {})
    return rule(
        rig.namespace,
        [target(rig.namespace, "target")],
        {"data": {"{{ request.object.metadata.name }}": value}},
        context=[{"name": "known", "globalReference": fields}],
    )


async def reads(rig: Rig, value: str, within: float = 10.0) -> None:
    """Create triggers until a rule reads a value, because an entry is updated with a delay."""
    count = 0

    async def missing() -> Any:
        nonlocal count
        count += 1
        await rig.create(config_map(rig.namespace, f"trigger-again-{count}"))
        await rig.finish()
        found = await rig.data("target")
        return None if found.get(f"trigger-again-{count}") == value else found

    await rig.settle(missing, within)


def config_maps(rig: Rig) -> Object:
    return {"version": "v1", "resource": "configmaps", "namespace": rig.namespace}


async def test_a_rule_reads_watched_objects_and_their_later_changes(
    rig: Rig, entries: Entries
) -> None:
    place = rig.namespace
    await rig.create_all([config_map(place, "target"), config_map(place, "team-b")])
    name = await entries.create(kubernetesResource=config_maps(rig))
    stored = await entries.ready(name)
    assert stored["status"]["lastRefreshTime"]
    path = "[?starts_with(metadata.name, 'team-')].metadata.name"
    await rig.apply(reading(rig, name, "{{ join(',', known) }}", path))
    await rig.create(config_map(place, "trigger-1"))
    await rig.applied({"target": {"trigger-1": "team-b"}}, within=15)

    await rig.create(config_map(place, "team-a"))
    await rig.delete("ConfigMap", "team-b")
    await reads(rig, "team-a")
    # The entry is watched, so it is listed once and not for each trigger. The other list is that
    # of catch-up, for triggers from before the policy was in force.
    assert await rig.calls("list", "configmaps") <= 2


async def test_a_projection_is_read_by_its_name(rig: Rig, entries: Entries) -> None:
    await rig.create(config_map(rig.namespace, "target"))
    name = await entries.create(
        version="v2beta1",
        apiCall={"urlPath": f"/api/v1/namespaces/{rig.namespace}", "refreshInterval": "1h"},
        projections=[{"name": "phase", "jmesPath": "status.phase"}],
    )
    await rig.apply(reading(rig, f"{name}.phase", "{{ known }}"))
    await rig.create(config_map(rig.namespace, "trigger-1"))
    await rig.applied({"target": {"trigger-1": "Active"}}, within=15)


async def test_a_request_waits_for_a_missing_entry_and_runs_once_it_exists(
    rig: Rig, entries: Entries
) -> None:
    await rig.create(config_map(rig.namespace, "target"))
    name = rig.namespace
    await rig.apply(reading(rig, name, "{{ to_string(length(known)) }}"))
    await rig.create(config_map(rig.namespace, "trigger-1"))
    parked = await rig.parked(WAITS)
    assert parked.status.message == f"there is no GlobalContextEntry {name}: create it"

    async def missing() -> str:
        (request,) = await rig.requests()
        return "" if request.status.attempts >= 4 else "its pauses are short"

    # The next attempt is seconds away by then: the request ends sooner only if it is woken.
    await rig.settle(missing, within=20)
    await entries.create(kubernetesResource={"version": "v1", "resource": "namespaces"})
    await rig.finish(within=6)
    assert (await rig.states()) == {"Completed": 1}

    await rig.delete(ENTRY, name, "")
    count = 0

    async def readable() -> str:
        nonlocal count
        count += 1
        await rig.create(config_map(rig.namespace, f"trigger-{count}-gone"))
        waiting = [text for text in await rig.waiting() if WAITS in text]
        return "" if waiting else "no request waits for the deleted entry"

    await rig.settle(readable, within=10)


async def test_a_missing_right_of_an_entry_is_reported_until_it_is_granted(
    rig: Rig, entries: Entries
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    wanted = {"version": "v1", "resource": "secrets", "namespace": place}
    name = await entries.create(kubernetesResource=wanted)
    await entries.not_ready(name, 'cannot list resource "secrets"')
    await rig.apply(reading(rig, name, "{{ to_string(length(known)) }}"))
    await rig.create(config_map(place, "trigger-1"))
    parked = await rig.parked(WAITS)
    assert 'cannot list resource "secrets"' in parked.status.message
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": place,
            "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
        },
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}],
    }
    await rig.create(role)
    try:
        await entries.ready(name, within=60)
        await rig.finish(within=15)
        assert (await rig.data("target")) == {"trigger-1": "0"}
        await entries.described(name, "Warning", "EntryNotReady", "cannot list", "EntryReady")
    finally:
        await rig.delete("ClusterRole", place, "")


async def test_an_entry_finds_a_kind_that_is_served_later(rig: Rig, entries: Entries) -> None:
    group = f"{rig.namespace}.example"
    wanted = {"group": group, "version": "v1", "resource": "gadgets"}
    name = await entries.create(kubernetesResource=wanted)
    await entries.not_ready(name, f"does not serve gadgets of {group}/v1")
    schema = {"openAPIV3Schema": {"type": "object"}}
    await rig.learn("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    await rig.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"gadgets.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": "Gadget", "plural": "gadgets"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }
    )
    try:
        # The kind is served now, and the right to list it is missing.
        await entries.not_ready(name, "cannot list resource", within=40)
    finally:
        await rig.delete("CustomResourceDefinition", f"gadgets.{group}", "")


async def test_a_changed_spec_of_an_entry_applies_at_once(rig: Rig, entries: Entries) -> None:
    await rig.create(config_map(rig.namespace, "target"))
    name = await entries.create(kubernetesResource=config_maps(rig))
    await rig.apply(reading(rig, name, "{{ known[0].kind }}"))
    await rig.create(config_map(rig.namespace, "trigger-1"))
    await rig.applied({"target": {"trigger-1": "ConfigMap"}}, within=15)
    spec = {"kubernetesResource": {"resource": "serviceaccounts"}}
    await rig.merge(ENTRY, name, {"spec": spec}, namespace="")
    await reads(rig, "ServiceAccount")


async def test_a_restarted_controller_completes_requests_that_read_entries(
    rig: Rig, entries: Entries
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    name = await entries.create(kubernetesResource=config_maps(rig))
    await rig.apply(
        reading(rig, name, "{{ to_string(length(known) > `0`) }}"),
        {**reading(rig, f"{name}-late", "{{ to_string(length(known) > `0`) }}"), "name": "late"},
    )
    await entries.ready(name)
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.create(config_map(place, "trigger-1"))
    await entries.create("-late", kubernetesResource=config_maps(rig))
    await rig.restart(CONTROLLER)
    await rig.finish(count=2, within=30)
    assert await rig.states() == {"Completed": 2}


async def test_an_invalid_entry_is_refused_with_its_path(rig: Rig, entries: Entries) -> None:
    with pytest.raises(ClusterError, match=r"spec\.projections\[0\]\.jmesPath"):
        await entries.create(
            kubernetesResource=config_maps(rig),
            projections=[{"name": "broken", "jmesPath": "items[?"}],
        )
    with pytest.raises(ClusterError, match="exactly one of kubernetesResource and apiCall"):
        await entries.create(projections=[])


async def test_a_namespaced_policy_that_reads_an_entry_is_refused(
    rig: Rig, entries: Entries
) -> None:
    made = reading(rig, rig.namespace, "{{ to_string(length(known)) }}")
    del made["match"]["any"][0]["resources"]["namespaces"]
    with pytest.raises(ClusterError, match="a Policy may not read a GlobalContextEntry"):
        await rig.apply(made, kind="Policy")


def changing(rig: Rig, reference: str, value: str) -> Object:
    """Return a rule that writes a value of an entry into the object that is being stored."""
    made = reading(rig, reference, value)
    del made["mutate"]["targets"]
    return made


async def test_an_entry_is_read_at_admission_without_an_api_call_per_request(
    rig: Rig, entries: Entries
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "team-a"))
    projection = {"name": "teams", "jmesPath": "[?starts_with(metadata.name, 'team-')]"}
    name = await entries.create(kubernetesResource=config_maps(rig), projections=[{**projection}])
    await rig.apply(changing(rig, f"{name}.teams", "{{ join(',', known[].metadata.name) }}"))
    stored = await rig.create(config_map(place, "trigger-1"))
    assert stored["data"] == {"trigger-1": "team-a"}
    listed = await rig.calls("list", "configmaps", by=ADMISSION_USER)

    await rig.create(config_map(place, "team-b"))

    names = iter(range(1_000))

    async def unseen() -> Any:
        trigger = f"trigger-again-{next(names)}"
        found = (await rig.create(config_map(place, trigger)))["data"]
        return None if found == {trigger: "team-a,team-b"} else found

    await rig.settle(unseen, within=10)
    assert await rig.calls("list", "configmaps", by=ADMISSION_USER) == listed <= 1


async def test_an_unreadable_entry_refuses_under_fail_and_warns_under_ignore(
    rig: Rig, entries: Entries
) -> None:
    place = rig.namespace
    made = changing(rig, place, "{{ to_string(length(known)) }}")
    await rig.apply(made)
    cause = f"spec.rules[0]: there is no GlobalContextEntry {place}: create it"
    with pytest.raises((Denied, Invalid)) as refused:
        await rig.create(config_map(place, "trigger-1"))
    assert cause in str(refused.value)
    await rig.apply(made, failurePolicy="Ignore")
    body = json.dumps(config_map(place, "trigger-2"))
    command = ("create", "--warnings-as-errors", "-f", "-", "-n", place)
    with pytest.raises(ClusterError, match="not changed, because policy") as warned:
        await asyncio.to_thread(rig.cluster.kubectl, *command, stdin=body)
    assert "there is no GlobalContextEntry" in str(warned.value)
    assert await rig.data("trigger-2") == {}

    await rig.apply(made)
    wanted = {"version": "v1", "resource": "secrets", "namespace": place}
    await entries.create(kubernetesResource=wanted)
    await entries.not_ready(place, "cannot list resource")
    with pytest.raises((Denied, Invalid), match="kyverno-admission-controller"):
        await rig.create(config_map(place, "trigger-3"))
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": place,
            "labels": {"rbac.kyverno.io/aggregate-to-admission-controller": "true"},
        },
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}],
    }
    await rig.create(role)
    try:

        async def refusal() -> str:
            try:
                stored = await rig.create(config_map(place, "trigger-4"))
            except (Denied, Invalid) as error:
                return str(error)
            assert stored["data"] == {"trigger-4": "0"}
            return ""

        await rig.settle(refusal, within=30)
    finally:
        await rig.delete("ClusterRole", place, "")


@dataclass
class Service:
    """An HTTP service on this machine."""

    address: str = ""
    answer: Any = None
    status: int = 200
    calls: int = 0
    seen: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.calls += 1
        self.seen.append(dict(request.headers))
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    found = Service()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@pytest.fixture
async def open_hosts(rig: Rig) -> AsyncIterator[Callable[[], None]]:
    """Replace the controller by one that is allowed to call services on this machine."""
    assert rig.programs.supervision.exit_code(ADMISSION) is None
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.controller("--service-hosts=127.0.0.1", name="open-hosts")
    yield rig.ensure
    await asyncio.to_thread(rig.ensure)


@pytest.mark.usefixtures("open_hosts")
async def test_a_service_entry_is_refreshed_and_recovers_from_errors(
    rig: Rig, entries: Entries, service: Service
) -> None:
    await rig.create(config_map(rig.namespace, "target"))
    service.answer = {"teams": ["red"]}
    name = await entries.create(
        apiCall={"service": {"url": service.address}, "refreshInterval": "1s"},
        projections=[{"name": "first", "jmesPath": "teams[0]"}],
    )
    await entries.ready(name)
    await rig.apply(reading(rig, f"{name}.first", "{{ known }}"))
    await rig.create(config_map(rig.namespace, "trigger-1"))
    await rig.applied({"target": {"trigger-1": "red"}}, within=15)
    assert not any("Authorization" in headers for headers in service.seen)

    service.status = 500
    await entries.not_ready(name, "service 127.0.0.1: HTTP 500")
    await rig.create(config_map(rig.namespace, "trigger-2"))
    parked = await rig.parked(WAITS)
    assert "HTTP 500" in parked.status.message
    assert "trigger-2" not in await rig.data("target")

    service.status, service.answer = 200, {"teams": ["blue"]}
    await rig.applied({"target": {"trigger-2": "blue"}}, within=20)
    await rig.finish(count=2)
    assert await rig.requests(state=State.FAILED) == []
