"""Parses paths of the API server."""

from urllib.parse import unquote

from reconciler.values import value_class

_ROOTS = {"api": 2, "apis": 3}
_OF_NAMESPACES = frozenset({"status", "finalize"})


@value_class(frozen=True, slots=True, kw_only=True)
class ApiPath:
    """The resource of a path, parsed as the API server parses it.

    Attributes:
        namespace: Empty for all namespaces, and for cluster-scoped resources.
        name: Empty for all objects.
    """

    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def segments(path: str) -> list[str]:
    """Return the parts of a path, decoded once, as the API server decodes them."""
    bare = path.partition("?")[0].partition("#")[0]
    return [part for part in unquote(bare).split("/") if part]


def parse_path(parts: list[str]) -> ApiPath | None:
    """Return the resource that a path names, None where it names none."""
    start = _ROOTS.get(parts[0]) if parts else None
    rest = [] if start is None else parts[start:]
    if rest[:1] == ["watch"]:
        rest = rest[1:]
    if not rest:
        return None
    group = parts[1] if parts[0] == "apis" else ""
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    return ApiPath(
        group=group,
        resource=rest[0],
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else "",
        subresource="/".join(rest[2:]),
    )
