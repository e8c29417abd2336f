"""Public policies with targets, unchanged: each works, or its status names what prevents it.

The data is outside of the project (`CONFORMANCE_DATA`); the tests name none of the policies.
"""

import asyncio
import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.conformance.data import required, root
from tests.faults.rig import Rig

pytestmark = pytest.mark.cluster

ROLE = "\n\n"
"""The separator between the text of a refusal and the role that it contains."""
TEMPLATE = {
    "metadata": {"labels": {"app": "public"}},
    "spec": {"containers": [{"name": "c", "image": "registry.invalid/c:1"}]},
}
SPECS: Mapping[str, Object] = {
    "ConfigMap": {"apiVersion": "v1"},
    "Secret": {"apiVersion": "v1"},
    "Namespace": {"apiVersion": "v1"},
    "Deployment": {
        "apiVersion": "apps/v1",
        "spec": {"selector": {"matchLabels": {"app": "public"}}, "template": TEMPLATE},
    },
}
"""Kinds of triggers that a test can create; a policy on others must report an obstacle."""


def policies() -> Iterator[tuple[Path, Object]]:
    """Yield the policies of the data that have targets."""
    for path in sorted((root() / "library").rglob("*.y*ml")):
        for document in yaml.safe_load_all(path.read_text()):
            if not isinstance(document, dict) or document.get("kind") != "ClusterPolicy":
                continue
            rules = (document.get("spec") or {}).get("rules") or ()
            if any((rule.get("mutate") or {}).get("targets") for rule in rules):
                yield path, document


def trigger(policy: Object, namespace: str) -> Object | None:
    """Return an object that matches a policy's first rule, or None for a kind not in `SPECS`."""
    found = policy["spec"]["rules"][0]["match"]["any"][0]["resources"]
    kind = found["kinds"][0]
    if kind not in SPECS:
        return None
    meta: Object = {"name": (found.get("names") or [f"{namespace}-trigger"])[0]}
    if kind != "Namespace":
        meta["namespace"] = (found.get("namespaces") or [namespace])[0]
    meta["labels"] = dict((found.get("selector") or {}).get("matchLabels") or {})
    meta["annotations"] = dict(found.get("annotations") or {})
    return {"kind": kind, "metadata": meta, **copy.deepcopy(SPECS[kind])}


async def kubectl(rig: Rig, *words: str, stdin: Object | str = "") -> str:
    """Run kubectl, and return the refusal or the warnings, or an empty text."""
    text = stdin if isinstance(stdin, str) else json.dumps(stdin)
    try:
        await asyncio.to_thread(rig.cluster.kubectl, *words, "--warnings-as-errors", stdin=text)
    except ClusterError as error:
        return str(error)
    return ""


async def apply(rig: Rig, policy: Object) -> tuple[str, str]:
    """Apply a policy and, if it is refused, the role from the refusal and the policy again.

    Returns:
        The warnings when the policy was stored, and the name of the role or an empty text.
    """
    said = await kubectl(rig, "apply", "-f", "-", stdin=policy)
    if "denied the request" not in said:
        return said, ""
    assert "Apply this ClusterRole" in said, said
    role = yaml.safe_load(said.partition(ROLE)[2])
    assert await kubectl(rig, "apply", "-f", "-", stdin=role) == ""
    said = await kubectl(rig, "apply", "-f", "-", stdin=policy)
    assert "denied the request" not in said, said
    return said, role["metadata"]["name"]


async def in_force(rig: Rig, name: str) -> Object:
    """Wait for the Ready condition of a policy, and return it."""
    found: list[Object] = []

    async def missing() -> str:
        policy = await rig.get("ClusterPolicy", name, "")
        found[:] = (policy.get("status") or {}).get("conditions") or []
        return "" if found else "no condition"

    await rig.settle(missing, within=20.0)
    return found[0]


async def fires(rig: Rig, policy: Object, obj: Object) -> bool:
    """Create and change a trigger, and return whether a request of the policy was recorded."""
    namespace = obj["metadata"].get("namespace", "")
    if namespace and await rig.find("Namespace", namespace, "") is None:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await rig.create(made)
    for change in ({}, {"changed": "yes"}):
        meta = obj["metadata"]
        changed = {**meta, "annotations": {**meta["annotations"], **change}}
        await kubectl(rig, "apply", "-f", "-", stdin={**obj, "metadata": changed})
    return bool(await rig.requests(policy["metadata"]["name"]))


async def test_each_public_policy_fires_or_reports_what_holds_it_back(rig: Rig) -> None:
    found = list(policies())
    if not found:
        absent = pytest.fail if required() else pytest.skip
        absent(f"no public policies at {root() / 'library'}: set CONFORMANCE_DATA to the data")
    for path, policy in found:
        name = policy["metadata"]["name"]
        said, role = await apply(rig, policy)
        try:
            condition = await in_force(rig, name)
            assert condition["status"] == "True", (path, condition)
            if condition["message"] != "Ready":
                # The obstacle is in the status, and admission has already reported it.
                held = condition["message"].removeprefix("Ready, but ").partition(":")[2]
                assert held[:60] in said, (path, said, condition)
                continue
            made = trigger(policy, rig.namespace)
            assert made is not None, f"{path}: no trigger can be made, and nothing holds it back"
            assert await fires(rig, policy, made), (path, said)
            await kubectl(rig, "delete", "-f", "-", "--wait=false", stdin=made)
        finally:
            await kubectl(rig, "delete", "cpol", name)
            if role:
                await kubectl(rig, "delete", "clusterrole", role)
