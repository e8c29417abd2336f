"""What may be said of an attempt that a Secret has a part in.

Status, events, reports, logs and the figures of policies are all made of what an attempt returns,
so it is decided where attempts and lanes end, and no evaluation has to think of it.
"""

from reconciler.errors import RetrofitError

HIDDEN = "(withheld)"
"""Stands for a name that a Secret gave."""
WITHHELD = "details are withheld, for a Secret may be among what is read or written"


def said(error: RetrofitError, *, confidential: bool) -> str:
    """Return the text of an error, without any value of an object where that is confidential."""
    return withheld(error.without_values) if confidential else str(error)


def withheld(bare: str) -> str:
    """Return a text without values, with the reason why it says no more."""
    return f"{bare} ({WITHHELD})"


def quotable_permission(permission: str, namespaces: frozenset[str]) -> str:
    """Return a missing right without a namespace or path that is not among what may be named."""
    right, _, namespace = permission.partition(" in namespace ")
    verb, _, resource = right.partition(" ")
    if resource.startswith("/"):
        return f"{verb} a path"
    return permission if namespace in namespaces else right
