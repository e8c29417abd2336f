"""ServiceAccount tokens that expire within a minute, in files that are renewed before that.

The API server issues no token for less than ten minutes. So this module signs the tokens with the
key of the API server and keeps them in Secrets, which the pods mount at the usual path. The
kubelet renews these files as it renews projected tokens.
"""

import base64
import json
import threading
import uuid
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from devcluster.cluster import Cluster
from reconciler.clock import SystemClock

LIFE = 45.0
_LEEWAY = 60.0
"""Seconds for which the API server still accepts an expired token."""
_EVERY = 12.0
_ISSUER = "https://kubernetes.default.svc"
_NAMESPACE = "kyverno"
_PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"


class ShortTokens:
    """Renews the token in a Secret per ServiceAccount until it is closed.

    Attributes:
        first: The tokens with which the pods started.
    """

    def __init__(self, cluster: Cluster, key: Path, accounts: tuple[str, ...]) -> None:
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self.first: list[str] = []
        self._key = loaded
        self._cluster = cluster
        self._clock = SystemClock()
        self._uids = {
            name: cluster.kubectl(
                *("get", "serviceaccount", name, "-n", _NAMESPACE),
                *("-o", "jsonpath={.metadata.uid}"),
            )
            for name in accounts
        }
        self._ca = cluster.kubectl(
            *("get", "configmap", "kube-root-ca.crt", "-n", _NAMESPACE),
            *("-o", r"jsonpath={.data.ca\.crt}"),
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokens")

    def __enter__(self) -> Self:
        self._renew()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop renewing tokens; a second call does nothing."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            self._renew()

    def _renew(self) -> None:
        documents = []
        for name, uid in self._uids.items():
            token = self._token(name, uid)
            if len(self.first) < len(self._uids):
                self.first.append(token)
            documents.append(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": secret_of(name), "namespace": _NAMESPACE},
                    "stringData": {"token": token, "ca.crt": self._ca},
                }
            )
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        self._cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def _token(self, name: str, uid: str) -> str:
        now = int(self._clock.now().timestamp())
        claims = {
            "iss": _ISSUER,
            "aud": [_ISSUER],
            "sub": f"system:serviceaccount:{_NAMESPACE}:{name}",
            "iat": now,
            "nbf": now,
            "exp": now + int(LIFE - _LEEWAY),
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": _NAMESPACE,
                "serviceaccount": {"name": name, "uid": uid},
            },
        }
        said = f"{_part({'alg': 'ES256', 'typ': 'JWT'})}.{_part(claims)}"
        pair = decode_dss_signature(self._key.sign(said.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{said}.{_coded(b''.join(number.to_bytes(32, 'big') for number in pair))}"


def secret_of(account: str) -> str:
    """Return the name of an account's Secret."""
    return f"token-of-{account}"


def patch_of(deployment: str, container: str, account: str) -> dict[str, Any]:
    """Return the patch that makes a Deployment use its account's Secret."""
    mount = {"name": "short-token", "mountPath": _PLACE, "readOnly": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment, "namespace": _NAMESPACE},
        "spec": {
            "template": {
                "spec": {
                    "automountServiceAccountToken": False,
                    "containers": [{"name": container, "volumeMounts": [mount]}],
                    "volumes": [
                        {"name": "short-token", "secret": {"secretName": secret_of(account)}}
                    ],
                }
            }
        },
    }


def _part(value: object) -> str:
    return _coded(json.dumps(value).encode())


def _coded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
