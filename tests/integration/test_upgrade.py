"""An installation of 0.1.0 is upgraded by applying the manifests over it, and loses nothing."""

import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from devcluster.cluster import ControlPlane
from devcluster.install import install
from devcluster.programs import start_programs
from devcluster.waiting import wait_until
from reconciler.api.meta import Object
from tests.architecture.conftest import ROOT

pytestmark = pytest.mark.cluster

HERE = Path(__file__).with_name("upgrade")
BEFORE = [json.loads(line) for line in (HERE / "0.1.0.jsonl").read_text().splitlines()]
PAGE = ROOT / "docs/how-to/upgrade.md"


def named(items: list[Object]) -> set[tuple[str, str, str]]:
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in items
    }


@pytest.fixture
def plane(own_control_plane: ControlPlane) -> ControlPlane:
    """A cluster with an installation of 0.1.0 and the work that it left."""
    apply = ("apply", "--server-side", "-f")
    wave = [item for item in BEFORE if item["kind"] in {"CustomResourceDefinition", "Namespace"}]
    for items in (wave, BEFORE):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        own_control_plane.kubectl(*apply, "-", stdin=text)
    own_control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
    for name in ("stored.yaml", "waiting.yaml"):
        own_control_plane.kubectl(*apply, str(HERE / name))
    return own_control_plane


@pytest.mark.timeout(300)
def test_policies_and_waiting_requests_of_0_1_0_work_after_an_upgrade(plane: ControlPlane) -> None:
    overlay = ROOT / "manifests/overlays/default"
    # The command of the upgrade page, which does not need --force-conflicts.
    plane.kubectl("apply", "--server-side", "-k", str(overlay))
    rendered = list(yaml.load_all(plane.kubectl("kustomize", str(overlay)), yaml.CSafeLoader))
    for kind, namespace, name in named(BEFORE) - named(rendered):
        words = ["delete", kind.lower(), name, *(["-n", namespace] if namespace else [])]
        assert f"kubectl {' '.join(words)}" in PAGE.read_text()
        plane.kubectl(*words)

    get = partial(plane.kubectl, "get", "-o")
    settings = install(plane, "default")
    with start_programs(plane, settings=settings):
        plane.kubectl(
            *("wait", "--for=condition=Ready", "--timeout=60s"),
            *("clusterpolicy/copy-mode", "policy/label", "-n", "shop"),
        )
        state = ("jsonpath={.status.state}", "ur", "left-behind", "-n", "kyverno")
        wait_until(lambda: get(*state) == "Completed", within=60.0, what="left work is done")
        assert get("jsonpath={.data.mode}", "configmap", "copy", "-n", "shop") == "strict"
        change = '{"data":{"mode":"loose"}}'
        plane.kubectl("patch", "configmap", "settings", "-n", "shop", "--type=merge", "-p", change)
        copied = ("jsonpath={.data.mode}", "configmap", "copy", "-n", "shop")
        wait_until(lambda: get(*copied) == "loose", within=30.0, what="new work is done")
