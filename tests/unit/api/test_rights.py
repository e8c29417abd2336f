"""Parsing of rights from text, and their text form."""

import pytest

from reconciler.api.meta import Kind
from reconciler.api.rights import Right, parse_right
from reconciler.kube.paths import describe


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/api/v1/namespaces/a/secrets/s", "get secrets in namespace a"),
        ("GET", "/api/v1/secrets", "list secrets"),
        ("PATCH", "/api/v1/nodes/n/status", "patch nodes/status"),
        (
            "PUT",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "update deployments.apps/scale in namespace a",
        ),
        ("GET", "/apis/kyverno.io/v1/clusterpolicies/p", "get clusterpolicies.kyverno.io"),
    ],
)
def test_the_permission_of_a_call_can_be_parsed_as_a_right(
    method: str, path: str, text: str
) -> None:
    assert describe(method, path).permission == text
    right = parse_right(text)
    assert right is not None
    assert str(right) == text


@pytest.mark.parametrize("text", ["", "get /healthz", "get", "get secrets of somebody"])
def test_a_text_that_is_not_a_right_to_a_resource_is_not_parsed(text: str) -> None:
    assert parse_right(text) is None


def test_a_right_to_a_cluster_scoped_kind_has_no_namespace() -> None:
    nodes = Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False)
    right = Right.of("get", nodes, namespace="a", name="n")
    assert (right.namespace, right.name, str(right)) == ("", "n", "get nodes")
