"""What a missing right tells of objects that must not be quoted."""

import pytest

from reconciler.requests.redaction import quotable_permission

HERE = frozenset({"shop"})


@pytest.mark.parametrize(
    ("permission", "quoted"),
    [
        ("get configmaps in namespace shop", "get configmaps in namespace shop"),
        # The name of the namespace may have been read from a Secret.
        ("get configmaps in namespace hunter2", "get configmaps"),
        ("patch deployments.apps/scale in namespace hunter2", "patch deployments.apps/scale"),
        ("list nodes", "list nodes"),
        ("get /api/v1/namespaces/hunter2/pods", "get a path"),
    ],
)
def test_a_right_is_quoted_without_values_that_an_object_may_hold(permission, quoted):
    assert quotable_permission(permission, HERE) == quoted
