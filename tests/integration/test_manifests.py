"""The manifests on a real API server: they apply, and accounts have only the listed rights."""

import contextlib
import functools
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from devcluster.binaries import Binaries
from devcluster.cluster import Cluster, ControlPlane, Options
from devcluster.waiting import wait_until
from reconciler.config import (
    AdmissionSettings,
    ControllerSettings,
    ProcessSettings,
    options,
    parse_duration,
)
from reconciler.installation import REPLACING
from reconciler.kube.authority import CA_SECRET, TLS_SECRET
from reconciler.serving.certificates import server_names
from reconciler.serving.pki import ca_is_due, make_ca, make_serving, serving_is_due

pytestmark = pytest.mark.cluster

MANIFESTS = Path(__file__).parents[2] / "manifests"
STANDINS = Path(__file__).with_name("standins.yaml")
OVERLAYS = tuple(sorted(item.name for item in (MANIFESTS / "overlays").iterdir()))
ADMISSION = "kyverno-admission-controller"
BACKGROUND = "kyverno-background-controller"
CONTROLLER = "kube-retrofit-controller"
REPORTS = "kyverno-reports-controller"
AGGREGATED = ("admission-controller", "background-controller", "reports-controller")
WEBHOOKS = "validatingwebhookconfigurations.admissionregistration.k8s.io"
MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
REPORT_KINDS = ("policyreports.wgpolicyk8s.io", "clusterpolicyreports.wgpolicyk8s.io")
CONDITIONS = "validatingadmissionpolicies.admissionregistration.k8s.io"
WRITTEN = ("create", "update", "delete")
WRITES = ("create", "update", "patch", "delete", "deletecollection")
KINDS_OF_THE_SUITE = (
    *("configmaps", "secrets", "pods", "namespaces", "nodes", "nodes/status", "resourcequotas"),
    *("limitranges", "networkpolicies.networking.k8s.io", "roles.rbac.authorization.k8s.io"),
    *("rolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io"),
    "clusterrolebindings.rbac.authorization.k8s.io",
)


@pytest.fixture(scope="module")
def cluster(binaries: Binaries | Path) -> Iterator[Cluster]:
    """A cluster of this module's own, because rights that other tests grant would count here."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, whose rights are not known")
    with ControlPlane.start(Options(binaries=binaries)) as plane:
        plane.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "default"))
        plane.kubectl("apply", "-f", str(STANDINS))
        plane.kubectl("wait", "--for=condition=Established", "-f", str(STANDINS))
        for name in ("admin", "view"):
            wait_aggregated(plane, name, "updaterequests")
        for account in (ADMISSION, CONTROLLER):
            granted = functools.partial(may, plane, account, "watch clusterpolicies.kyverno.io")
            wait_until(granted, within=20.0, what=f"{account} has its rights")
        yield plane


@pytest.fixture(scope="module", params=["demo", "conformance"])
def overlay(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an overlay whose rights are granted on top of the default."""
    rights = MANIFESTS / "overlays" / request.param / "rights.yaml"
    cluster.kubectl("apply", "-f", str(rights))
    granted = functools.partial(may, cluster, BACKGROUND, "update configmaps")
    wait_until(granted, within=20.0, what="the overlay's rights are in force")
    yield request.param
    cluster.kubectl("delete", "-f", str(rights))
    wait_until(lambda: not granted(), within=20.0, what="the overlay's rights are gone")


def wait_aggregated(cluster: Cluster, role: str, word: str) -> None:
    def aggregated() -> bool:
        return f'"{word}"' in cluster.kubectl(
            "get", "clusterrole", role, "-o", "jsonpath={.rules}"
        )

    wait_until(aggregated, within=20.0, what=f"{role} names {word}")


@functools.cache
def rendered(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Return the documents of an overlay; they are cached, so tests must not change them."""
    text = cluster.kubectl("kustomize", str(MANIFESTS / "overlays" / name))
    return list(yaml.safe_load_all(text))


def reviewed(
    cluster: Cluster, account: str, *questions: str, namespace: str = "default"
) -> dict[str, bool]:
    """Return whether the account may do each ``verb resource[.group][/subresource][:name]``."""
    out = cluster.kubectl(
        *("create", "-f", "-", "-o", "jsonpath={.status.allowed} "),
        stdin="\n---\n".join(json.dumps(_review(account, q, namespace)) for q in questions),
    )
    answers = [word == "true" for word in out.split()]
    return dict(zip(questions, answers, strict=True))


def _review(account: str, question: str, namespace: str) -> dict[str, Any]:
    verb, what = question.split()
    what, _, name = what.partition(":")
    what, _, subresource = what.partition("/")
    resource, _, group = what.partition(".")
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
    }
    groups = ["system:serviceaccounts", "system:serviceaccounts:kyverno", "system:authenticated"]
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:kyverno:{account}",
            "groups": groups,
            "resourceAttributes": attributes,
        },
    }


def may(cluster: Cluster, account: str, question: str) -> bool:
    return reviewed(cluster, account, question)[question]


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_applies(cluster: Cluster, name: str) -> None:
    folder = str(MANIFESTS / "overlays" / name)
    # A dry run of a namespaced object needs its namespace to be stored.
    namespaces = [item for item in rendered(cluster, name) if item["kind"] == "Namespace"]
    cluster.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, namespaces)))
    cluster.kubectl("apply", "-k", folder, "--dry-run=server")
    cluster.kubectl(
        "apply", "-k", folder, "--dry-run=server", "--server-side", "--force-conflicts"
    )


@pytest.mark.parametrize("name", OVERLAYS)
def test_network_policies_open_only_the_named_ports_of_the_programs(
    cluster: Cluster, name: str
) -> None:
    documents = rendered(cluster, name)
    policies = [item["spec"] for item in documents if item["kind"] == "NetworkPolicy"]
    programs = [item["spec"] for item in documents if item["kind"] == "Deployment"]
    assert len(policies) == len(programs) == 2
    for program in programs:
        wanted = [item for item in policies if item["podSelector"] == program["selector"]]
        assert len(wanted) == 1
        open_ports = [port["port"] for rule in wanted[0]["ingress"] for port in rule["ports"]]
        (container,) = program["template"]["spec"]["containers"]
        assert open_ports == [port["name"] for port in container["ports"]]
        # The metrics, the last port, cannot be reached from outside the cluster.
        assert [rule.get("from") for rule in wanted[0]["ingress"]][-1] == [
            {"namespaceSelector": {}}
        ]


@pytest.mark.parametrize(
    "name", sorted(item.name for item in (MANIFESTS / "components").iterdir())
)
def test_a_component_applies(cluster: Cluster, name: str, tmp_path: Path) -> None:
    with_component(tmp_path, name)
    cluster.kubectl("apply", "-k", str(tmp_path), "--dry-run=server")


def test_the_client_certificate_component_removes_the_view_binding(
    cluster: Cluster, tmp_path: Path
) -> None:
    def bound(documents: list[Any]) -> set[str]:
        return {
            item["metadata"]["name"]
            for item in documents
            if item["kind"] == "ClusterRoleBinding"
            and any(one["name"] == ADMISSION for one in item["subjects"])
        }

    with_component(tmp_path, "client-certificate")
    asking = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(tmp_path))))
    left = bound(rendered(cluster, "default")) - bound(asking)
    assert left == {"kyverno:admission-controller:view"}


def with_component(folder: Path, name: str) -> None:
    """Write an overlay that adds a component to the default."""
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(MANIFESTS / "overlays/default", folder.resolve())],
        "components": [os.path.relpath(MANIFESTS / "components" / name, folder.resolve())],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))


def test_the_dashboard_applies_without_the_prometheus_operator(cluster: Cluster) -> None:
    folder = str(MANIFESTS / "monitoring")
    applied = cluster.kubectl("apply", "-k", folder)
    assert applied.split() == ["configmap/kube-retrofit-dashboard", "created"]
    cluster.kubectl("delete", "-k", folder)


def test_the_monitoring_manifests_render_and_match_the_services(cluster: Cluster) -> None:
    folder = MANIFESTS / "monitoring"
    text = cluster.kubectl("kustomize", str(folder))
    text += "---\n" + cluster.kubectl("kustomize", str(folder / "operator"))
    documents = list(yaml.safe_load_all(text))
    services = [item for item in rendered(cluster, "default") if item["kind"] == "Service"]
    monitors = [item for item in documents if item["kind"] == "ServiceMonitor"]
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        ports = {
            port["name"]
            for service in services
            if wanted <= service["metadata"]["labels"].items()
            for port in service["spec"]["ports"]
        }
        assert {item["port"] for item in monitor["spec"]["endpoints"]} <= ports
    assert len(monitors) == 2
    (dashboard,) = (item for item in documents if item["kind"] == "ConfigMap")
    assert json.loads(dashboard["data"]["dashboard.json"])["panels"]


def test_a_repeated_server_side_apply_changes_nothing(cluster: Cluster) -> None:
    """Otherwise a GitOps tool would write with every sync, and report drift."""
    folder = str(MANIFESTS / "overlays" / "default")
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-k", folder)

    def versions() -> dict[str, str]:
        applied = json.loads(cluster.kubectl(*apply, "-o", "json"))
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for item in applied["items"]
        }

    # The controller that aggregates ClusterRoles writes to new ones a moment later.
    def settled() -> bool:
        return versions() == versions()

    wait_until(settled, within=20.0, what="the same is applied again and nothing changes")


@pytest.mark.parametrize("folder", ["overlays/default", "hooks"])
def test_another_manager_applies_the_same_without_a_conflict(
    cluster: Cluster, folder: str
) -> None:
    """A default that the API server adds to a field that is owned as a whole changes its value."""
    where = ("--namespace=default",) if folder == "hooks" else ()
    for manager in ("first", "second"):
        manifests = ("-k", str(MANIFESTS / folder), *where)
        cluster.kubectl("apply", "--server-side", f"--field-manager={manager}", *manifests)


def test_the_programs_accept_the_certificates_of_cert_manager(cluster: Cluster) -> None:
    """With a missing name or a late renewal, both would replace each other's certificates."""
    documents = rendered(cluster, "cert-manager")
    found = {
        item["spec"]["secretName"]: item["spec"]
        for item in documents
        if item["kind"] == "Certificate"
    }
    (service,) = (
        item["metadata"]
        for item in documents
        if item["kind"] == "Service" and any(port["port"] == 443 for port in item["spec"]["ports"])
    )
    names = server_names(service["name"], service["namespace"], "")
    assert set(found[TLS_SECRET]["dnsNames"]) == names
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ca = make_ca(now)
    serving = make_serving(ca, names, now)
    for spec, pair, is_due in (
        (found[CA_SECRET], ca, lambda at: ca_is_due(ca, at)),
        (found[TLS_SECRET], serving, lambda at: serving_is_due(serving, ca, names, at)),
    ):
        life, before = (
            timedelta(seconds=parse_duration(spec[name])) for name in ("duration", "renewBefore")
        )
        assert abs(pair.until - now - life) < timedelta(minutes=1)
        assert not is_due(pair.until - before)
        assert spec["privateKey"]["algorithm"] == "ECDSA"


@contextlib.contextmanager
def added_role(cluster: Cluster, name: str, labels: dict[str, str], rule: Any) -> Iterator[None]:
    """Add a ClusterRole until the context ends, as users do."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": [rule],
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    try:
        yield
    finally:
        cluster.kubectl("delete", "clusterrole", name)


def test_a_repeated_apply_keeps_aggregated_rights(cluster: Cluster) -> None:
    name = "kyverno:background-controller"
    labels = {"rbac.kyverno.io/aggregate-to-background-controller": "true"}
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}
    with added_role(cluster, "team:jobs", labels, rule):
        wait_aggregated(cluster, name, "jobs")
        cluster.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "default"))
        after = json.loads(cluster.kubectl("get", "clusterrole", name, "-o", "json"))
        assert after["rules"] == [rule]


@pytest.mark.parametrize("controller", AGGREGATED)
def test_both_label_styles_add_rights(cluster: Cluster, controller: str) -> None:
    styles: dict[str, dict[str, str]] = {
        "podtemplates": {f"rbac.kyverno.io/aggregate-to-{controller}": "true"},
        "endpoints": {
            "app.kubernetes.io/component": controller,
            "app.kubernetes.io/instance": "kyverno",
            "app.kubernetes.io/part-of": "kyverno",
        },
    }
    account = f"kyverno-{controller}"
    for resource, labels in styles.items():
        granted = functools.partial(may, cluster, account, f"update {resource}")
        assert not granted()
        rule = {"apiGroups": [""], "resources": [resource], "verbs": ["update"]}
        with added_role(cluster, f"team:{controller}:{resource}", labels, rule):
            wait_until(granted, within=20.0, what=f"{account} may update {resource}")


@pytest.mark.parametrize("account", [ADMISSION, BACKGROUND, CONTROLLER, REPORTS])
def test_the_default_accounts_may_write_no_objects_of_users(
    cluster: Cluster, account: str
) -> None:
    user = f"--as=system:serviceaccount:kyverno:{account}"
    listed = cluster.kubectl("auth", "can-i", "--list", "--no-headers", user, "-n", "default")
    granted = {
        (line.split()[0], verb)
        for line in listed.splitlines()
        for verb in line[line.rindex("[") + 1 : line.rindex("]")].split()
        if verb in (*WRITES, "*", "escalate", "bind", "impersonate")
    }
    everybody = {
        ("selfsubjectreviews.authentication.k8s.io", "create"),
        ("selfsubjectaccessreviews.authorization.k8s.io", "create"),
        ("selfsubjectrulesreviews.authorization.k8s.io", "create"),
    }
    events = {("events.events.k8s.io", verb) for verb in ("create", "patch")}
    asks = {("subjectaccessreviews.authorization.k8s.io", "create")}
    expected = {
        ADMISSION: events | asks | {(CONDITIONS, verb) for verb in ("create", "patch")},
        BACKGROUND: set[tuple[str, str]](),
        CONTROLLER: events
        | {(name, verb) for name in (WEBHOOKS, MUTATING) for verb in WRITTEN}
        | {(name, verb) for name in REPORT_KINDS for verb in WRITTEN}
        | {
            (f"{kind}.kyverno.io/status", "patch")
            for kind in ("policies", "clusterpolicies", "globalcontextentries")
        }
        | {(f"{kind}.kube-retrofit.dev/status", "patch") for kind in ("hooks", "clusterhooks")},
        REPORTS: set(),
    }
    assert granted == expected[account] | everybody


@pytest.mark.parametrize(
    ("account", "allowed", "refused"),
    [
        (
            ADMISSION,
            [
                *("create updaterequests.kyverno.io", "get updaterequests.kyverno.io"),
                *("get secrets:kube-retrofit-ca", "patch secrets:kube-retrofit-ca"),
                *("patch secrets:kube-retrofit-tls", "watch secrets:kube-retrofit-tls"),
                "record updaterequests.kyverno.io",
                *("list configmaps:kyverno", "watch configmaps:kyverno"),
                f"patch {CONDITIONS}:kube-retrofit-check",
                "patch updaterequests.kyverno.io",
                "watch leases.coordination.k8s.io:kube-retrofit-backlog",
                *("get leases.coordination.k8s.io:kyverno", "create leases.coordination.k8s.io"),
                "update leases.coordination.k8s.io:kube-retrofit-admission",
                *("get configmaps:other", "get deployments.apps", "get namespaces"),
            ],
            [
                *("get nodes", "get roles.rbac.authorization.k8s.io"),
                "delete updaterequests.kyverno.io",
                *("update updaterequests.kyverno.io", "patch updaterequests.kyverno.io/status"),
                "watch leases.coordination.k8s.io:kyverno",
                "update leases.coordination.k8s.io:kube-retrofit-backlog",
                *("get secrets:other", "list secrets", "delete secrets:kube-retrofit-ca"),
                *("create secrets", "create secrets:kube-retrofit-tls", "patch secrets:other"),
                "process updaterequests.kyverno.io",
                *("update configmaps:kyverno", "update configmaps:other"),
                "update leases.coordination.k8s.io:kyverno",
                *(f"create {WEBHOOKS}", f"patch {CONDITIONS}:other"),
                "patch leases.coordination.k8s.io:kube-retrofit-catch-up",
            ],
        ),
        (
            CONTROLLER,
            [
                f"impersonate serviceaccounts:{BACKGROUND}",
                *("list updaterequests.kyverno.io", "watch updaterequests.kyverno.io"),
                *("create updaterequests.kyverno.io", "patch updaterequests.kyverno.io"),
                "deletecollection updaterequests.kyverno.io",
                "patch updaterequests.kyverno.io/status",
                *("record updaterequests.kyverno.io", "process updaterequests.kyverno.io"),
                *("get secrets:kube-retrofit-ca", "watch secrets:kube-retrofit-tls"),
                *("create secrets:kube-retrofit-ca", "patch secrets:kube-retrofit-tls"),
                "create leases.coordination.k8s.io",
                "update leases.coordination.k8s.io:kube-retrofit-controller",
                "patch leases.coordination.k8s.io:kube-retrofit-backlog",
                "get leases.coordination.k8s.io:kyverno-background-controller",
                "patch leases.coordination.k8s.io:kube-retrofit-catch-up",
                "get leases.coordination.k8s.io:kube-retrofit-admission",
                f"update {WEBHOOKS}:kube-retrofit-policy",
                f"delete {WEBHOOKS}:kube-retrofit-resource",
                *(f"create {MUTATING}", f"update {MUTATING}:kube-retrofit-resource"),
                f"update {REPORT_KINDS[0]}:kube-retrofit",
            ],
            [
                *("create secrets", "update secrets:kube-retrofit-ca", "patch secrets:other"),
                *("get secrets:kube-retrofit-tls", "get secrets:other", "list secrets"),
                *("delete secrets:kube-retrofit-ca", "delete secrets:ur-1"),
                *("impersonate serviceaccounts", "impersonate users"),
                f"impersonate serviceaccounts:{ADMISSION}",
                *("get pods", "get deployments.apps", "update updaterequests.kyverno.io"),
                *("update configmaps:kyverno", "patch deployments.apps"),
                *(
                    f"update leases.coordination.k8s.io:{name}"
                    for name in ("kyverno", "kube-retrofit-admission")
                ),
                *(f"update {WEBHOOKS}:another", f"update {REPORT_KINDS[0]}:another"),
                f"update {MUTATING}:kube-retrofit-policy",
            ],
        ),
        (
            BACKGROUND,
            ["get pods", "list namespaces"],
            [
                *("get secrets:kube-retrofit-ca", "list secrets", "delete secrets:ur-1"),
                *("create updaterequests.kyverno.io", "patch updaterequests.kyverno.io/status"),
                *(f"{verb} {WEBHOOKS}" for verb in ("get", "create")),
                *(f"{verb} {WEBHOOKS}:kube-retrofit-resource" for verb in ("update", "delete")),
                *("create leases.coordination.k8s.io", "create events"),
                "update leases.coordination.k8s.io:kube-retrofit-controller",
                *("impersonate serviceaccounts", "patch clusterpolicies.kyverno.io/status"),
            ],
        ),
        (REPORTS, [], ["get updaterequests.kyverno.io", "get pods", "create secrets"]),
    ],
)
def test_the_rights_of_an_account_in_the_namespace_of_the_programs(
    cluster: Cluster, account: str, allowed: list[str], refused: list[str]
) -> None:
    answers = reviewed(cluster, account, *allowed, *refused, namespace="kyverno")
    assert answers == dict.fromkeys(allowed, True) | dict.fromkeys(refused, False)


@pytest.mark.parametrize(
    ("account", "granted"),
    [
        (ADMISSION, {"create"}),
        (CONTROLLER, {"get", "create", "delete"}),
        (BACKGROUND, set[str]()),
        (REPORTS, set[str]()),
    ],
)
def test_the_rights_of_an_account_in_the_namespace_of_recorded_secrets(
    cluster: Cluster, account: str, granted: set[str]
) -> None:
    verbs = ("get", "list", "watch", *WRITES)
    expected = {f"{verb} secrets": verb in granted for verb in verbs}
    expected |= dict.fromkeys(("create serviceaccounts", "create serviceaccounts/token"), False)
    assert reviewed(cluster, account, *expected, namespace=REPLACING.recorded) == expected


@pytest.mark.parametrize("role", ["admin", "edit", "kyverno:rbac:operate:updaterequests"])
def test_no_user_role_grants_the_request_verbs_of_the_programs(
    cluster: Cluster, role: str
) -> None:
    rules = json.loads(cluster.kubectl("get", "clusterrole", role, "-o", "json"))["rules"]
    verbs = {
        verb
        for item in rules
        if "updaterequests" in item.get("resources", ())
        for verb in item["verbs"]
    }
    assert verbs.isdisjoint({"*", "record", "process"})


def test_a_repeated_apply_keeps_the_certificates(cluster: Cluster) -> None:
    held = json.dumps({"data": {"tls.crt": "aGVsZA=="}})
    cluster.kubectl("patch", "secret", "kube-retrofit-tls", "-n", "kyverno", "-p", held)
    folder = str(MANIFESTS / "overlays" / "default")
    cluster.kubectl("apply", "-k", folder)
    cluster.kubectl("apply", "-k", folder, "--server-side", "--force-conflicts")
    get = ("get", "secret", "kube-retrofit-tls", "-n", "kyverno", "-o", "json")
    assert json.loads(cluster.kubectl(*get))["data"] == {"tls.crt": "aGVsZA=="}


def test_an_overlay_grants_rights_on_its_kinds_only(cluster: Cluster, overlay: str) -> None:
    granted = {
        "demo": ("configmaps", "pods", "deployments.apps", "statefulsets.apps", "daemonsets.apps"),
        "conformance": KINDS_OF_THE_SUITE,
    }[overlay]
    refused = {
        "demo": ("secrets", "cronjobs.batch", "serviceaccounts"),
        "conformance": ("serviceaccounts", "persistentvolumeclaims", "deployments.apps"),
    }[overlay]
    expected = {
        f"{verb} {kind}": True for kind in granted for verb in ("get", "list", "update", "patch")
    } | {f"{verb} {kind}": False for kind in refused for verb in WRITES}
    assert reviewed(cluster, BACKGROUND, *expected) == expected


@pytest.mark.parametrize(
    ("role", "verb", "resource", "allowed"),
    [
        ("admin", "list", "updaterequests.kyverno.io", True),
        ("admin", "create", "updaterequests.kyverno.io", False),
        ("admin", "patch", "policies.kyverno.io", False),
        ("admin", "create", "clusterpolicies.kyverno.io", False),
        ("edit", "patch", "policies.kyverno.io", False),
        ("admin", "create", "policyexceptions.kyverno.io", False),
        ("view", "list", "updaterequests.kyverno.io", True),
        ("view", "get", "policyexceptions.kyverno.io", True),
        ("admin", "create", "globalcontextentries.kyverno.io", False),
        ("view", "list", "globalcontextentries.kyverno.io", True),
        ("view", "create", "updaterequests.kyverno.io", False),
        ("view", "patch", "policies.kyverno.io", False),
    ],
)
def test_the_built_in_roles_have_the_documented_rights(
    cluster: Cluster, role: str, verb: str, resource: str, *, allowed: bool
) -> None:
    name, group = resource.split(".", 1)
    rules = json.loads(cluster.kubectl("get", "clusterrole", role, "-o", "json"))["rules"]
    found = any(
        verb in item["verbs"] and name in item["resources"] and group in item["apiGroups"]
        for item in rules
        if "apiGroups" in item
    )
    assert found is allowed


@pytest.mark.parametrize(
    ("deployment", "settings"),
    [("admission-controller", AdmissionSettings), ("background-controller", ControllerSettings)],
)
def test_the_flags_and_variables_of_the_overlays_exist(
    cluster: Cluster, deployment: str, settings: type[ProcessSettings]
) -> None:
    command = click.command(options(settings)(lambda **_: None))
    flags = {flag for item in command.params for flag in item.opts}
    variables = {item.envvar for item in command.params}
    for name in OVERLAYS:
        [container] = [
            item["spec"]["template"]["spec"]["containers"][0]
            for item in rendered(cluster, name)
            if item["kind"] == "Deployment"
            and item["metadata"]["labels"]["app.kubernetes.io/component"] == deployment
        ]
        assert {text.split("=")[0] for text in container["args"]} <= flags
        assert {item["name"] for item in container.get("env", ())} <= variables


def test_the_suite_has_the_default_filters_except_those_of_its_triggers(cluster: Cluster) -> None:
    default, suite = (
        {
            entry
            for item in rendered(cluster, name)
            if item["kind"] == "ConfigMap"
            for entry in item["data"]["resourceFilters"].split()
        }
        for name in ("default", "conformance")
    )
    assert suite < default
    triggers = {"[Node,*,*]", "[Node/?*,*,*]", "[Binding,*,*]", "[Pod/binding,*,*]"}
    assert default - suite == triggers


@pytest.mark.parametrize("name", [ADMISSION, BACKGROUND])
def test_the_pods_of_a_program_are_protected_from_ending_all_at_once(
    cluster: Cluster, name: str
) -> None:
    documents = rendered(cluster, "default")
    (deployment,) = (
        document["spec"]
        for document in documents
        if (document["kind"], document["metadata"]["name"]) == ("Deployment", name)
    )
    pod = deployment["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    # Longer than a crashing container stays ready, and than kube-proxy needs for an update.
    assert deployment["minReadySeconds"] >= 5
    (budget,) = (
        document["spec"]
        for document in documents
        if document["kind"] == "PodDisruptionBudget"
        and document["spec"]["selector"] == deployment["selector"]
    )
    assert 0 < budget["minAvailable"] < deployment["replicas"]
    if name == ADMISSION:
        classes = {
            document["metadata"]["name"]: document["value"]
            for document in documents
            if document["kind"] == "PriorityClass"
        }
        assert classes[pod["priorityClassName"]] == 1_000_000_000


def test_the_controller_may_watch_its_kinds_in_all_namespaces(cluster: Cluster) -> None:
    kinds = ("clusterpolicies", "policies", "updaterequests", "globalcontextentries")
    questions = [f"{verb} {kind}.kyverno.io" for kind in kinds for verb in ("list", "watch")]
    answers = reviewed(cluster, CONTROLLER, *questions, namespace="")
    assert answers == dict.fromkeys(questions, True)


def test_only_accounts_of_deployments_mount_a_token(cluster: Cluster) -> None:
    documents = rendered(cluster, "default")
    run = {
        document["spec"]["template"]["spec"]["serviceAccountName"]
        for document in documents
        if document["kind"] == "Deployment"
    }
    assert run == {ADMISSION, CONTROLLER}
    mounted = {
        document["metadata"]["name"]
        for document in documents
        if document["kind"] == "ServiceAccount"
        and document.get("automountServiceAccountToken") is not False
    }
    assert mounted == run


def test_the_former_role_of_the_controller_grants_nothing_after_an_upgrade(
    cluster: Cluster,
) -> None:
    (role,) = (
        document
        for document in rendered(cluster, "default")
        if (document["kind"], document["metadata"]["name"])
        == ("Role", "kyverno:background-controller")
    )
    assert role["rules"] is None


def test_namespace_admins_write_policies_only_with_the_tenants_rights(cluster: Cluster) -> None:
    rights = str(MANIFESTS / "overlays" / "tenants" / "rights.yaml")

    def granted() -> bool:
        rules = json.loads(cluster.kubectl("get", "clusterrole", "admin", "-o", "json"))["rules"]
        return any(
            item.get("resources") == ["policies"] and "create" in item["verbs"] for item in rules
        )

    assert not granted()
    cluster.kubectl("apply", "-f", rights)
    wait_until(granted, within=20.0, what="admin may write policies")
    cluster.kubectl("delete", "-f", rights)
    wait_until(lambda: not granted(), within=20.0, what="admin may not any more")
