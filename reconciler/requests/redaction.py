"""What may be reported about an attempt that involves a Secret.

Status, events, reports, logs and the figures of policies are all made from the result of an
attempt. So values are withheld where attempts and lanes end, and evaluations need not care.
"""

from reconciler.errors import RetrofitError

HIDDEN = "(withheld)"
"""Replaces a name that was read from a Secret."""
WITHHELD = "details are withheld because the objects read or written may include a Secret"


def said(error: RetrofitError, *, confidential: bool) -> str:
    """Return the text of an error, without values of objects where these are confidential."""
    return withheld(error.without_values) if confidential else str(error)


def withheld(bare: str) -> str:
    """Return a text without values, followed by the reason why details are missing."""
    return f"{bare} ({WITHHELD})"


def quotable_permission(permission: str, namespaces: frozenset[str]) -> str:
    """Return a missing right, without a path and without a namespace that may not be named."""
    right, _, namespace = permission.partition(" in namespace ")
    verb, _, resource = right.partition(" ")
    if resource.startswith("/"):
        return f"{verb} a path"
    return permission if namespace in namespaces else right
