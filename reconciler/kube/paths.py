"""Requests described in terms of RBAC."""

from dataclasses import dataclass

from typing_extensions import override

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    root, *parts = path.strip("/").split("/")
    group = parts.pop(0) if root == "apis" and parts else ""
    rest = parts[1:]
    if root not in {"api", "apis"} or not rest:
        return Call(verb=method.lower(), resource=path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    resource = f"{rest[0]}.{group}" if group else rest[0]
    subresource = "/".join(rest[2:])
    return Call(
        verb=_verb(method, named=bool(name), watch=watch),
        resource=f"{resource}/{subresource}" if subresource else resource,
        namespace=namespace,
        name=name,
    )


def _verb(method: str, *, named: bool, watch: bool) -> str:
    if method == "GET":
        return "watch" if watch else "get" if named else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _VERBS.get(method, method.lower())
