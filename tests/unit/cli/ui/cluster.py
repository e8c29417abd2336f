"""The objects that the API server of these tests serves."""

from typing import Any

from reconciler.api.meta import Object
from tests.unit.kube.conftest import Api

APIS = "GET /apis/kyverno.io"
REQUESTS = f"{APIS}/v2/namespaces/kyverno/updaterequests"
LEASES = "GET /apis/coordination.k8s.io/v1/namespaces/kyverno/leases"
EVIL = "<img src=x onerror=alert(1)>"


def name(number: int) -> str:
    return f"ur-{number:032x}"


def policy(title: str, **figures: Any) -> Object:
    condition = {"type": "Ready", "status": "True", "message": "Ready"}
    return {
        "metadata": {"name": title},
        "status": {"conditions": [condition], "mutateExisting": figures},
    }


def request(number: int, state: str, *, trigger: str = "settings", **status: Any) -> Object:
    return {
        "metadata": {
            "name": name(number),
            "namespace": "kyverno",
            "creationTimestamp": "2026-06-01T12:00:00Z",
            "labels": {"kube-retrofit.dev/shard": "1"},
        },
        "spec": {
            "requestType": "mutate",
            "policy": "reload",
            "rule": "settings-changed",
            "source": "admission",
            "resource": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "namespace": "shop",
                "name": trigger,
            },
            "context": {"userInfo": {"userInfo": {"username": "s3cret-user"}}},
            "recorded": {"oldObject": {"data": {"password": "s3cret-data"}}},
        },
        "status": {"state": state, **status},
    }


class Cluster:
    """Serves policies and requests as of the last `tell`.

    Attributes:
        api: The server.
        policies: The policies that it lists.
        requests: The requests, by name.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.policies = [
            policy("reload", triggers=40, patched=38, failed=1, lastError=EVIL, pending=2),
            policy(
                "rollout",
                pending=1,
                running={"existing": 30, "total": 120, "eta": "9s"},
                message="30 of 120 existing objects looked at, 9s left",
            ),
        ]
        failed = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "namespace": "shop",
            "name": "web",
            "resourceVersionBefore": "7",
            "outcome": "Failed",
            "message": EVIL,
            "attempts": 3,
        }
        found = [
            request(1, "Completed", reason="Applied"),
            request(2, "Failed", reason="TargetFailed", message=EVIL, targets=[failed]),
            request(3, "Pending", trigger="weather"),
        ]
        self.requests = {item["metadata"]["name"]: item for item in found}
        self.tell()

    def tell(self) -> None:
        """Serve the current policies and requests from now on."""
        self.api.answers.clear()
        lists = {
            f"{APIS}/v1/clusterpolicies": self.policies,
            f"{APIS}/v1/policies": [],
            REQUESTS: list(self.requests.values()),
        }
        for route, items in lists.items():
            self.api.answer(route, {"metadata": {}, "items": items})
        for key, item in self.requests.items():
            self.api.answer(f"{REQUESTS}/{key}", item)
        details = {"name": name(9), "kind": "updaterequests"}
        gone = {"kind": "Status", "reason": "NotFound", "message": "not found", "details": details}
        self.api.answer(f"{REQUESTS}/{name(9)}", (404, gone))
        for lease in ("kube-retrofit-controller", "kube-retrofit-admission"):
            spec = {"holderIdentity": "one", "renewTime": "2199-01-01T00:00:00Z"}
            self.api.answer(f"{LEASES}/{lease}", {"spec": spec})
