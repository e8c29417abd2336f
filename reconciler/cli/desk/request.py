"""The admission request for which a rule is evaluated."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import split_api_version
from reconciler.cli.desk.operations import DELETE, UPDATE
from reconciler.cli.desk.values import RequestKind, Values, place_values
from reconciler.clock import SystemClock
from reconciler.engine.context import Context, request_context
from reconciler.engine.environment import environment_entry
from reconciler.engine.match import Subject, UserInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An admission request, as far as the options describe it.

    Attributes:
        operation: None where no option sets it; then each rule has its own default.
        old: The object before an update; None where it is not given.
        user: The sender, with the fields that expressions see.
    """

    operation: str | None
    obj: Mapping[str, Any]
    old: Mapping[str, Any] | None = None
    user: tuple[UserInfo, Mapping[str, Any]] | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace of the object, empty for a cluster-scoped object."""
        return str(self.obj["metadata"].get("namespace") or "")

    @property
    def old_object(self) -> Mapping[str, Any] | None:
        """Return the value of ``request.oldObject``; by default the object itself."""
        return (self.old or self.obj) if self.operation in (UPDATE, DELETE) else None

    def subject(self, labels: Mapping[str, str] | None, kind: RequestKind) -> Subject:
        """Return the subject that match and exclude evaluate.

        Args:
            kind: What the request is for.
            labels: The labels of the namespace, None where they are not known.
        """
        group, version, name, subresource = kind
        return Subject(
            group=group,
            version=version,
            kind=name,
            subresource=subresource,
            name=str(self.obj["metadata"].get("name") or ""),
            namespace=self.namespace,
            obj=self.obj,
            operation=self.operation or "",
            user=self.user[0] if self.user else None,
            namespace_labels=labels,
        )

    def context(self, environment: Mapping[str, Any], values: Values) -> Context:
        """Return the context for expressions, overlaid with given values of variables."""
        group, version = split_api_version(self.obj["apiVersion"])
        user, info = self.user or (None, None)
        context = request_context(
            operation=self.operation or "",
            obj=self.obj,
            old_object=self.old_object,
            name=str(self.obj["metadata"].get("name") or ""),
            namespace=self.namespace,
            kind=(group, version, self.obj["kind"]),
            user_info=info,
            roles=(user.roles or ()) if user else (),
            cluster_roles=(user.cluster_roles or ()) if user else (),
        )
        context = context.bind(**environment)
        return with_values(context, values) if values else context


def environment_now() -> Mapping[str, Any]:
    """Return the time and random numbers for expressions."""
    return environment_entry(now=SystemClock().now(), randbelow=secrets.randbelow)


def with_values(context: Context, values: Values) -> Context:
    """Return a context in which each value is set at its path."""
    data = place_values(dict(context.data), values)
    return context.bind(
        **{name: data[name] for name in data if data[name] is not context.data.get(name)}
    )
