"""A Kyverno in the same cluster: a live one, and one that left objects behind."""

import asyncio
import json
import re
import shlex
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from devcluster.install import NAMESPACE, ProgramSettings, install
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from devcluster.waiting import wait_until
from reconciler.api.meta import Object
from reconciler.api.updaterequest import State, render_time
from reconciler.cli.manifests import find_manifests
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError
from tests.architecture.conftest import ROOT
from tests.documents import command_blocks
from tests.faults.rig import SHORT_LEASE, Rig, config_map, open_rig, rule, target
from tests.usedrights import audited

pytestmark = pytest.mark.cluster

LEASE = "kyverno-background-controller"
WEBHOOK = "ValidatingWebhookConfiguration"
RESOURCE = "kube-retrofit-resource"
GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


def definition(plural: str, kind: str, *versions: str, stored: str, scope: str) -> Object:
    """Return a CRD like one of an older Kyverno, with another schema and other served versions."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kyverno.io", "labels": {"helm.sh/chart": "crds-3.0"}},
        "spec": {
            "group": "kyverno.io",
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == stored,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in versions
            ],
        },
    }


OLDER = (
    definition("clusterpolicies", "ClusterPolicy", "v1", "v2beta1", stored="v1", scope="Cluster"),
    definition("policies", "Policy", "v1", "v2beta1", stored="v2beta1", scope="Namespaced"),
    definition(
        "policyexceptions",
        "PolicyException",
        *("v2alpha1", "v2beta1", "v2"),
        stored="v2alpha1",
        scope="Namespaced",
    ),
    definition(
        "updaterequests", "UpdateRequest", "v1beta1", "v2", stored="v1beta1", scope="Namespaced"
    ),
)


def left_request(namespace: str, trigger: Object, name: str, version: str = "v2") -> Object:
    """Return a request as a Kyverno stores it, with the whole admission request of the user."""
    meta = trigger["metadata"]
    user = {"username": "jane", "groups": ["system:authenticated"]}
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    return {
        "apiVersion": f"kyverno.io/{version}",
        "kind": "UpdateRequest",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"mutate.updaterequest.kyverno.io/policy-name": namespace},
        },
        "spec": {
            "requestType": "mutate",
            "policy": namespace,
            "rule": "rule",
            "deleteDownstream": False,
            "synchronize": False,
            "resource": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "namespace": meta.get("namespace", ""),
                "name": meta["name"],
                "uid": meta.get("uid", ""),
            },
            "context": {
                "userInfo": {"userInfo": user, "synchronize": False},
                "admissionRequestInfo": {
                    "operation": "CREATE",
                    "admissionRequest": {
                        "uid": "4b7c",
                        "kind": kind,
                        "resource": resource,
                        "requestKind": kind,
                        "requestResource": resource,
                        "name": meta["name"],
                        "namespace": meta.get("namespace", ""),
                        "operation": "CREATE",
                        "userInfo": user,
                        "object": trigger,
                        "oldObject": None,
                        "dryRun": False,
                        "options": {"kind": "CreateOptions"},
                    },
                },
            },
        },
        "status": {"state": "Pending"},
    }


@pytest.fixture(scope="module")
def plane(binaries: Binaries | Path) -> Iterator[ControlPlane]:
    """An empty control plane, in which `upgraded` creates the objects of an older Kyverno."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which may have its own CRDs")
    with audited(binaries) as control_plane:
        yield control_plane


def apply(plane: ControlPlane, *documents: Object, how: str = "create") -> None:
    plane.kubectl(how, "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))


def read(plane: ControlPlane, *what: str) -> Object:
    found: Object = json.loads(plane.kubectl("get", *what, "-o", "json"))
    return found


@pytest.fixture(scope="module")
def upgraded(plane: ControlPlane) -> ControlPlane:
    """The control plane with the project's CRDs applied over the older ones, as documented."""
    apply(plane, *OLDER)
    names = [f"crd/{item['metadata']['name']}" for item in OLDER]
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    plane.kubectl("create", "namespace", NAMESPACE)
    trigger = config_map("default", "before", colour="red")
    match = {"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["none"]}}]}
    check = {"name": "check", "match": match, "validate": {"message": "no", "deny": {}}}
    apply(
        plane,
        {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "kept"},
            "spec": {"validationFailureAction": "Audit", "rules": [check]},
        },
        {
            "apiVersion": "kyverno.io/v2beta1",
            "kind": "Policy",
            "metadata": {"name": "kept", "namespace": "default"},
            "spec": {"rules": [check]},
        },
        {
            "apiVersion": "kyverno.io/v2alpha1",
            "kind": "PolicyException",
            "metadata": {"name": "kept", "namespace": "default"},
            "spec": {
                "exceptions": [{"policyName": "kept", "ruleNames": ["check"]}],
                "match": match,
            },
        },
        left_request("kept", trigger, "ur-older", version="v1beta1"),
        left_request("kept", trigger, "ur-newer"),
    )
    folder = str(find_manifests() / "crds")
    pending = ("--subresource=status", "--type=merge", "-p", '{"status": {"state": "Pending"}}')
    plane.kubectl("patch", "updaterequest", "ur-newer", "-n", NAMESPACE, *pending)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)
    # Only the project's CRD has these fields as selectable fields.
    wait_until(lambda: len(waiting(plane)) == 2, within=20, what="our CRDs are in force")
    return plane


def waiting(plane: ControlPlane) -> list[str]:
    """Return the requests of policy ``kept`` that are not completed, none if the query fails."""
    selected = ("--field-selector", "status.state!=Completed,spec.policy=kept", "-o", "name")
    try:
        return plane.kubectl("get", "updaterequest", "-n", NAMESPACE, *selected).split()
    except ClusterError:
        return []


def test_objects_of_an_older_kyverno_stay_readable(upgraded: ControlPlane) -> None:
    cluster = read(upgraded, "clusterpolicies.v1.kyverno.io", "kept")
    assert cluster["spec"]["rules"][0]["validate"]["message"] == "no"
    namespaced = read(upgraded, "policies.v1.kyverno.io", "kept", "-n", "default")
    assert namespaced["spec"]["rules"][0]["name"] == "check"
    exception = read(upgraded, "policyexceptions.v2.kyverno.io", "kept", "-n", "default")
    assert exception["spec"]["exceptions"][0]["ruleNames"] == ["check"]
    request = {}
    for name in ("ur-older", "ur-newer"):
        request = read(upgraded, "updaterequests.v2.kyverno.io", name, "-n", NAMESPACE)
        carried = request["spec"]["context"]["admissionRequestInfo"]["admissionRequest"]
        assert carried["object"]["data"] == {"colour": "red"}
    assert request["status"]["state"] == "Pending"
    # The objects can be written too: the new schemas refuse nothing in them.
    for what in ("cpol/kept", "policyexception/kept", "ur/ur-older", "ur/ur-newer"):
        place = NAMESPACE if what.startswith("ur/") else "default"
        upgraded.kubectl("annotate", what, "-n", place, "looked=at")


def left_deployment(part: str) -> Object:
    """Return a Deployment as a Kyverno leaves it."""
    labels = {
        "app.kubernetes.io/component": part,
        "app.kubernetes.io/instance": "kyverno",
        "app.kubernetes.io/part-of": "kyverno",
    }
    containers = [{"name": "kyverno", "image": "registry.invalid/kyverno"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"kyverno-{part}", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


def test_the_steps_of_the_page_end_kyvernos_containers_and_keep_the_settings(
    upgraded: ControlPlane, binaries: Binaries, tmp_path: Path
) -> None:
    names = ("admission-controller", "background-controller")
    settings = config_map(NAMESPACE, "kyverno", resourceFilters="[Widget,*,*]")
    apply(upgraded, settings, *map(left_deployment, names))
    (tmp_path / "manifests").symlink_to(find_manifests() / "manifests")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {shlex.join(binaries.command("kubectl"))} "$@"\n')
    kubectl.chmod(0o755)
    page = ROOT / "docs/how-to/move-from-kyverno.md"
    copy = re.search(r"`(kubectl get [^`]+ > settings.yaml)`", page.read_text())
    assert copy is not None
    stop, start = (block.text for block in command_blocks(page))
    done = subprocess.run(
        ["bash", "-c", f"{stop}\n{copy[1]}\n{start}"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "KUBECONFIG": str(upgraded.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in names:
        spec = read(upgraded, "deployment", f"kyverno-{name}", "-n", NAMESPACE)["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] != "kyverno"
    stored = read(upgraded, "configmap", "kyverno", "-n", NAMESPACE)
    assert stored["data"]["resourceFilters"] == "[Widget,*,*]"


@pytest.fixture(scope="module")
def programs(upgraded: ControlPlane) -> Iterator[Programs]:
    """Both programs, in the cluster that had a Kyverno."""
    settings = install(upgraded, "demo")
    for name in ("ur-older", "ur-newer"):
        upgraded.kubectl("delete", "ur", name, "-n", NAMESPACE)
    shipped = settings[CONTROLLER]
    flags = (*shipped.flags, *SHORT_LEASE)
    settings[CONTROLLER] = ProgramSettings(flags=flags, env=shipped.env)
    with start_programs(upgraded, settings=settings) as running:
        yield running


@pytest.fixture
async def rig(programs: Programs) -> AsyncIterator[Rig]:
    """The running programs, with a namespace for this test only."""
    async with open_rig(programs.cluster, programs, f"beside-{uuid.uuid4().hex[:8]}") as rig:
        yield rig


def renewed() -> Object:
    """Return a Lease that a live Kyverno has just renewed."""
    spec = {
        "holderIdentity": "kyverno-background-controller-5f6-x",
        "leaseDurationSeconds": 12,
        "renewTime": render_time(SystemClock().now()),
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": NAMESPACE},
        "spec": spec,
    }


def probe(rig: Rig, program: str) -> tuple[int, str]:
    """Return the HTTP status and text of a program's readiness probe."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(rig.programs.health(program), timeout=5) as answer:
            return answer.status, str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, ""


async def reported(rig: Rig, program: str) -> Any:
    """Return "" if the probe reports a live Kyverno, and otherwise the probe's answer."""
    status, text = await asyncio.to_thread(probe, rig, program)
    return "" if status == 200 and "a live Kyverno is in this cluster" in text else text or status


async def settle_reported(rig: Rig, *, there: bool) -> None:
    async def missing() -> Any:
        words = [await reported(rig, name) for name in (ADMISSION, CONTROLLER)]
        return "" if all(bool(word) is not there for word in words) else words

    await rig.settle(missing, within=30.0)


async def webhooks(rig: Rig) -> list[Object]:
    found = await rig.find(WEBHOOK, RESOURCE, "")
    return list((found or {}).get("webhooks") or ())


async def test_both_programs_stand_by_and_leave_requests_alone_beside_a_live_kyverno(
    rig: Rig,
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    trigger = await rig.create(config_map(place, "elsewhere"))
    await rig.create(left_request(place, trigger, "ur-left-1"))
    await rig.create(renewed())
    try:
        await settle_reported(rig, there=True)

        async def registered() -> Any:
            return await webhooks(rig)

        await rig.settle(registered, within=5.0)
        await rig.create(config_map(place, "trigger-1"))
        events = await rig.items("Event", NAMESPACE)
        reported_events = [item for item in events if item["reason"] == "KyvernoIsLive"]
        # One event of each program.
        assert (
            len(reported_events)
            == len({item["reportingInstance"] for item in reported_events})
            == 2
        )
        for event in reported_events:
            assert event["involvedObject"]["name"] == LEASE
            assert "--take-over" in event["message"]
        for program in (ADMISSION, CONTROLLER):
            logged = [str(line) for line in rig.log(program)]
            assert any("a live Kyverno is in this cluster" in line for line in logged)
    finally:
        await rig.delete("Lease", LEASE, NAMESPACE)
    await settle_reported(rig, there=False)

    async def silent() -> str:
        return "" if await webhooks(rig) else "nothing is asked about"

    await rig.settle(silent, within=5.0)
    await rig.create(config_map(place, "trigger-2"))
    await rig.applied({"target": {"got": "trigger-2"}}, within=15.0)
    (left,) = [item for item in await rig.requests() if item.name == "ur-left-1"]
    assert left.status.state is State.PENDING
    assert (left.status.attempts, left.status.message) == (0, "")


async def test_the_admission_server_stands_by_without_a_controller(rig: Rig) -> None:
    """Without a controller the webhooks stay, but the admission server records nothing."""
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await rig.kill(CONTROLLER)
    try:
        await rig.create(renewed())

        async def silent() -> Any:
            return await reported(rig, ADMISSION)

        await rig.settle(silent, within=30.0)
        assert await webhooks(rig)
        await rig.create(config_map(place, "trigger-1"))
        assert await rig.requests() == []
    finally:
        await rig.delete("Lease", LEASE, NAMESPACE)
        await rig.restart(CONTROLLER)


async def test_a_controller_that_takes_over_processes_mutate_requests_of_kyverno(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT, names="left-*"))
    await rig.create(renewed())
    await settle_reported(rig, there=True)
    try:
        # The project's webhooks are empty, so only the Kyverno has a request for this trigger.
        trigger = await rig.create(config_map(place, "left-1"))
        await rig.create(left_request(place, trigger, "ur-left-2"))
        other = left_request(place, trigger, "ur-left-3")
        other["spec"]["requestType"] = "generate"
        await rig.create(other)
        await rig.kill(CONTROLLER)
        await rig.controller("--take-over", *SHORT_LEASE, name="taking-over")
        await rig.applied({"target": {"got": "left-1"}}, within=30.0)

        async def unfinished() -> Any:
            found = {item.name: item.status.state for item in await rig.requests()}
            return "" if found["ur-left-2"] is State.COMPLETED else found

        await rig.settle(unfinished, within=10.0)
        states = {item.name: item.status.state for item in await rig.requests()}
        assert states["ur-left-3"] is State.PENDING
        _, text = await asyncio.to_thread(probe, rig, "taking-over")
        assert "rules may be applied twice" in text
    finally:
        await rig.delete("Lease", LEASE, NAMESPACE)


async def test_a_recurring_live_kyverno_is_one_event_with_a_count(rig: Rig) -> None:
    for _ in range(2):
        await rig.create(renewed())
        await settle_reported(rig, there=True)
        await rig.delete("Lease", LEASE, NAMESPACE)
        await settle_reported(rig, there=False)

    async def uncounted() -> Any:
        events = await rig.items("Event", NAMESPACE)
        reported_events = [item for item in events if item["reason"] == "KyvernoIsLive"]
        counted = [
            item for item in reported_events if (item.get("series") or {}).get("count", 1) > 1
        ]
        programs = {item["reportingInstance"] for item in counted}
        return "" if len(programs) >= 2 else reported_events

    await rig.settle(uncounted, within=60.0)
