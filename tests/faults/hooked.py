"""Helpers that create Hooks in the namespace of a test and read their statuses."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from reconciler.api.meta import Object
from reconciler.cli.manifests import find_manifests
from tests.faults.rig import REACHES_THE_CONTROLLER, Rig

API = "kube-retrofit.dev/v1alpha1"
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["configmaps", "secrets"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        }
    ],
}


@contextlib.asynccontextmanager
async def with_hooks(rig: Rig) -> AsyncIterator[Rig]:
    """Install the CRDs of hooks and grant rights to hooks; remove hooks and role at the end."""
    rig.cluster.kubectl("apply", "--server-side", "-k", str(find_manifests() / "crds" / "hooks"))
    await rig.learn(API, "Hook")
    await rig.learn(API, "ClusterHook")
    role = f"hooks:{rig.namespace}"
    meta = {"name": role, "labels": {REACHES_THE_CONTROLLER: "true"}}
    await rig.create({**ROLE, "metadata": meta})
    try:
        yield rig
    finally:
        await rig.delete_all("Hook")
        for item in await rig.items("ClusterHook", ""):
            await rig.delete("ClusterHook", item["metadata"]["name"], "")
        await rig.delete("ClusterRole", role, "")

        async def allowed() -> str:
            return "a right on Secrets" if await rig.may("update secrets") else ""

        await rig.settle(allowed, within=20.0)


def hook(namespace: str, name: str, **spec: Any) -> Object:
    """Return a Hook, or a ClusterHook if the namespace is empty."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Hook" if namespace else "ClusterHook"
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def create(name: str, **labels: str) -> Object:
    """Return an operation that creates a ConfigMap."""
    meta = {"name": name, "labels": labels}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"made": "yes"}}
    return {"operation": "Create", "object": obj}


def seeds(**more: Any) -> Object:
    """Return a binding to the ConfigMaps with the label ``seed: yes``."""
    return {
        "name": "seeds",
        "kind": "ConfigMap",
        "labelSelector": {"matchLabels": {"seed": "yes"}},
        "executeHookOnSynchronization": False,
        **more,
    }


def seed(namespace: str, name: str) -> Object:
    """Return a ConfigMap that the binding of `seeds` selects."""
    meta = {"namespace": namespace, "name": name, "labels": {"seed": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


async def status_of(rig: Rig, name: str) -> Mapping[str, Any]:
    """Return the status of a Hook in the test's namespace."""
    found = await rig.get("Hook", name)
    return found.get("status") or {}


async def following(rig: Rig, *names: str) -> None:
    """Wait until Hooks of the test's namespace are Ready in their current generation."""

    async def missing() -> list[str]:
        found = [await rig.get("Hook", name) for name in names]
        return [
            f"{item['metadata']['name']}: {item.get('status')}"
            for item in found
            if not _ready(item)
        ]

    await rig.settle(missing, within=40.0)


def _ready(obj: Object) -> bool:
    status = obj.get("status") or {}
    conditions = {item["type"]: item["status"] for item in status.get("conditions") or ()}
    current = status.get("observedGeneration") == obj["metadata"]["generation"]
    return current and conditions.get("Ready") == "True"


async def made(rig: Rig, label: str = "made-by=hook") -> set[str]:
    """Return the names of the ConfigMaps that hooks have created, selected by their label."""
    items = await rig.items("ConfigMap", labelSelector=label)
    return {item["metadata"]["name"] for item in items}
