"""The kinds that a ModRule applies to, as far as its text determines them."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.dialects.kubemod.items import Item
from reconciler.dialects.kubemod.names import KINDS_ANNOTATION
from reconciler.engine.match import KindSelector, parse_kind
from reconciler.engine.values.wildcard import has_wildcard
from reconciler.errors import InvalidPolicy
from reconciler.languages.gval.syntax import Array, Constant, Infix, Key, Node, Path

DEFAULT_KINDS: Final = tuple(
    map(
        parse_kind,
        (
            "v1/Namespace",
            "v1/Node",
            "v1/ConfigMap",
            "v1/PersistentVolumeClaim",
            "v1/PersistentVolume",
            "v1/Secret",
            "v1/Service",
            "apps/*/DaemonSet",
            "apps/*/Deployment",
            "apps/*/ReplicaSet",
            "apps/*/StatefulSet",
            "autoscaling/*/HorizontalPodAutoscaler",
            "networking.k8s.io/*/Ingress",
            "v1/Pod",
            "batch/*/CronJob",
            "batch/*/Job",
            "v1/ServiceAccount",
            "rbac.authorization.k8s.io/*/ClusterRoleBinding",
            "rbac.authorization.k8s.io/*/ClusterRole",
            "rbac.authorization.k8s.io/*/RoleBinding",
            "rbac.authorization.k8s.io/*/Role",
        ),
    )
)
"""The kinds of a rule that names none: the list that KubeMod ships."""

_KIND: Final = re.compile(r"[A-Za-z0-9*?]+")
_CLUSTER_SCOPED: Final = frozenset(
    {"Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding"}
)


def inside_a_namespace(selectors: tuple[KindSelector, ...]) -> tuple[KindSelector, ...]:
    """Return the kinds that may be namespaced; all of them where every one is cluster-scoped.

    A rule of an ordinary namespace never matches objects of the other kinds.
    """
    return tuple(item for item in selectors if item.kind not in _CLUSTER_SCOPED) or selectors


def is_namespaced(selector: KindSelector) -> bool:
    """Return whether a kind is one of the namespaced default kinds."""
    known = {kind.kind for kind in DEFAULT_KINDS}
    return selector.kind in known - _CLUSTER_SCOPED


def kinds_of(items: Sequence[Item], annotation: str) -> tuple[KindSelector, ...]:
    """Return the kinds that the items name, else those of the annotation, else the defaults.

    Raises:
        InvalidPolicy: The annotation contains something that selects no object.
    """
    named = _agreed(items, "kind")
    if named is None:
        given = tuple(_given(part.strip()) for part in annotation.split(",") if part.strip())
        asked = [item for item in items if _reads(item.select.tree, "kind")]
        return tuple(
            selector
            for selector in given or DEFAULT_KINDS
            if has_wildcard(selector.kind)
            or all(item.accepts_text(selector.kind) for item in asked)
        )
    versions = _agreed(items, "apiVersion")
    return tuple(
        KindSelector(group=group, version=version, kind=kind, subresource="")
        for kind in sorted(named)
        if not has_wildcard(kind)
        for group, version in _groups(versions)
    )


def _given(text: str) -> KindSelector:
    """Parse a kind of the annotation.

    Raises:
        InvalidPolicy: It selects no object: it is no kind, or a subresource.
    """
    selector = parse_kind(text)
    if not _KIND.fullmatch(selector.kind) or selector.subresource not in {"", "*"}:
        reason = f"{text} is not a kind, such as Pod or apps/v1/Deployment"
        raise InvalidPolicy(f"metadata.annotations[{KINDS_ANNOTATION}]", reason)
    return selector


def tells_kinds(items: Sequence[Item]) -> bool:
    """Return whether the items determine the kinds."""
    return _agreed(items, "kind") is not None


def _groups(versions: frozenset[str] | None) -> Iterator[tuple[str, str]]:
    if versions is None:
        yield "*", "*"
    for text in sorted(versions or ()):
        group, _, version = text.rpartition("/")
        yield group, version


def _agreed(items: Sequence[Item], field: str) -> frozenset[str] | None:
    """Return the only texts that a field can have if all items hold, or None for any text."""
    agreed: frozenset[str] | None = None
    for item in items:
        if item.negate:
            continue
        tree = item.select.tree
        found = item.values if _reads(tree, field) else _compared(tree, field)
        if found is not None:
            agreed = found if agreed is None else agreed & found
    return agreed


def _compared(node: Node, field: str) -> frozenset[str] | None:
    """Return the only texts that a field can have if an expression is true, or None for any."""
    match node:
        case Infix("==", left, Constant(str(text))) if _reads(left, field):
            return frozenset({text})
        case Infix("==", Constant(str(text)), right) if _reads(right, field):
            return frozenset({text})
        case Infix("in", left, Array(parts)) if _reads(left, field):
            texts = [part.value for part in parts if isinstance(part, Constant)]
            return frozenset(map(str, texts)) if len(texts) == len(parts) else None
        case Infix("||", left, right):
            one, other = _compared(left, field), _compared(right, field)
            return None if one is None or other is None else one | other
        case Infix("&&", left, right):
            found = [part for part in (_compared(left, field), _compared(right, field)) if part]
            return frozenset.intersection(*found) if found else None
        case _:
            return None


def _reads(node: Node, field: str) -> bool:
    """Return whether an expression is just a top-level field of the object."""
    return node == Path(from_root=True, steps=(Key(Constant(field)),))
