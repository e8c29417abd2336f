"""The roles of users, from the role bindings of the cluster.

A rule may depend on the roles that a user had at the time of the request. They may change later,
so they are looked up in memory during the review and recorded with the request.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import Kind, Object
from reconciler.services.ports.policies import Change
from reconciler.values import value_class

_GROUP, _VERSION = "rbac.authorization.k8s.io", "v1"
ROLE_BINDINGS = Kind(
    group=_GROUP, version=_VERSION, kind="RoleBinding", plural="rolebindings", namespaced=True
)
CLUSTER_ROLE_BINDINGS = Kind(
    group=_GROUP,
    version=_VERSION,
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    namespaced=False,
)

_Key = tuple[str, str]
_Subject = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The roles of a binding; a RoleBinding may grant a ClusterRole too, in its namespace."""

    role: str = ""
    cluster_role: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Roles:
    """Roles as ``namespace:name`` and names of ClusterRoles, both sorted."""

    roles: tuple[str, ...] = ()
    cluster_roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleIndex:
    """Grants by subject."""

    _subjects: dict[_Key, tuple[_Subject, ...]] = field(default_factory=dict)
    _grants: dict[_Subject, dict[_Key, Grant]] = field(default_factory=dict)

    def on_event(self, change: Change, binding: Object) -> None:
        """Apply one change of a RoleBinding or ClusterRoleBinding."""
        meta = binding["metadata"]
        key = meta.get("namespace", ""), meta["name"]
        for subject in self._subjects.pop(key, ()):
            self._grants[subject].pop(key, None)
            if not self._grants[subject]:
                del self._grants[subject]
        if change == "DELETED":
            return
        subjects = tuple(dict.fromkeys(_subjects(binding)))
        grant = _grant(binding)
        self._subjects[key] = subjects
        for subject in subjects:
            self._grants.setdefault(subject, {})[key] = grant

    def of(self, user: Mapping[str, Any]) -> Roles:
        """Return the roles of a user in the ``userInfo`` form of an admission request."""
        subjects = [("User", str(user.get("username", "")))]
        subjects += [("Group", str(group)) for group in user.get("groups") or ()]
        grants = [
            grant for subject in subjects for grant in self._grants.get(subject, {}).values()
        ]
        return Roles(
            roles=tuple(sorted({item.role for item in grants if item.role})),
            cluster_roles=tuple(sorted({item.cluster_role for item in grants} - {""})),
        )


def _subjects(binding: Object) -> Iterator[_Subject]:
    for subject in binding.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            yield "User", f"system:serviceaccount:{subject.get('namespace', '')}:{name}"
        else:
            yield subject.get("kind", ""), name


def _grant(binding: Object) -> Grant:
    reference = binding.get("roleRef") or {}
    name = reference.get("name", "")
    if reference.get("kind") == "ClusterRole":
        return Grant(cluster_role=name)
    return Grant(role=f"{binding['metadata'].get('namespace', '')}:{name}")
