"""The chart agrees with the programs and the manifests."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from devcluster.chart import CHART, schema
from tests.architecture.conftest import ROOT
from tests.architecture.test_packaging import PROJECT

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
MANIFESTS = ROOT / "manifests"
PROFILES = sorted((CHART / "profiles").glob("*.yaml"))


def merged(values: Any, more: Any) -> Any:
    """Return values with more of them, as Helm merges them; null removes a value."""
    if not (isinstance(values, dict) and isinstance(more, dict)):
        return more
    both = {**values, **{name: merged(values.get(name), value) for name, value in more.items()}}
    return {name: value for name, value in both.items() if value is not None}


def objects_in(folder: Path, kind: str) -> Iterator[Any]:
    """Yield the objects of a kind in all files below a folder."""
    for file in folder.rglob("*.yaml"):
        for item in yaml.safe_load_all(file.read_text()):
            if item and item.get("kind") == kind:
                yield item


def test_the_schema_agrees_with_the_settings() -> None:
    stored = json.loads((CHART / "values.schema.json").read_text())
    assert stored == schema(), "run python -m devcluster.chart"


def test_the_chart_has_the_version_of_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (PROJECT["version"],) * 2


def test_every_image_has_the_version_of_the_programs() -> None:
    """kustomize does not apply the image tag of a base to the objects of a component."""
    for folder in ("base", "beside", "components/ui", "components-beside/ui"):
        written = yaml.safe_load((ROOT / "manifests" / folder / "kustomization.yaml").read_text())
        assert [image["newTag"] for image in written["images"]] == [PROJECT["version"]]


def test_every_value_has_a_default() -> None:
    wanted = set(schema()["properties"]) - {"global"}
    assert set(VALUES) == wanted
    for name in ("image", "crds", "monitoring", "admission", "controller"):
        assert set(VALUES[name]) == set(schema()["properties"][name]["properties"])


@pytest.mark.parametrize("file", PROFILES, ids=lambda file: file.stem)
def test_a_profile_fits_the_schema(file: Any) -> None:
    jsonschema.validate(merged(VALUES, yaml.safe_load(file.read_text())), schema())


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"admission": {"flags": {"log-levle": "debug"}}}, "log-levle"),
        ({"controller": {"flags": {"resync": "soon"}}}, "resync"),
        ({"admission": {"flags": {"namespace": "other"}}}, "namespace"),
        ({"admission": {"replicas": 0}}, "replicas"),
        ({"replicas": 3}, "replicas"),
        ({"controller": {"flags": {"lanes": 0}}}, "lanes"),
        # Two replicas with one uid would both lead.
        ({"controller": {"flags": {"pod-uid": "one"}}}, "pod-uid"),
        ({"dialects": ["kubemods"]}, "dialects"),
        ({"dialects": ["kubemod", "kubemod"]}, "dialects"),
        ({"admission": {"env": [{"name": "HTTPS_PROXY", "value": 1}]}}, "value"),
        ({"admission": {"podDisruptionBudget": {"minAvailabel": 1}}}, "minAvailabel"),
        ({"controller": {"resources": {"limit": {"memory": "1Gi"}}}}, "limit"),
        # What follows is written in a file of values with nothing below the name.
        ({"config": None}, "config"),
        ({"admission": {"podSpec": None}}, "podSpec"),
    ],
)
def test_an_unknown_or_invalid_value_is_refused(values: Any, place: str) -> None:
    with pytest.raises(jsonschema.ValidationError) as caught:
        jsonschema.validate(merged(VALUES, values), schema())
    assert place in f"{caught.value.json_path} {caught.value.message}"


def test_no_time_may_be_written_as_a_number() -> None:
    values = {"controller": {"flags": {"catch-up-interval": 0, "retain-completed": "0"}}}
    jsonschema.validate(merged(VALUES, values), schema())
    values = {"controller": {"flags": {"catch-up-interval": 5}}}
    with pytest.raises(jsonschema.ValidationError, match="5"):
        jsonschema.validate(merged(VALUES, values), schema())


def test_the_chart_links_to_the_manifests() -> None:
    for link, folder in {
        "base": "manifests/base",
        "beside": "manifests/beside",
        "components": "manifests/components",
        "components-beside": "manifests/components-beside",
        "crds": "crds",
        "dialects": "manifests/dialects",
        "dialects-beside": "manifests/dialects-beside",
        "monitoring": "manifests/monitoring",
        "monitoring-beside": "manifests/monitoring-beside",
        "overlays": "manifests/overlays",
    }.items():
        assert (CHART / "files" / link).resolve() == ROOT / folder


def test_no_role_is_aggregated_into_another_one() -> None:
    """If both roles are deleted at once, the cluster writes the aggregated one again.

    Overlays are excluded: their roles stand for roles that users add.
    """
    roles = [
        item
        for folder in MANIFESTS.iterdir()
        if folder.name != "overlays"
        for item in objects_in(folder, "ClusterRole")
    ]
    wanted = [
        selector["matchLabels"].items()
        for role in roles
        for selector in role.get("aggregationRule", {}).get("clusterRoleSelectors", [])
    ]
    assert len(wanted) >= 10
    names = {
        role["metadata"]["name"]
        for role in roles
        for labels in wanted
        if labels <= role["metadata"].get("labels", {}).items()
    }
    assert names == set()


def test_a_container_with_a_read_only_file_system_mounts_a_tmp_folder() -> None:
    """The programs exit at once if Python finds no folder for temporary files."""
    deployments = [
        item for item in objects_in(MANIFESTS, "Deployment") if "template" in item["spec"]
    ]
    containers = [
        (item["metadata"]["name"], container)
        for item in deployments
        for container in item["spec"]["template"]["spec"]["containers"]
        if (container.get("securityContext") or {}).get("readOnlyRootFilesystem")
    ]
    without = {
        name
        for name, container in containers
        if "/tmp" not in [mount["mountPath"] for mount in container.get("volumeMounts", ())]
    }
    assert (len(containers) > 4, without) == (True, set())


def test_the_sizing_page_agrees_with_the_resources_of_the_manifests() -> None:
    page = (ROOT / "docs/reference/sizing.md").read_text()
    row = re.compile(r"^\| `(retrofit[\w -]*)` \| (\d+m \| \w+ \| \w+) \|$", re.MULTILINE)
    said = dict(row.findall(page))
    asked = {}
    for file in ("base/admission", "base/background", "components/ui/ui"):
        for item in yaml.safe_load_all((ROOT / "manifests" / f"{file}.yaml").read_text()):
            if item["kind"] == "Deployment":
                (container,) = item["spec"]["template"]["spec"]["containers"]
                wanted, most = (container["resources"][name] for name in ("requests", "limits"))
                figures = (wanted["cpu"], wanted["memory"], most["memory"])
                asked[" ".join(container["command"])] = " | ".join(figures)
    assert said == asked
