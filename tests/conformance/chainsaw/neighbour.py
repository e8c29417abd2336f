"""The objects of a running Kyverno in a cluster: kinds, policies, requests, renewed Leases."""

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from devcluster.cluster import Cluster, ControlPlane
from reconciler.api.updaterequest import render_time
from reconciler.cli.manifests import find_manifests
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError
from reconciler.installation import REPLACING
from reconciler.services.upkeep.coexistence import LEASES

_RENEWED_EVERY = 10.0
"""Seconds. A Kyverno counts as gone thirty seconds after its last renewal."""
KINDS = ("clusterpolicies", "policies", "policyexceptions", "updaterequests")


def _objects() -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REPLACING.namespace}}
    rule = {
        "name": "all-config-maps",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap", "Secret", "Namespace"]}}]},
        "mutate": {
            "targets": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "*"}],
            "patchStrategicMerge": {"metadata": {"labels": {"touched-by": "the-other-one"}}},
        },
    }
    for kind, place in (("ClusterPolicy", {}), ("Policy", {"namespace": "default"})):
        yield {
            "apiVersion": "kyverno.io/v1",
            "kind": kind,
            "metadata": {"name": "theirs", **place},
            "spec": {"rules": [rule]},
        }
    yield {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["*"]}}]},
            "exceptions": [{"policyName": "*", "ruleNames": ["*"]}],
        },
    }
    yield {
        "apiVersion": "kyverno.io/v2",
        "kind": "UpdateRequest",
        "metadata": {"name": "ur-theirs", "namespace": REPLACING.namespace},
        "spec": {
            "requestType": "mutate",
            "policy": "theirs",
            "rule": "all-config-maps",
            "resource": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "a",
                "namespace": "default",
            },
            "context": {},
        },
    }


def _lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": REPLACING.namespace},
        "spec": {"holderIdentity": "kyverno-0", "renewTime": render_time(SystemClock().now())},
    }


def _apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


@contextlib.contextmanager
def living_kyverno(cluster: Cluster) -> Iterator[None]:
    """Create the objects of a Kyverno in a cluster, and renew its Leases within the context."""
    folder = find_manifests() / "crds"
    cluster.kubectl("apply", "--server-side", "-k", str(folder))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    _apply(cluster, *_objects(), *map(_lease, LEASES))
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEWED_EVERY):
            with contextlib.suppress(ClusterError):
                _apply(cluster, *map(_lease, LEASES))

    thread = threading.Thread(target=renew, name="a living Kyverno")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def stored(cluster: Cluster) -> dict[str, str]:
    """Return the resourceVersion of each object of Kyverno's kinds."""
    kinds = ",".join(f"{kind}.{REPLACING.group}" for kind in KINDS)
    found = json.loads(cluster.kubectl("get", kinds, "-A", "-o", "json"))["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for item in found
    }


def calls(plane: ControlPlane) -> Iterator[tuple[str, str, str]]:
    """Yield user, verb and URI of the calls of kube-retrofit's programs in the audit log."""
    assert plane.audit_log is not None
    for line in plane.audit_log.read_text().splitlines():
        event = json.loads(line)
        users = [event["user"]["username"], event.get("impersonatedUser", {}).get("username", "")]
        for user in users:
            if user.startswith("system:serviceaccount:kube-retrofit:"):
                yield user, event["verb"], event["requestURI"]


def is_of_kyverno(address: str) -> bool:
    """Return whether a URI addresses an object of Kyverno's kinds or one of its Leases.

    Other objects in its namespace are valid targets: a policy may apply to all namespaces.
    """
    leases = f"/namespaces/{REPLACING.namespace}/leases"
    return REPLACING.group in address or leases in address
