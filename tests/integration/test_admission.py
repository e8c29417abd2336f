"""The admission server as a process, called by a real API server.

No controller runs: the tests write the webhook configurations that the leader would write, and
check the UpdateRequests, which stay pending.
"""

import base64
import json
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson
import pytest
import yaml

from devcluster.binaries import Binaries
from devcluster.credentials import ADMIN
from devcluster.install import install
from devcluster.parts import free_ports
from devcluster.programs import ADMISSION, Programs
from devcluster.waiting import wait_until
from reconciler.api.requestwire import parse_request
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError
from reconciler.installation import REPLACING
from reconciler.kube.client import connect
from reconciler.kube.discovery import KubeKinds
from reconciler.requests.naming import digest
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.ports.webhooks import Endpoint
from reconciler.services.rollout.webhook_config import (
    WebhookConfig,
    configurations,
)
from reconciler.services.rollout.webhook_rules import lookup, selectors
from tests.usedrights import audited

OWN = "system:serviceaccount:kyverno:kyverno-background-controller"
HOST = "127.0.0.1"
REQUESTS = "/apis/kyverno.io/v2/namespaces/kyverno/updaterequests"

pytestmark = pytest.mark.cluster


def policy(name, namespace, resources, *, patch="yes", **rule):
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {
            **rule.pop("spec", {}),
            "rules": [
                {
                    "name": "copy",
                    "match": {"any": [{"resources": {"namespaces": [namespace], **resources}}]},
                    "mutate": {
                        "targets": [
                            {
                                "apiVersion": "v1",
                                "kind": "ConfigMap",
                                "name": "target",
                                "namespace": namespace,
                            }
                        ],
                        "patchStrategicMerge": {"metadata": {"annotations": {"x": patch}}},
                    },
                    **rule,
                }
            ],
        },
    }


class World:
    """A control plane with the admission server; it registers webhooks in the leader's place."""

    def __init__(self, plane, programs):
        self.plane, self.programs = plane, programs
        self.url = f"https://{HOST}:{programs.webhook_port}"
        self.bodies = {}
        self._trust = ssl.create_default_context(cafile=str(plane.credentials.ca))

    def kubectl(self, *args, **options):
        return self.plane.kubectl(*args, **options)

    def send(self, method, path, body=None):
        """Call the API server over HTTP; kubectl would start a process for each repeated call."""
        patch = method == "PATCH"
        headers = {
            "Authorization": f"Bearer {self.plane.credentials.token_of[ADMIN]}",
            "Content-Type": "application/merge-patch+json" if patch else "application/json",
        }
        request = urllib.request.Request(
            self.plane.server + path,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        with urllib.request.urlopen(request, context=self._trust, timeout=20) as answer:
            return json.load(answer)

    def get(self, *args):
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    @property
    def bundle(self):
        secret = self.get("secret", "kube-retrofit-ca", "-n", "kyverno")
        return base64.b64decode(secret["data"]["ca.crt"])

    def logged(self, text):
        return text in (self.programs.logs / f"{ADMISSION}.log").read_text()

    async def register(self):
        """Write the webhook configurations for all stored policies, as the leader would."""
        index = PolicyStore()
        for item in self.get("clusterpolicies")["items"] + self.get("policies", "-A")["items"]:
            index.apply(item)
        compiled = index.policies()
        client = await connect(str(self.plane.kubeconfig))
        try:
            kinds = KubeKinds(client, SystemClock())
            found = {item: await kinds.find(*lookup(item)) for item in selectors(compiled)}
        finally:
            await client.close()
        self.bodies = configurations(
            compiled,
            found,
            WebhookConfig(
                endpoint=Endpoint(url=self.url, ca_bundle=self.bundle),
                namespace="kyverno",
                controller_users=(OWN,),
                timeout=10.0,
            ),
        )
        self.apply(*self.bodies.values())

    def requests(self, name):
        items = self.send("GET", REQUESTS)["items"]
        return [parse_request(item) for item in items if item["spec"]["policy"] == name]

    def recorded(self, name, operation):
        """Wait until a policy has a request for an operation, and return this only request."""

        def found():
            return [item for item in self.requests(name) if item.spec.operation == operation]

        (request,) = wait_until(found, within=10, what=f"{operation} of {name} is recorded")
        return request

    def post(self, path, body, content_type="application/json", *, certificate=True):
        context = ssl.create_default_context(cadata=self.bundle.decode())
        if certificate:
            context.load_cert_chain(self.plane.credentials.webhook_client)
        request = urllib.request.Request(
            self.url + path, data=body, headers={"Content-Type": content_type}
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture(scope="module")
def world(binaries: Binaries | Path) -> Iterator[World]:
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, whose webhooks no test may write")
    with audited(binaries) as plane:
        install(plane, "demo")
        with Programs(plane) as programs:
            programs.start(ADMISSION)
            yield World(plane, programs)


@pytest.fixture
def place(world: World, request: pytest.FixtureRequest) -> str:
    """A new namespace, whose name the test's policy has too."""
    name: str = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    world.kubectl("create", "namespace", name)
    wait_until(lambda: world.logged("serving"), within=5, what="the server serves")
    return name


async def enforce(world, item):
    """Apply a policy, and wait until a probe of its kind, if there is one, calls the webhook."""
    name = item["metadata"]["name"]
    resources = item["spec"]["rules"][0]["match"]["any"][0]["resources"]
    world.apply(item)
    wait_until(
        lambda: world.logged(f'"policy":"{name}"'), within=10, what=f"policy {name} is in use"
    )
    await world.register()
    probe = _probe(resources["kinds"][0], resources["namespaces"][0])
    if probe is None:
        return

    meta = probe["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/{probe['kind'].lower()}s"

    def in_force():
        world.send("POST", path, probe)
        world.send("PATCH", f"{path}/{meta['name']}", {"metadata": {"labels": {"probe": "yes"}}})
        world.send("DELETE", f"{path}/{meta['name']}")
        return world.requests(name)

    # The API server loads webhook configurations through a watch, so they take effect later.
    wait_until(in_force, within=60, every=0.2, what="the webhook is in force")
    world.kubectl("delete", "ur", "--all", "-n", "kyverno")


def _probe(kind, namespace):
    if kind not in {"ConfigMap", "Secret"}:
        return None
    data = {"a": "b24=", "token": "b24="}
    meta = {"name": "probe", "namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": data}


async def test_a_create_is_recorded_with_the_digest_of_its_object(world, place):
    await enforce(world, policy(place, place, {"kinds": ["ConfigMap"]}))
    world.kubectl("create", "configmap", "dict", "-n", place, "--from-literal=a=1")
    live = world.get("configmap", "dict", "-n", place)
    found = world.recorded(place, "CREATE")
    assert found.spec.resource.uid == live["metadata"]["uid"]
    assert (found.spec.resource.kind, found.spec.resource.name) == ("ConfigMap", "dict")
    assert found.spec.trigger.digest == digest(live)
    assert found.spec.trigger.resource_version == ""
    assert found.spec.user == {"userInfo": {"username": "kubernetes-admin"}}
    assert found.spec.recorded is None
    assert found.status.state == "Pending"


async def test_updates_are_recorded_with_the_replaced_resource_version(world, place):
    await enforce(
        world,
        policy(
            place,
            place,
            {"kinds": ["ConfigMap"], "operations": ["UPDATE"]},
            patch="{{ request.oldObject.data.a }}",
        ),
    )
    world.kubectl("create", "configmap", "dict", "-n", place, "--from-literal=a=1")
    before = world.get("configmap", "dict", "-n", place)
    change = ("patch", "configmap", "dict", "-n", place, "--type=merge", "-p")
    world.kubectl(*change, '{"data":{"a":"2","b":"3"}}')
    after = world.get("configmap", "dict", "-n", place)
    found = world.recorded(place, "UPDATE")
    assert found.spec.trigger.resource_version == before["metadata"]["resourceVersion"]
    assert found.spec.trigger.digest == digest(after)
    assert not found.spec.trigger.unchanged
    assert found.spec.recorded == {"oldObject": {"data": {"a": "1"}}}
    assert not found.spec.trigger.terminating
    world.kubectl("delete", "ur", "--all", "-n", "kyverno")
    world.kubectl(*change, '{"data":{"a":"2"}}')
    found = world.recorded(place, "UPDATE")
    assert found.spec.trigger.unchanged
    version = world.get("configmap", "dict", "-n", place)["metadata"]["resourceVersion"]
    assert found.spec.trigger.resource_version == version


async def test_a_deletion_records_only_the_fields_that_the_rule_reads(world, place):
    await enforce(
        world,
        policy(
            place,
            place,
            {"kinds": ["ConfigMap"], "operations": ["DELETE"]},
            patch="{{ request.object.data.a }}",
        ),
    )
    world.kubectl(
        "create", "configmap", "dict", "-n", place, "--from-literal=a=1", "--from-literal=b=2"
    )
    world.kubectl("delete", "configmap", "dict", "-n", place)
    found = world.recorded(place, "DELETE")
    kept = found.spec.recorded["object"]
    assert kept["data"] == {"a": "1"}
    assert kept["metadata"]["name"] == "dict"
    assert "managedFields" not in kept["metadata"]


@pytest.fixture
def secrets_are_readable(world: World) -> Iterator[None]:
    """The right to get Secrets, without which a policy on Secrets is refused."""
    name, label = "deleted-secrets", "rbac.kyverno.io/aggregate-to-background-controller=true"
    world.kubectl("create", "clusterrole", name, "--verb=get", "--resource=secrets")
    world.kubectl("label", "clusterrole", name, label)
    yield
    world.kubectl("delete", "clusterrole", name)


@pytest.mark.usefixtures("secrets_are_readable")
async def test_the_data_of_a_deleted_secret_is_recorded_only_in_a_secret(world, place):
    await enforce(
        world,
        policy(
            place,
            place,
            {"kinds": ["Secret"], "operations": ["DELETE"]},
            patch="{{ request.object.data.token }}",
        ),
    )
    create = ("create", "secret", "generic", "dict", "-n", place, "--from-literal=token=hunter2")
    world.kubectl(*create)
    world.kubectl("delete", "secret", "dict", "-n", place)
    found = world.recorded(place, "DELETE")
    assert found.spec.recorded is None
    secret = world.get("secret", found.spec.recorded_secret, "-n", REPLACING.recorded)
    recorded = json.loads(base64.b64decode(secret["data"]["recorded"]))
    assert base64.b64decode(recorded["object"]["data"]["token"]) == b"hunter2"
    encoded = base64.b64encode(b"hunter2").decode()
    assert encoded not in world.kubectl("get", "ur", "-n", "kyverno", "-o", "json")
    assert not world.logged(encoded)


async def test_a_deletion_of_a_terminating_object_is_recorded_as_terminating(world, place):
    await enforce(world, policy(place, place, {"kinds": ["ConfigMap"], "operations": ["DELETE"]}))
    world.kubectl("create", "configmap", "dict", "-n", place)
    change = ("patch", "configmap", "dict", "-n", place, "--type=merge", "-p")
    world.kubectl(*change, '{"metadata":{"finalizers":["example.com/wait"]}}')
    delete = ("delete", "configmap", "dict", "-n", place, "--wait=false")
    world.kubectl(*delete)
    assert not world.recorded(place, "DELETE").spec.trigger.terminating
    world.kubectl("delete", "ur", "--all", "-n", "kyverno")
    world.kubectl(*delete)
    assert world.recorded(place, "DELETE").spec.trigger.terminating
    world.kubectl(*change, '{"metadata":{"finalizers":null}}')


async def test_a_rule_for_a_role_fires_only_for_users_with_the_role(world, place):
    document = policy(place, place, {"kinds": ["ConfigMap"]}, spec={"background": False})
    filters = document["spec"]["rules"][0]["match"]["any"]
    filters[0]["clusterRoles"] = ["cluster-admin"]
    await enforce(world, document)
    account = world.plane.service_account_kubeconfig(place, "default")
    bind = ("create", "rolebinding", "edit", "-n", place, "--clusterrole=edit")
    world.kubectl(*bind, f"--serviceaccount={place}:default")
    world.kubectl("create", "configmap", "other", "-n", place, kubeconfig=account)
    assert world.requests(place) == []
    world.kubectl("create", "configmap", "dict", "-n", place)
    (found,) = world.requests(place)
    assert "cluster-admin" in found.spec.user["clusterRoles"]


async def test_a_dry_run_records_nothing(world, place):
    await enforce(world, policy(place, place, {"kinds": ["ConfigMap"]}))
    create = ("create", "configmap", "dict", "-n", place)
    world.kubectl(*create, "--dry-run=server")
    assert world.requests(place) == []
    world.kubectl(*create)
    assert len(world.requests(place)) == 1


async def test_a_pod_binding_is_recorded_because_it_cannot_be_read_later(world, place):
    # The shipped settings filter out bindings; a running server applies changed settings.
    settings = json.dumps({"data": {"resourceFilters": "[*/*,kube-system,*]"}})
    world.kubectl("patch", "configmap", "kyverno", "-n", "kyverno", "--type=merge", "-p", settings)
    await enforce(
        world,
        policy(place, place, {"kinds": ["Pod/binding"]}, patch="{{ request.object.target.name }}"),
    )
    path = f"/api/v1/namespaces/{place}/pods"

    def bind(name):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "a", "image": "a"}],
                "automountServiceAccountToken": False,
            },
        }
        world.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(pod))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
        }
        raw = ("create", "--raw", f"{path}/{name}/binding", "-f", "-")
        world.kubectl(*raw, stdin=json.dumps(binding))

    world.kubectl("wait", "--for=create", "--timeout=20s", "serviceaccount/default", "-n", place)
    names = iter(f"pod-{number}" for number in range(100))

    def found():
        bind(next(names))
        return world.requests(place)

    request = wait_until(found, within=60, every=0.2, what="a binding is recorded")[0]
    assert request.spec.trigger.subresource == "binding"
    assert request.spec.resource.kind == "Binding"
    assert request.spec.request["resource"]["resource"] == "pods"
    assert request.spec.recorded["object"]["target"] == {"name": "nowhere"}


async def test_the_api_server_stores_the_webhooks_as_they_were_sent(world, place):
    conditions = [{"name": "not-me", "expression": "request.userInfo.username != 'me'"}]
    await enforce(
        world,
        policy(
            place,
            place,
            {"kinds": ["ConfigMap", "Deployment", "Namespace"]},
            spec={
                "webhookConfiguration": {"matchConditions": conditions, "failurePolicy": "Ignore"}
            },
        ),
    )
    for ref, body in world.bodies.items():
        stored = world.get(ref.kind, ref.name)
        assert stored.get("webhooks", []) == body["webhooks"]
    world.kubectl("create", "configmap", "dict", "-n", place)
    assert len(world.requests(place)) == 1


async def test_an_invalid_policy_is_refused_with_the_path_of_its_error(world, place):
    await world.register()
    broken = policy(place, place, {"kinds": ["ConfigMap"]})
    del broken["spec"]["rules"][0]["mutate"]["targets"][0]["kind"]

    def refused():
        try:
            world.apply(broken)
        except ClusterError as error:
            return str(error)
        world.kubectl("delete", "clusterpolicy", place)
        return None

    text = wait_until(refused, within=60, every=0.2, what="the policy webhook is in force")
    assert "spec.rules[0].mutate.targets[0]" in text
    assert "denied the request" in text


def test_a_request_that_is_not_a_review_is_answered_with_a_reason(world):
    status, answer = world.post("/validate/fail", b"kind: AdmissionReview")
    assert (status, answer["kind"]) == (400, "Status")
    assert "not JSON" in answer["message"]
    size = 9 * 1024 * 1024
    status, answer = world.post("/validate/fail", b"x" * size)
    assert status == 413
    assert str(size) in answer["message"]
    assert "--max-body" in answer["message"]
    status, answer = world.post("/validate", b"{}")
    assert status == 404


def test_a_client_without_a_certificate_is_refused(world):
    status, answer = world.post("/validate/fail", b"{}", certificate=False)
    assert (status, answer["kind"]) == (401, "Status")
    assert "--client-ca-file" in answer["message"]


def test_an_update_of_an_object_of_megabytes_is_accepted(world):
    data = {"a": "x" * 1_500_000}
    meta = {"name": "big", "namespace": "default"}
    big = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    named = {"group": "", "version": "v1"}
    request = {
        "uid": "u",
        "operation": "UPDATE",
        "kind": {**named, "kind": "ConfigMap"},
        "resource": {**named, "resource": "configmaps"},
        "namespace": "default",
        "name": "big",
        "object": big,
        "oldObject": big,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    status, answer = world.post("/validate/fail", orjson.dumps(review))
    assert (status, answer["response"]) == (200, {"uid": "u", "allowed": True})


def program(kubeconfig, *flags, ports=None):
    port, metrics = ports or free_ports(2)
    return [
        sys.executable,
        "-m",
        "admission.main",
        f"--kubeconfig={kubeconfig}",
        f"--bind-address={HOST}",
        f"--port={port}",
        f"--metrics-port={metrics}",
        f"--webhook-url=https://{HOST}:{port}",
        *flags,
    ]


def run(argv):
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def one_error(done):
    """Return the one error line of a program that failed to start."""
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_a_port_in_use_is_reported_in_one_line(world):
    port, (other,) = world.programs.webhook_port, free_ports(1)
    line = one_error(run(program(world.plane.kubeconfig, ports=(port, other))))
    assert f"port {port}" in line
    assert "in use" in line
    assert "--port" in line


def test_a_token_that_is_not_accepted_is_reported_in_one_line(world, tmp_path):
    document = yaml.safe_load(world.plane.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": "expired"}
    path = tmp_path / "expired.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    line = one_error(run(program(path)))
    assert "does not accept the credentials" in line
    assert "expired" in line


@pytest.fixture
def away(world: World, tmp_path: Path) -> Path:
    """A kubeconfig with an address at which no API server listens."""
    document = yaml.safe_load(world.plane.kubeconfig.read_text())
    (port,) = free_ports(1)
    document["clusters"][0]["cluster"]["server"] = f"https://{HOST}:{port}"
    path = tmp_path / "away.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_an_unreachable_api_server_is_an_error_after_the_startup_timeout(away):
    line = one_error(run(program(away, "--startup-timeout=2s")))
    assert "connect" in line.lower() or "refused" in line.lower()


class Started:
    """An admission server that a test started."""

    def __init__(self, argv, log):
        self.metrics = next(int(flag.split("=")[1]) for flag in argv if "metrics-port" in flag)
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(argv, stdout=file, stderr=subprocess.STDOUT)

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.metrics}/readyz") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], Started]]:
    started: list[Started] = []

    def begin(argv: Sequence[str]) -> Started:
        started.append(Started(argv, tmp_path / f"program-{len(started)}.log"))
        return started[-1]

    yield begin
    for item in started:
        item.end()


def test_the_server_is_not_ready_and_can_be_stopped_while_it_waits(away, start):
    started = start(program(away))
    wait_until(lambda: started.ready()[0] == 503, within=60, what="the probes answer")
    assert "not listed yet" in started.ready()[1]
    wait_until(
        lambda: "trying again" in started.log.read_text(), within=60, what="it says that it waits"
    )
    assert started.end() == 0
    assert "Traceback" not in started.log.read_text()


def test_a_missing_right_is_logged_as_a_right_to_grant(world, start):
    account = world.plane.service_account_kubeconfig("default", "default")
    started = start(program(account))
    wait_until(
        lambda: "grant" in started.log.read_text(), within=60, what="it names the missing right"
    )
    text = started.log.read_text()
    assert "list clusterpolicies.kyverno.io" in text
    assert started.ready()[0] == 503
    assert started.end() == 0


def test_two_replicas_share_one_certificate_and_end_cleanly(world, start):
    account = world.plane.service_account_kubeconfig("kyverno", "kyverno-admission-controller")
    argv = program(account)
    started = start(argv)
    wait_until(lambda: started.ready()[0] == 200, within=30, what="the second replica is ready")
    port = int(next(flag for flag in argv if flag.startswith("--port")).split("=")[1])
    context = ssl.create_default_context(cadata=world.bundle.decode())
    with (
        socket.create_connection((HOST, port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as secured,
    ):
        assert secured.version() in {"TLSv1.2", "TLSv1.3"}
    assert started.end() == 0
    assert "Traceback" not in started.log.read_text()


def test_missing_crds_are_reported_until_they_are_applied(binaries, start):
    if isinstance(binaries, Path):
        pytest.skip("needs a cluster without anything installed")
    with audited(binaries) as plane:
        started = start(program(plane.kubeconfig))
        wait_until(
            lambda: "apply crds/" in started.log.read_text(),
            within=30,
            what="it says what to apply",
        )
        assert started.ready()[0] == 503
        install(plane, "default")
        wait_until(lambda: started.ready()[0] == 200, within=60, what="it goes on by itself")
        plane.kill_apiserver()
        wait_until(
            lambda: "watch interrupted" in started.log.read_text(),
            within=30,
            what="it tells of the outage",
        )
        plane.start_apiserver()
        assert started.end() == 0
