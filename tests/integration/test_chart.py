"""The Helm chart: it renders the manifests' objects, and installs, upgrades and uninstalls."""

import functools
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.binaries import Binaries
from devcluster.chart import CHART
from devcluster.cluster import ControlPlane
from devcluster.helm import locate_helm
from reconciler.api.meta import Object
from tests.architecture.conftest import ROOT

pytestmark = pytest.mark.cluster

OVERLAYS = ROOT / "manifests/overlays"
Objects = Mapping[tuple[str, str, str], Object]
# The manifests contain the Namespace, and CRDs without the annotation that makes Helm keep them.
WHOLE = ("--set=namespace.create=true", "--set=crds.keep=false")


@dataclass(frozen=True, slots=True)
class Tools:
    """Helm, and the kubectl of the control plane."""

    helm: Path
    kubectl: tuple[str, ...]
    home: Path

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        names = ("CONFIG", "CACHE", "DATA")
        folders = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in names}
        return subprocess.run(
            [self.helm, *args],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **folders},
        )

    def render(self, *args: str, chart: Path = CHART, namespace: str = "kyverno") -> Objects:
        done = self.run("template", "kube-retrofit", str(chart), f"--namespace={namespace}", *args)
        assert done.returncode == 0, done.stderr
        return by_name(done.stdout)

    def refusal(self, *args: str) -> str:
        done = self.run("template", "kube-retrofit", str(CHART), *args)
        assert done.returncode != 0
        return done.stderr

    def built(self, folder: Path) -> Objects:
        return _built(self.kubectl, folder)


@functools.cache
def _built(kubectl: tuple[str, ...], folder: Path) -> Objects:
    done = subprocess.run(
        [*kubectl, "kustomize", folder], check=True, capture_output=True, text=True
    )
    return by_name(done.stdout)


def by_name(text: str) -> Objects:
    documents = [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item]
    found = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in documents
    }
    assert len(found) == len(documents)
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """An installation, in the place of a Kyverno or beside one."""

    namespace: str
    variant: str

    def overlay(self, name: str) -> Path:
        if self.variant:
            name = "beside-kyverno" if name == "default" else f"{name}{self.variant}"
        return OVERLAYS / name

    @property
    def values(self) -> tuple[str, ...]:
        return ("--set=besideKyverno=true",) if self.variant else ()

    def render(self, tools: Tools, *args: str) -> Objects:
        return tools.render(*self.values, *args, namespace=self.namespace)


@pytest.fixture(
    params=[Place("kyverno", ""), Place("kube-retrofit", "-beside")], ids=["place", "beside"]
)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param
    return found


@pytest.fixture(scope="module")
def tools(binaries: Binaries | Path, tmp_path_factory: pytest.TempPathFactory) -> Tools:
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, not its programs")
    helm = locate_helm(os.environ)
    if helm is None:
        # Building Helm takes minutes, more than the timeout of a test.
        pytest.skip("no Helm on this machine: run `make helm`")
    return Tools(helm, binaries.command("kubectl"), tmp_path_factory.mktemp("helm"))


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("default", ()),
        ("high-availability", (f"--values={CHART}/profiles/high-availability.yaml",)),
        ("single-replica", (f"--values={CHART}/profiles/single-replica.yaml",)),
        ("cert-manager", ("--set=certManager=true",)),
        ("tenants", ("--set=tenants=true",)),
        ("monitoring", ("--set=monitoring.operator=true", "--set=monitoring.dashboard=true")),
    ],
)
def test_a_profile_renders_the_same_objects_as_its_overlay(
    tools: Tools, place: Place, overlay: str, values: tuple[str, ...]
) -> None:
    wanted = tools.built(place.overlay(overlay))
    found = place.render(tools, *WHOLE, *values)
    assert set(found) == set(wanted)
    for name, obj in wanted.items():
        assert found[name] == obj, name


@pytest.mark.parametrize(
    ("component", "value"),
    [("client-certificate", "clientCertificate"), ("metrics-auth", "metricsAuth"), ("ui", "ui")],
)
def test_a_value_adds_the_objects_of_its_component(
    tools: Tools, place: Place, tmp_path: Path, component: str, value: str
) -> None:
    relative = functools.partial(os.path.relpath, start=tmp_path.resolve())
    folder = f"manifests/components{place.variant}/{component}"
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [relative(place.overlay("default"))],
        "components": [relative(ROOT / folder)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    assert place.render(tools, *WHOLE, f"--set={value}=true") == tools.built(tmp_path)


def test_a_release_in_another_namespace_than_the_installation_is_refused(tools: Tools) -> None:
    beside = "--set=besideKyverno=true"
    assert "add --namespace kube-retrofit" in tools.refusal(beside, "--namespace=kyverno")
    assert "add --namespace kyverno" in tools.refusal("--namespace=kube-retrofit")


def test_the_notes_name_the_installed_deployments(tools: Tools, place: Place) -> None:
    to = (f"--namespace={place.namespace}", *place.values)
    done = tools.run("install", "kube-retrofit", str(CHART), *to, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    _, _, notes = done.stdout.partition("NOTES:")
    programs = {name for kind, _, name in place.render(tools) if kind == "Deployment"}
    assert set(re.findall(r"deployment/(\S+)", notes)) == programs


def test_settings_reach_the_config_map(tools: Tools, place: Place) -> None:
    name = ("ConfigMap", place.namespace, place.namespace)
    config = tools.built(place.overlay("default"))[name]["data"]
    changed = place.render(tools, "--set=config.excludeUsernames=me")
    assert changed[name]["data"] == {**config, "excludeUsernames": "me"}


def test_values_add_reports_hooks_and_dialects(tools: Tools, place: Place) -> None:
    values = ("--set=crds.reports=true", "--set=hooks=true", "--set=dialects={kubemod,kinitiras}")
    wanted = dict(tools.built(place.overlay("default")))
    for folder in (
        *("crds/reports", "crds/hooks"),
        *(f"manifests/dialects{place.variant}/{name}" for name in ("kubemod", "kinitiras")),
    ):
        wanted |= tools.built(ROOT / folder)
    assert place.render(tools, *WHOLE, *values) == wanted


def test_by_default_the_crds_outlive_the_release(tools: Tools) -> None:
    found = tools.render()
    assert ("Namespace", "", "kyverno") not in found
    kept = {
        name[2]
        for name, item in found.items()
        if item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {name[2] for name in found if name[0] == "CustomResourceDefinition"} != set()
    without = tools.render("--set=crds.install=false")
    assert set(found) - set(without) == {
        name for name in found if name[0] == "CustomResourceDefinition"
    }


def test_values_reach_the_pods(tools: Tools, tmp_path: Path) -> None:
    written = {
        "image": {"repository": "registry.example/retrofit", "tag": "x", "pullSecrets": ["key"]},
        "config": {"excludeUsernames": "robot"},
        "controller": {
            "flags": {"max-in-flight": 134217728, "reports": False, "resync": "1m"},
            "env": [{"name": "TZ", "value": "UTC"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "podLabels": {"team": "platform"},
            "podAnnotations": {"example.com/seen": "yes"},
            "podSpec": {"nodeSelector": {"disk": "ssd"}, "priorityClassName": "high"},
        },
    }
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(written))
    found = tools.render(f"--values={values}")
    default = tools.built(OVERLAYS / "default")
    name = ("Deployment", "kyverno", "kyverno-background-controller")
    template, before = found[name]["spec"]["template"], default[name]["spec"]["template"]
    (container,), (plain,) = template["spec"]["containers"], before["spec"]["containers"]
    assert container["image"] == "registry.example/retrofit:x"
    assert container["args"] == [
        *plain["args"],
        "--max-in-flight=134217728",
        "--reports=false",
        "--resync=1m",
    ]
    assert container["env"] == [*plain["env"], {"name": "TZ", "value": "UTC"}]
    assert container["resources"] == {**plain["resources"], "limits": {"memory": "1Gi"}}
    assert template["metadata"]["labels"] == {**before["metadata"]["labels"], "team": "platform"}
    assert template["metadata"]["annotations"]["example.com/seen"] == "yes"
    assert template["spec"]["imagePullSecrets"] == [{"name": "key"}]
    assert template["spec"]["nodeSelector"] == {**before["spec"]["nodeSelector"], "disk": "ssd"}
    assert template["spec"]["priorityClassName"] == "high"
    config = ("ConfigMap", "kyverno", "kyverno")
    assert found[config]["data"] == {**default[config]["data"], "excludeUsernames": "robot"}
    admission = ("Deployment", "kyverno", "kyverno-admission-controller")
    assert "priorityClassName" in found[admission]["spec"]["template"]["spec"]
    assert "TZ" not in json.dumps(found[admission])


def test_volumes_are_added_to_those_of_a_program(tools: Tools, tmp_path: Path) -> None:
    """A CA for callers, a cue command and an audit log are files."""
    volume = {"name": "ca", "configMap": {"name": "ca-of-callers"}}
    mount = {"name": "ca", "mountPath": "/ca"}
    values = tmp_path / "values.yaml"
    values.write_text(
        yaml.safe_dump({"admission": {"volumes": [volume], "volumeMounts": [mount]}})
    )
    found, default = tools.render(f"--values={values}"), tools.built(OVERLAYS / "default")
    name = ("Deployment", "kyverno", "kyverno-admission-controller")
    pod, before = (
        found[name]["spec"]["template"]["spec"],
        default[name]["spec"]["template"]["spec"],
    )
    assert pod["volumes"] == [*before["volumes"], volume]
    (container,), (plain,) = pod["containers"], before["containers"]
    assert container["volumeMounts"] == [*plain["volumeMounts"], mount]


def test_labels_by_which_prometheus_selects_are_added(tools: Tools, place: Place) -> None:
    found = place.render(
        tools,
        *("--set=monitoring.operator=true", "--set=monitoring.labels.release=prometheus"),
        "--set=metricsAuth=true",
    )
    selected = {
        name[0]
        for name, item in found.items()
        if item["metadata"].get("labels", {}).get("release") == "prometheus"
    }
    assert selected == {"ServiceMonitor", "PrometheusRule"}
    monitors = [item for name, item in found.items() if name[0] == "ServiceMonitor"]
    assert {item["spec"]["endpoints"][0]["scheme"] for item in monitors} == {"https"}


def test_a_disruption_budget_by_unavailable_pods_replaces_the_one_by_available_pods(
    tools: Tools,
) -> None:
    found = tools.render("--set=controller.podDisruptionBudget.maxUnavailable=1")
    name = ("PodDisruptionBudget", "kyverno", "kyverno-background-controller")
    assert found[name]["spec"]["maxUnavailable"] == 1
    assert "minAvailable" not in found[name]["spec"]


def test_a_spread_with_a_selector_of_its_own_keeps_it(tools: Tools) -> None:
    selector = {"matchLabels": {"team": "platform"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    found = tools.render(
        f"--set-json=admission.podSpec.topologySpreadConstraints={json.dumps([spread])}"
    )
    name = ("Deployment", "kyverno", "kyverno-admission-controller")
    (rendered,) = found[name]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert rendered["labelSelector"] == selector


def test_an_image_that_is_called_latest_is_pulled_as_the_values_say(tools: Tools) -> None:
    """Without a pull policy, Kubernetes would pull it each time that a Pod starts."""
    found = tools.render("--set=image.tag=latest", "--set=ui=true")
    policies = [
        container.get("imagePullPolicy")
        for (kind, _, _), item in found.items()
        if kind == "Deployment"
        for container in item["spec"]["template"]["spec"]["containers"]
    ]
    assert policies == ["IfNotPresent"] * 3


def test_an_unknown_value_is_refused_with_its_name(tools: Tools) -> None:
    here = "--namespace=kyverno"
    assert "'/dialects/0': value must be one of" in tools.refusal(here, "--set=dialects={klingon}")
    assert "log-levle" in tools.refusal(here, "--set=admission.flags.log-levle=debug")
    assert "'excludeUsername' not allowed" in tools.refusal(here, "--set=config.excludeUsername=x")


def test_the_admission_server_can_have_the_network_of_its_node(tools: Tools) -> None:
    page = (ROOT / "docs/how-to/install.md").read_text()
    given = re.findall(r"--set (admission\.podSpec\S+)", page)
    pod = tools.render(*(f"--set={flag}" for flag in given))[
        "Deployment", "kyverno", "kyverno-admission-controller"
    ]["spec"]["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


def test_a_label_that_selects_the_pods_cannot_be_changed(tools: Tools) -> None:
    found = tools.render()["Deployment", "kyverno", "kyverno-background-controller"]
    selected = found["spec"]["selector"]["matchLabels"]
    for label, value in selected.items():
        given = f"--set-json=controller.podLabels={json.dumps({label: 'other'})}"
        said = tools.refusal("--namespace=kyverno", given)
        assert f"kyverno-background-controller selects its Pods by {label}" in said
        tools.render(f"--set-json=controller.podLabels={json.dumps({label: value})}")


def test_the_packaged_chart_renders_the_same_objects(tools: Tools, tmp_path: Path) -> None:
    done = tools.run("package", str(CHART), f"--destination={tmp_path}")
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.iterdir()
    assert tools.render(chart=archive) == tools.render()


def test_the_chart_passes_helm_lint(tools: Tools) -> None:
    done = tools.run("lint", "--strict", str(CHART), "--namespace=kyverno")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def plane(tools: Tools, own_control_plane: ControlPlane) -> ControlPlane:
    own_control_plane.kubectl("create", "namespace", "kyverno")
    return own_control_plane


def test_a_release_is_installed_upgraded_and_uninstalled(
    tools: Tools, plane: ControlPlane
) -> None:
    to = (f"--kubeconfig={plane.kubeconfig}", "--namespace=kyverno", "--wait=hookOnly")

    def versions() -> Any:
        listed = plane.kubectl(
            *("get", "clusterroles,roles,deployments,configmaps,crds", "-A", "-o"),
            "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} "
            "{.metadata.labels}{.rules}{.data}{'\\n'}{end}",
        )
        return sorted(line for line in listed.splitlines() if "retrofit" in line)

    installed = tools.run("install", "kube-retrofit", str(CHART), *to)
    assert installed.returncode == 0, installed.stderr
    assert "can change none of your objects" in installed.stdout
    before = versions()
    again = tools.run("upgrade", "kube-retrofit", str(CHART), *to)
    assert (again.returncode, versions()) == (0, before), again.stderr
    changed = tools.run("upgrade", "kube-retrofit", str(CHART), *to, "--set=controller.replicas=3")
    assert changed.returncode == 0, changed.stderr
    replicas = ("deployment", "kyverno-background-controller", "-o", "jsonpath={.spec.replicas}")
    assert plane.kubectl("get", "-n", "kyverno", *replicas) == "3"
    gone = tools.run("uninstall", "kube-retrofit", *to[:2])
    assert gone.returncode == 0, gone.stderr
    assert plane.kubectl("get", "deployments", "-n", "kyverno", "-o", "name") == ""
    assert "updaterequests.kyverno.io" in plane.kubectl("get", "crds", "-o", "name")


def test_a_release_takes_over_what_the_manifests_installed(
    tools: Tools, plane: ControlPlane
) -> None:
    to = (f"--kubeconfig={plane.kubeconfig}", "--namespace=kyverno", "--wait=hookOnly")
    plane.kubectl("apply", "--server-side", "-k", str(OVERLAYS / "default"))
    installed = tools.run("install", "kube-retrofit", str(CHART), *to, "--take-ownership")
    assert installed.returncode == 0, installed.stderr
    changed = ("upgrade", "kube-retrofit", str(CHART), *to, "--set=controller.replicas=3")
    assert "conflict" in tools.run(*changed).stderr
    first = tools.run(*changed, "--force-conflicts")
    assert first.returncode == 0, first.stderr
    second = tools.run(*changed, "--set=controller.replicas=4")
    assert second.returncode == 0, second.stderr
