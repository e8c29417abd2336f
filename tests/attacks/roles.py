"""The attackers: a peer without credentials, and four users with the rights of their roles."""

import asyncio
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from devcluster.install import NAMESPACE
from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, config_map

RESOURCE_PATH = "/validate/fail"
_POLICIES = {"apiGroups": ["kyverno.io"], "resources": ["policies"], "verbs": ["*"]}
_CLUSTER_POLICIES = {"apiGroups": ["kyverno.io"], "resources": ["clusterpolicies"], "verbs": ["*"]}
_PERSON = "rbac.authorization.k8s.io"


def names(namespace: str) -> dict[str, str]:
    """Return the user names of a test's namespace by role."""
    return {
        role: f"{role}:{namespace}"
        for role in (
            "namespace-admin",
            "policy-writer",
            "cluster-policy-writer",
            "request-operator",
        )
    }


def rights(namespace: str, users: dict[str, str]) -> list[Object]:
    """Return the RBAC objects that grant each user the rights of their role, and no more."""
    return [
        _bind(namespace, namespace, users["namespace-admin"], "ClusterRole", "admin"),
        # The overlay ``tenants`` grants this role in the same way.
        _bind(
            f"tenant-{namespace}",
            namespace,
            users["namespace-admin"],
            "ClusterRole",
            "kyverno:rbac:admin:policies",
        ),
        _role(f"writer-{namespace}", namespace, _POLICIES),
        _bind(f"writer-{namespace}", namespace, users["policy-writer"], "Role"),
        _role(f"writer-{namespace}", "", _CLUSTER_POLICIES),
        _bind(f"writer-{namespace}", "", users["cluster-policy-writer"], "ClusterRole"),
        _bind(
            f"operator-{namespace}",
            NAMESPACE,
            users["request-operator"],
            "ClusterRole",
            "kyverno:rbac:operate:updaterequests",
        ),
    ]


def _role(name: str, namespace: str, *rules: Object) -> Object:
    kind = "Role" if namespace else "ClusterRole"
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": f"{_PERSON}/v1", "kind": kind, "metadata": meta, "rules": list(rules)}


def _bind(name: str, namespace: str, user: str, kind: str, role: str = "") -> Object:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": f"{_PERSON}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _PERSON, "kind": kind, "name": role or name},
        "subjects": [{"apiGroup": _PERSON, "kind": "User", "name": user}],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The four users, each with a rig of their own that acts with their rights.

    Attributes:
        users: The user names by role.
    """

    users: dict[str, str]
    namespace_admin: Rig
    policy_writer: Rig
    cluster_policy_writer: Rig
    request_operator: Rig


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The webhook's answer to a peer, with status 0 if there was no HTTP response."""

    status: int
    body: Any = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A Pod without credentials that reaches the webhook's port.

    Attributes:
        url: The URL of the admission server, without a path.
    """

    url: str

    async def post(self, review: Any, path: str = RESOURCE_PATH, within: float = 60.0) -> Answer:
        """Send a review, as the API server does, or arbitrary bytes."""
        return await asyncio.to_thread(self._post, review, path, within)

    def _post(self, review: Any, path: str, within: float) -> Answer:
        body = review if isinstance(review, bytes) else json.dumps(review).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", body, headers)
        context = ssl.create_default_context()
        # An attacker does not verify the server's certificate.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=within, context=context) as answer:
                return Answer(status=answer.status, body=json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            return Answer(status=error.code, problem=error.read().decode(errors="replace"))
        except OSError as error:
            return Answer(status=0, problem=str(error))


@dataclass(slots=True, kw_only=True)
class Neighbour:
    """Another tenant, whose writes are timed to see how an attack affects it.

    Attributes:
        seconds: The duration of each write.
        refused: The errors of refused writes.
    """

    rig: Rig
    every: float = 0.1
    seconds: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def work(self, mark: str = "0") -> None:
        """Create ConfigMaps until cancelled; each call needs a mark of its own for their names."""
        number = 0
        while True:
            begun = time.monotonic()
            name = f"neighbour-{mark}-{number}"
            try:
                await self.rig.create(config_map(self.rig.namespace, name))
            except ClusterError as error:
                self.refused.append(str(error))
            self.seconds.append(time.monotonic() - begun)
            number += 1
            await asyncio.sleep(self.every)
