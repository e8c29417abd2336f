"""Requests described in terms of RBAC."""

from typing_extensions import override

from reconciler.api.paths import parse_path, segments
from reconciler.values import value_class

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@value_class(frozen=True, slots=True, kw_only=True)
class Call:
    """One request in terms of RBAC.

    Attributes:
        resource: Resource as ``deployments.apps/scale``; for other paths, the path.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def permission(self) -> str:
        """Return the right to grant, in readable form."""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{place}"

    @override
    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.resource} {place}".rstrip()


def describe(method: str, path: str, *, watch: bool = False) -> Call:
    """Return a request in terms of RBAC; ``watch`` distinguishes a watch from a list."""
    found = parse_path(segments(path))
    if found is None:
        return Call(verb=method.lower(), resource=path)
    resource = f"{found.resource}.{found.group}" if found.group else found.resource
    return Call(
        verb=_verb(method, named=bool(found.name), watch=watch),
        resource=f"{resource}/{found.subresource}" if found.subresource else resource,
        namespace=found.namespace,
        name=found.name,
    )


def _verb(method: str, *, named: bool, watch: bool) -> str:
    if method == "GET":
        return "watch" if watch else "get" if named else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _VERBS.get(method, method.lower())
