"""Behaviour of the Kubernetes adapter that only a real API server can confirm."""

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import orjson
import pytest

from devcluster.cluster import Cluster, ControlPlane
from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Kind
from reconciler.api.rights import Right
from reconciler.clock import SystemClock
from reconciler.engine.loads import ApiLoad
from reconciler.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Unauthorized
from reconciler.installation import REPLACING
from reconciler.kube.access import OwnAccess, UserAccess
from reconciler.kube.client import Client, connect
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.events import KubeEvents
from reconciler.kube.lease import Election, Timing, new_identity
from reconciler.kube.loader import KubeLoader
from reconciler.kube.reader import KubeReader
from reconciler.kube.secrets import NamedSecrets
from reconciler.kube.watch import Watch
from reconciler.kube.webhooks import WebhookConfigurations
from reconciler.kube.writer import KubeWriter
from reconciler.services.ports.reporting import Event
from reconciler.services.ports.webhooks import MUTATING, VALIDATING, ConfigurationRef

CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
SECRETS = Kind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)
EVENTS = Kind(group="events.k8s.io", version="v1", kind="Event", plural="events", namespaced=True)
LEASES = Kind(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True
)
QUICK = Timing(duration=3.0, renew=2.0, retry=0.3)


@pytest.fixture
async def place(client: Client, installed_cluster: Cluster) -> AsyncIterator[str]:
    """The name of a namespace for this test only."""
    name = f"kube-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.request("POST", "/api/v1/namespaces", body=orjson.dumps(body))
    yield name
    if not isinstance(installed_cluster, ControlPlane):
        await client.request("DELETE", f"/api/v1/namespaces/{name}")


async def create(client, kind, place, name, **content):
    meta = {"name": name, **content.pop("metadata", {})}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **content}
    group = f"/apis/{kind.group}" if kind.group else "/api"
    path = f"{group}/{kind.version}/namespaces/{place}/{kind.plural}"
    return await client.json("POST", path, body=orjson.dumps(body))


async def test_waiting_for_the_api_server_ends_when_it_answers(client):
    await client.wait_until_served(print, limit=30)


async def test_a_wrong_token_is_reported_at_once(installed_cluster, tmp_path):
    file = tmp_path / "kubeconfig"
    view = installed_cluster.kubectl("config", "view", "--raw", "--flatten", "-o", "json")
    config = orjson.loads(view)
    for user in config["users"]:
        user["user"] = {"token": "wrong"}
    file.write_bytes(orjson.dumps(config))
    client = await connect(str(file))
    with pytest.raises(Unauthorized):
        await client.wait_until_served(print)
    await client.close()


async def test_a_misspelled_field_is_refused_and_no_secret_is_reported(client, place):
    before = await create(client, SECRETS, place, "a", data={"password": "aHVudGVyMg=="})
    after = before | {"dota": {"x": "1"}}
    with pytest.raises(Invalid, match='unknown field "dota"') as caught:
        await KubeWriter(client, SystemClock()).change(SECRETS, before, after)
    assert "aHVudGVyMg" not in str(caught.value)


async def test_a_dry_run_is_validated_and_not_stored(client, place):
    writer = KubeWriter(client, SystemClock(), dry_run=True)
    before = await create(client, CONFIG_MAPS, place, "a", data={"x": "1"})
    tried = await writer.change(CONFIG_MAPS, before, {**before, "data": {"x": "2"}})
    assert tried["data"] == {"x": "2"}
    assert await KubeReader(client).get(CONFIG_MAPS, place, "a") == before
    fixed = await create(client, CONFIG_MAPS, place, "b", data={"x": "1"}, immutable=True)
    with pytest.raises(Invalid, match="immutable"):
        await writer.change(CONFIG_MAPS, fixed, {**fixed, "data": {"x": "2"}})


async def test_a_context_entry_posts_only_access_reviews(client, place):
    loader = KubeLoader(client, (), kinds=KubeKinds(client, SystemClock()))
    body = {"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await loader.load(ApiLoad(method="POST", path=path, body=json.dumps(body)))
    assert answer["status"]["allowed"]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "posted"}}
    path = f"/api/v1/namespaces/{place}/configmaps"
    with pytest.raises(Invalid, match="only for access reviews"):
        await loader.load(ApiLoad(method="POST", path=path, body=json.dumps(body)))
    with pytest.raises(NotFound):
        await KubeReader(client).get(CONFIG_MAPS, place, "posted")


async def test_a_client_impersonates_another_user(installed_cluster, place):
    user = f"system:serviceaccount:{place}:nobody"
    client = await connect(str(installed_cluster.kubeconfig), user=user)
    with pytest.raises(Forbidden, match=f'User "{user}" cannot list resource "configmaps"'):
        await KubeReader(client).list_page(CONFIG_MAPS, namespace=place)
    await client.close()


async def test_a_watch_yields_additions_changes_and_deletions(client, place):
    await create(client, CONFIG_MAPS, place, "x")
    watch = Watch(client, CONFIG_MAPS, SystemClock(), namespace=place, labels="!hidden")
    seen = []
    async with asyncio.timeout(30), contextlib.aclosing(watch.events()) as events:
        async for kind, obj in events:
            name = obj["metadata"]["name"]
            if name == "kube-root-ca.crt":
                continue
            seen.append((kind, name))
            path = f"/api/v1/namespaces/{place}/configmaps/{name}"
            if seen[-1] == ("ADDED", "x"):
                await create(client, CONFIG_MAPS, place, "y")
            elif seen[-1] == ("ADDED", "y"):
                patch = b'{"data":{"a":"b"}}'
                kind_of_patch = "application/merge-patch+json"
                await client.request("PATCH", path, body=patch, content_type=kind_of_patch)
            elif kind == "MODIFIED":
                await client.request("DELETE", path)
            else:
                break
    assert seen == [("ADDED", "x"), ("ADDED", "y"), ("MODIFIED", "y"), ("DELETED", "y")]
    assert watch.synced.is_set()


async def test_a_watch_of_metadata_carries_no_content(client, place):
    await create(client, SECRETS, place, "a", data={"x": "eQ=="}, metadata={"labels": {"l": "1"}})
    watch = Watch(client, SECRETS, SystemClock(), namespace=place, metadata_only=True)
    async with asyncio.timeout(30), contextlib.aclosing(watch.events()) as events:
        async for _, obj in events:
            assert (obj["apiVersion"], obj["kind"]) == ("v1", "Secret")
            assert "data" not in obj
            assert obj["metadata"]["labels"] == {"l": "1"}
            if watch.synced.is_set():
                break
            await create(client, SECRETS, place, uuid.uuid4().hex, metadata={"labels": {"l": "1"}})


async def test_events_are_stored_with_their_series(client, place):
    events = KubeEvents(client, SystemClock(), instance="test")
    target = await create(client, CONFIG_MAPS, place, "x")
    regarding = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": place,
        "name": "x",
        "uid": target["metadata"]["uid"],
    }
    for _ in range(3):
        events.emit(
            Event(
                regarding=regarding, severity="Warning", reason="Denied", action="Patch", note="no"
            )
        )
    await events.flush()
    page = await KubeReader(client).list_page(EVENTS, namespace=place)
    (stored,) = page.items
    assert stored["regarding"] == regarding
    assert stored["series"]["count"] == 3
    assert (stored["type"], stored["reason"], stored["note"]) == ("Warning", "Denied", "no")


@pytest.mark.parametrize("kind", [VALIDATING, MUTATING])
async def test_webhook_configurations_are_created_replaced_and_deleted_by_name(client, kind):
    webhooks = WebhookConfigurations(client, REPLACING.owner)
    ref = ConfigurationRef(kind, f"test-{uuid.uuid4().hex[:8]}.example")
    assert await webhooks.get(ref) is None
    wanted = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": ref.name},
        "webhooks": [],
    }
    stored = await webhooks.create(wanted)
    with pytest.raises(AlreadyExists):
        await webhooks.create(wanted)
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert (await webhooks.replace(labelled))["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(Conflict):
        await webhooks.replace(stored)
    await webhooks.delete(ref)
    await webhooks.delete(ref)
    assert await webhooks.get(ref) is None


async def test_only_the_first_writer_fills_a_named_secret(client, place):
    secrets = NamedSecrets(client, place)
    assert await secrets.get("ca") is None
    await secrets.restore("ca")
    empty = await secrets.get("ca")
    assert empty.data == {}
    stored = await secrets.fill(replace(empty, data={"k": b"\x00one"}))
    with pytest.raises(Conflict):
        await secrets.fill(replace(empty, data={"k": b"two"}))
    assert await secrets.get("ca") == stored
    assert stored.data == {"k": b"\x00one"}
    assert "one" not in repr(stored)
    # Restoring the Secret again does not remove its data.
    await secrets.restore("ca")
    assert (await secrets.get("ca")).data == {"k": b"\x00one"}
    with pytest.raises(NotFound):
        await secrets.fill(replace(stored, name="other"))


async def test_a_restored_secret_takes_no_field_from_its_installer(client, place, control_plane):
    """Helm labels its objects, and fails if another field manager owns the label."""
    secrets = NamedSecrets(client, place)

    def install(owner: str) -> None:
        text = json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "ca", "labels": {"app.kubernetes.io/managed-by": owner}},
            }
        )
        control_plane.kubectl("apply", "--server-side", "-n", place, "-f", "-", stdin=text)

    await asyncio.to_thread(install, "Helm")
    await secrets.fill(replace(await secrets.get("ca"), data={"k": b"one"}))
    await secrets.restore("ca")
    await asyncio.to_thread(install, "another")
    assert (await secrets.get("ca")).data == {"k": b"one"}


async def test_access_reviews_distinguish_granted_and_missing_rights(client, place):
    for name in ("rich", "poor"):
        account = Kind(
            group="",
            version="v1",
            kind="ServiceAccount",
            plural="serviceaccounts",
            namespaced=True,
        )
        await create(client, account, place, name)
    rbac = "rbac.authorization.k8s.io"
    roles = Kind(group=rbac, version="v1", kind="Role", plural="roles", namespaced=True)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    await create(client, roles, place, "reader", rules=[rule])
    bindings = Kind(
        group=rbac, version="v1", kind="RoleBinding", plural="rolebindings", namespaced=True
    )
    await create(
        client,
        bindings,
        place,
        "reader",
        roleRef={"apiGroup": rbac, "kind": "Role", "name": "reader"},
        subjects=[{"kind": "ServiceAccount", "name": "rich", "namespace": place}],
    )
    rich = UserAccess.of_account(client, ServiceAccount(namespace=place, name="rich"))
    poor = UserAccess.of_account(client, ServiceAccount(namespace=place, name="poor"))
    here = Right.of("get", CONFIG_MAPS, namespace=place)
    async with asyncio.timeout(20):
        # The authorizer's cache sees the binding a moment later.
        while not await rich.may(here):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert not await rich.may(Right.of("get", CONFIG_MAPS))
    assert not await rich.may(Right.of("patch", CONFIG_MAPS, namespace=place))
    assert not await poor.may(here)
    # The tests run as an administrator with all rights.
    assert await OwnAccess(client).may(Right.of("patch", CONFIG_MAPS))


class Candidate:
    """An elector with queues of its signals and of the holders that it reports."""

    def __init__(self, client, place, pod=""):
        self.signals = asyncio.Queue()
        self.holders = asyncio.Queue()
        self.election = Election(
            client,
            SystemClock(),
            namespace=place,
            identity=new_identity(pod),
            timing=QUICK,
            pod=pod,
            warn=lambda _: None,
        )
        self.election.started.subscribe(lambda: self.signals.put_nowait("started"))
        self.election.lost.subscribe(lambda: self.signals.put_nowait("lost"))
        self.election.held_by.subscribe(self.holders.put_nowait)
        self.task = asyncio.create_task(self.election.run())

    async def end(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def candidates(client: Client, place: str) -> AsyncIterator[Callable[[], Candidate]]:
    started = []

    def start(pod=""):
        started.append(Candidate(client, place, pod))
        return started[-1]

    yield start
    for candidate in started:
        await candidate.end()


async def signalled(candidate, word):
    async with asyncio.timeout(20):
        assert await candidate.signals.get() == word


async def test_a_released_lease_is_taken_over_at_once(client, place, candidates):
    first = candidates()
    await signalled(first, "started")
    assert first.election.leading
    second = candidates()
    async with asyncio.timeout(20):
        assert await second.holders.get()
    assert not second.election.leading
    began = time.monotonic()
    await first.end()
    await signalled(second, "started")
    assert time.monotonic() - began < QUICK.duration / 2
    assert first.signals.empty()
    assert not first.election.leading
    assert not second.election.abandoned
    lease = await KubeReader(client).get(LEASES, place, "kube-retrofit-controller")
    assert lease["spec"]["leaseTransitions"] == 1


async def test_a_holder_that_does_not_renew_is_replaced_after_the_lease_duration(
    client, place, candidates
):
    spec = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": 2,
        # A holder's clock that is far ahead must not matter.
        "renewTime": "2036-01-01T00:00:00.000000Z",
        "leaseTransitions": 6,
    }
    await create(client, LEASES, place, "kube-retrofit-controller", spec=spec)
    began = time.monotonic()
    candidate = candidates()
    await signalled(candidate, "started")
    assert time.monotonic() - began >= 2
    assert candidate.election.abandoned
    lease = await KubeReader(client).get(LEASES, place, "kube-retrofit-controller")
    assert lease["spec"]["leaseTransitions"] == 7


async def test_a_restarted_container_takes_over_the_lease_of_its_pod_at_once(
    client, place, candidates
):
    pod, other = "pod-1", "pod-2"
    spec = {
        "holderIdentity": new_identity(pod),
        # Longer than any candidate of this test waits.
        "leaseDurationSeconds": 3600,
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 6,
    }
    await create(client, LEASES, place, "kube-retrofit-controller", spec=spec)
    for elsewhere in (candidates(other), candidates()):
        async with asyncio.timeout(20):
            assert await elsewhere.holders.get() == spec["holderIdentity"]
    restarted = candidates(pod)
    await signalled(restarted, "started")
    assert restarted.election.abandoned
    lease = await KubeReader(client).get(LEASES, place, "kube-retrofit-controller")
    assert lease["spec"]["holderIdentity"] == restarted.election.identity
    assert lease["spec"]["leaseTransitions"] == 7


async def test_a_lease_taken_by_force_is_lost(client, place, candidates):
    candidate = candidates()
    await signalled(candidate, "started")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{place}/leases/kube-retrofit-controller"
    patch = orjson.dumps({"spec": {"holderIdentity": "thief"}})
    await client.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
    await signalled(candidate, "lost")
    assert candidate.election.holder == "thief"
