"""Paths and what they mean to RBAC."""

import pytest

from reconciler.api.meta import Kind
from reconciler.errors import Invalid
from reconciler.kube.paths import collection_path, describe, object_path

ROLES = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRole",
    plural="clusterroles",
    namespaced=False,
)
SCALE = Kind(
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    namespaced=True,
    subresource="scale",
)


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/api/v1/namespaces/a/secrets/b", "get secrets a/b"),
        ("GET", "/api/v1/namespaces/a/secrets", "list secrets a"),
        ("GET", "/api/v1/secrets", "list secrets"),
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
def test_requests_are_described_as_rbac_sees_them(method, path, text):
    assert str(describe(method, path)) == text


def test_a_watch_is_not_a_list():
    assert describe("GET", "/api/v1/pods", watch=True).permission == "watch pods"


def test_paths_of_objects():
    assert object_path(SCALE, "a", "b") == "/apis/apps/v1/namespaces/a/deployments/b/scale"
    assert object_path(ROLES, "ignored", "system:a b?c") == (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b%3Fc"
    )
    assert collection_path(SCALE) == "/apis/apps/v1/deployments"


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("", "a"), ("a", ""), ("a", ".."), ("..", "a"), ("a", "b/c"), ("a/b", "c"), ("a", "%2e")],
)
def test_a_name_that_would_lead_elsewhere_is_refused(namespace, name):
    with pytest.raises(Invalid):
        object_path(SCALE, namespace, name)
