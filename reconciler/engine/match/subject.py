"""The subject of a match: an object, the request that carries it, and its namespace."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from reconciler.engine.allowance import UNLIMITED, Allowance
from reconciler.values import value_class


@value_class(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """The user of a request.

    Attributes:
        roles: ``namespace:name`` of the bound Roles, or None when they were not looked up.
        cluster_roles: Names of the bound ClusterRoles, or None when they were not looked up.
    """

    username: str = ""
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] | None = ()
    cluster_roles: tuple[str, ...] | None = ()

    @property
    def known(self) -> bool:
        """Whether there is any data about a user; background work has no user."""
        return bool(self.username or self.groups or self.roles or self.cluster_roles)


@value_class(frozen=True, slots=True, kw_only=True)
class Subject:
    """One object with the known data about its request and its namespace.

    Attributes:
        operation: ``CREATE``, ``UPDATE``, ``DELETE`` or ``CONNECT``; empty outside admission.
        user: None where there is no request.
        namespace_labels: Empty for a cluster-scoped object; None while the namespace is not
            known, which leaves a rule with a namespaceSelector undecided.
        allowance: What matching it may cost.
    """

    obj: Mapping[str, Any]
    group: str
    version: str
    kind: str
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user: UserInfo | None = None
    namespace_labels: Mapping[str, str] | None = None
    allowance: Allowance = field(default=UNLIMITED, repr=False, compare=False)

    def with_object(self, obj: Mapping[str, Any], allowance: Allowance) -> "Subject":
        """Return the same request with another object and another allowance."""
        # Called for each rule: `dataclasses.replace` takes three times as long.
        return Subject(
            obj=obj,
            group=self.group,
            version=self.version,
            kind=self.kind,
            subresource=self.subresource,
            name=self.name,
            namespace=self.namespace,
            operation=self.operation,
            user=self.user,
            namespace_labels=self.namespace_labels,
            allowance=allowance,
        )

    @property
    def effective_name(self) -> str:
        """The name, or the prefix from which the API server will generate one."""
        return self.name or str(self._metadata().get("generateName") or "")

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels, empty when it has none."""
        return labels_of(self.obj)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations, empty when it has none."""
        return self._metadata().get("annotations") or {}

    def _metadata(self) -> Mapping[str, Any]:
        return self.obj.get("metadata") or {}


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an object, empty where it has none."""
    return (obj.get("metadata") or {}).get("labels") or {}
