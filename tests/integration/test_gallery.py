"""The gallery on a cluster: all policies together have the effects that their folders show."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.install import NAMESPACE
from devcluster.programs import Programs
from devcluster.waiting import wait_until
from reconciler.api.meta import Object
from reconciler.errors import Unavailable
from tests.architecture.conftest import ROOT
from tests.faults.rig import open_rig

pytestmark = pytest.mark.cluster

GALLERY = ROOT / "docs/gallery"
ENTRIES = sorted(path.parent for path in GALLERY.glob("*/policy.yaml"))
SETTINGS = ("configmap", "kyverno", "-n", NAMESPACE)
FILTERED = ("[Node,*,*]", "[Pod/binding,*,*]")
"""Entries of the shipped `resourceFilters` that keep a policy of the gallery from firing."""
Key = tuple[str, str, str]


def documents(*files: Path) -> list[Object]:
    """Return the objects of files, in their order."""
    texts = (file.read_text() for file in files if file.exists())
    return [item for text in texts for item in yaml.safe_load_all(text)]


def all_of(name: str) -> list[Object]:
    return documents(*(entry / name for entry in ENTRIES))


def key(obj: Object) -> Key:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def listed(objects: list[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


class Gallery:
    """All policies of the gallery in one cluster, with their triggers and targets.

    Attributes:
        before: The objects of the files ``before.yaml`` as stored before the policies, by key.
        versions: The stored resourceVersions of the triggers, by their placeholders in the files.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.kubectl: Callable[..., str] = cluster.kubectl
        self.triggers = all_of("trigger.yaml")
        self.before: dict[Key, Object] = {}
        self.versions: dict[str, str] = {}

    def objects(self, objects: list[Object]) -> dict[Key, Object]:
        """Return the objects as they are stored now, by key."""
        text = self.kubectl("get", "-f", "-", "-o", "json", stdin=listed(objects))
        found = json.loads(text)
        return {key(item): item for item in found.get("items", [found])}

    def stand(self) -> None:
        """Create the namespaces, triggers and targets that exist before the policies."""
        targets = all_of("before.yaml")
        spaces = {item["metadata"].get("namespace", "") for item in targets + self.triggers}
        spaces -= {"", *(item["metadata"]["name"] for item in self.triggers)}
        self.apply([named("Namespace", name) for name in sorted(spaces)])
        # A Pod needs its namespace's default account, and a changed trigger must exist before.
        pods = {item["metadata"]["namespace"] for item in targets if item["kind"] == "Pod"}
        for name in pods:
            self.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name)
        bare = [without_version(item) for item in self.triggers]
        self.apply([*(item for item in bare if item["kind"] == "Namespace"), *bare, *targets])
        self.before = self.objects(targets)
        stored = self.objects(bare)
        for item in self.triggers:
            if version := item["metadata"].get("resourceVersion"):
                self.versions[version] = stored[key(item)]["metadata"]["resourceVersion"]

    def rule(self) -> None:
        """Apply the policies with their roles, and wait until all policies are ready."""
        policies = all_of("policy.yaml")
        self.apply(all_of("role.yaml"))
        self.apply(policies)
        names = [f"clusterpolicy/{item['metadata']['name']}" for item in policies]
        self.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *names)

    def change(self) -> None:
        """Annotate every trigger, and bind Pods as a scheduler does."""
        bare = [without_version(item) for item in self.triggers]
        self.kubectl("annotate", "-f", "-", "example.com/seen=yes", stdin=listed(bare))
        for item in all_of("binding.yaml"):
            place, name = item["metadata"]["namespace"], item["metadata"]["name"]
            path = f"/api/v1/namespaces/{place}/pods/{name}/binding"
            self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(item))

    def apply(self, objects: list[Object]) -> None:
        self.kubectl("apply", "-f", "-", stdin=listed(objects))

    def forget(self) -> None:
        """Delete the policies, roles and Nodes, which would affect other tests of the cluster."""
        left = [*all_of("policy.yaml"), *all_of("role.yaml")]
        left += [item for item in all_of("before.yaml") + self.triggers if item["kind"] == "Node"]
        self.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=listed(left))


def named(kind: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def without_version(obj: Object) -> Object:
    meta = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": meta}


@pytest.fixture(scope="module")
def gallery(live_programs: Programs) -> Iterator[Gallery]:
    """The whole gallery in one cluster, where each folder uses namespaces of its own."""
    cluster = live_programs.cluster
    asyncio.run(alive(live_programs))
    settings = json.loads(cluster.kubectl("get", *SETTINGS, "-o", "json"))["data"]
    filters = settings["resourceFilters"]
    changed = filters
    for entry in FILTERED:
        changed = changed.replace(entry, "")
    found = Gallery(cluster)
    filter_by(cluster, changed)
    try:
        found.stand()
        found.rule()
        found.change()
        yield found
    finally:
        found.forget()
        filter_by(cluster, filters)


def filter_by(cluster: Cluster, filters: str) -> None:
    patch = json.dumps({"data": {"resourceFilters": filters}})
    cluster.kubectl("patch", *SETTINGS, "--type=merge", "-p", patch)


async def alive(programs: Programs) -> None:
    """Restart the programs that an earlier test left dead."""
    async with open_rig(programs.cluster, programs, "gallery"):
        pass


def missing(wanted: Any, live: Any, versions: dict[str, str]) -> str:
    """Return where a stored object first differs from a document; empty if it contains it all."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            if lack := missing(value, (live or {}).get(name), versions):
                return f".{name}{lack}"
        return ""
    if isinstance(wanted, list):
        if len(wanted) != len(live or ()):
            return f": {live}"
        pairs = zip(wanted, live, strict=True)
        lacks = (missing(left, right, versions) for left, right in pairs)
        return next((f"[{lack}]" for lack in lacks if lack), "")
    for stands, version in versions.items():
        wanted = wanted.replace(stands, version) if isinstance(wanted, str) else wanted
    return "" if wanted == live else f": {live!r}, wanted {wanted!r}"


def body(obj: Object) -> Object:
    """Return the parts of an object that a policy may change: its labels and its content."""
    fixed = {"metadata", "status"}
    labels = obj["metadata"].get("labels") or {}
    return {"labels": labels} | {name: part for name, part in obj.items() if name not in fixed}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_leaves_the_objects_of_its_after_file(gallery: Gallery, entry: Path) -> None:
    wanted = documents(entry / "after.yaml")
    written = (
        item["metadata"].get("resourceVersion") for item in documents(entry / "trigger.yaml")
    )
    versions = {item: gallery.versions[item] for item in written if item}

    def lacking() -> list[str]:
        live = gallery.objects(wanted)
        pairs = ((item, missing(item, live[key(item)], versions)) for item in wanted)
        return [f"{key(item)}{lack}" for item, lack in pairs if lack]

    with contextlib.suppress(Unavailable):
        wait_until(lambda: not lacking(), within=30.0, what="the objects are as in after.yaml")
    assert lacking() == []
    changed = {key(item) for item in wanted}
    others = [item for item in documents(entry / "before.yaml") if key(item) not in changed]
    if others:
        live = gallery.objects(others)
        for item in others:
            assert body(live[key(item)]) == body(gallery.before[key(item)])
