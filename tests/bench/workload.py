"""The objects of the runs: pairs of a trigger and a target, the policy for them, the rights."""

from dataclasses import dataclass
from typing import Any

import orjson

SYSTEM = "kyverno"
LABEL = "retrofit-bench"
POLICY = "retrofit-bench"
RULE = "label-secret"
SECRET_BYTES = 1024
_REQUESTS = f"/apis/kyverno.io/v2/namespaces/{SYSTEM}/updaterequests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A ConfigMap that is the trigger, and the Secret of the same name that is its target."""

    namespace: str
    name: str

    @property
    def trigger(self) -> bytes:
        """The ConfigMap."""
        return orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name},
                "data": {"key": "value"},
            }
        )

    @property
    def target(self) -> bytes:
        """The Secret."""
        return orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self.name},
                "stringData": {"payload": "x" * SECRET_BYTES},
            }
        )

    @property
    def request(self) -> bytes:
        """An UpdateRequest as the admission server would record it."""
        resource = {"apiVersion": "v1", "kind": "ConfigMap"}
        return orjson.dumps(
            {
                "apiVersion": "kyverno.io/v2",
                "kind": "UpdateRequest",
                "metadata": {"name": f"ur-bare-{self.name}", "namespace": SYSTEM},
                "spec": {
                    "requestType": "mutate",
                    "policy": POLICY,
                    "rule": RULE,
                    "resource": {**resource, "namespace": self.namespace, "name": self.name},
                    "source": "admission",
                    "context": {"admissionRequestInfo": {"operation": "CREATE"}},
                },
            }
        )

    def patch(self, version: str) -> bytes:
        """Return the patch of the Secret, guarded by the resourceVersion that was read."""
        meta = {"resourceVersion": version, "labels": {LABEL: "patched"}}
        return orjson.dumps({"metadata": meta})

    @property
    def status(self) -> bytes:
        """The final status of the UpdateRequest."""
        target = {"apiVersion": "v1", "kind": "Secret", "name": self.name, "outcome": "Patched"}
        counts = {"matched": 1, "patched": 1}
        status = {"state": "Completed", "attempts": 1, "targets": [target], "counts": counts}
        return orjson.dumps({"status": status})

    @property
    def triggers_path(self) -> str:
        """The path at which triggers are created."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def targets_path(self) -> str:
        """The path at which targets are created."""
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    @property
    def target_path(self) -> str:
        """The path of the target."""
        return f"{self.targets_path}/{self.name}"

    @property
    def request_path(self) -> str:
        """The path of the bare run's UpdateRequest."""
        return f"{_REQUESTS}/ur-bare-{self.name}"


def pairs(namespace: str, count: int) -> list[Pair]:
    """Return ``count`` pairs in a namespace."""
    return [Pair(namespace=namespace, name=f"pair-{index:05}") for index in range(count)]


def requests_path(selector: str = "") -> str:
    """Return the path of UpdateRequests, with a field selector if one is given."""
    return f"{_REQUESTS}?fieldSelector={selector}" if selector else _REQUESTS


def rights() -> dict[str, Any]:
    """Return the ClusterRole that allows the controller to change Secrets, by aggregation."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "kyverno:background-controller:bench",
            "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
        },
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "verbs": ["get", "list", "update", "patch"],
            }
        ],
    }


def policy(namespaces: list[str]) -> dict[str, Any]:
    """Return the policy: a ConfigMap's creation labels the Secret of the same name."""
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "rules": [
                {
                    "name": RULE,
                    "match": {
                        "any": [
                            {
                                "resources": {
                                    "kinds": ["ConfigMap"],
                                    "names": ["pair-*"],
                                    "namespaces": namespaces,
                                    "operations": ["CREATE"],
                                }
                            }
                        ]
                    },
                    "mutate": {
                        "targets": [
                            {
                                "apiVersion": "v1",
                                "kind": "Secret",
                                "name": "{{ request.object.metadata.name }}",
                                "namespace": "{{ request.object.metadata.namespace }}",
                            }
                        ],
                        "patchStrategicMerge": {"metadata": {"labels": {LABEL: "patched"}}},
                    },
                }
            ]
        },
    }
