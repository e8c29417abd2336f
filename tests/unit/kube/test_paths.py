"""The RBAC attributes of HTTP requests."""

import pytest

from reconciler.kube.paths import describe


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/api/v1/namespaces/a/secrets/b", "get secrets a/b"),
        ("GET", "/api/v1/namespaces/a/secrets", "list secrets a"),
        ("GET", "/api/v1/secrets", "list secrets"),
        ("GET", "/api/v1/namespaces/a/secr%65ts/b", "get secrets a/b"),
        ("POST", "/api/v1/namespaces", "create namespaces"),
        ("GET", "/api/v1/namespaces/a", "get namespaces a"),
        ("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize a"),
        ("PATCH", "/api/v1/nodes/n/status", "patch nodes/status n"),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            "patch deployments.apps/scale a/b",
        ),
        ("DELETE", "/apis/apps/v1/namespaces/a/deployments/b", "delete deployments.apps a/b"),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection deployments.apps a",
        ),
        ("GET", "/apis", "get /apis"),
        ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
        ("GET", "/readyz", "get /readyz"),
    ],
)
def test_requests_are_described_by_their_rbac_attributes(method, path, text):
    assert str(describe(method, path)) == text


def test_a_watch_is_distinguished_from_a_list():
    assert describe("GET", "/api/v1/pods", watch=True).permission == "watch pods"
