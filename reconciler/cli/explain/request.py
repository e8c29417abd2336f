"""The request that a rule is explained on."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import Object, split_api_version
from reconciler.cli.desk.session import with_values
from reconciler.cli.desk.values import Values
from reconciler.clock import SystemClock
from reconciler.engine.context import Context, request_context
from reconciler.engine.environment import environment_entry
from reconciler.engine.match import Subject, UserInfo

_WITH_OLD = ("UPDATE", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is known of a request.

    Attributes:
        operation: None where nobody says; then each rule has its own.
        old: The object before an update; None where nobody gave it.
        user: Who sends it, with the fields that expressions see.
    """

    operation: str | None
    obj: Object
    old: Object | None = None
    user: tuple[UserInfo, Mapping[str, Any]] | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace of the object, empty where it has none."""
        return str(self.obj["metadata"].get("namespace") or "")

    @property
    def old_object(self) -> Object | None:
        """Return what ``request.oldObject`` is; without a better word the object itself."""
        if self.operation not in _WITH_OLD:
            return None
        return self.old or self.obj

    def subject(self, labels: Mapping[str, str] | None) -> Subject:
        """Return what match and exclude look at.

        Args:
            labels: Of the namespace, None where they are not known.
        """
        group, version = split_api_version(self.obj["apiVersion"])
        return Subject(
            group=group,
            version=version,
            kind=self.obj["kind"],
            name=str(self.obj["metadata"].get("name") or ""),
            namespace=self.namespace,
            obj=self.obj,
            operation=self.operation or "",
            user=self.user[0] if self.user else None,
            namespace_labels=labels,
        )

    def context(self, values: Values) -> Context:
        """Return what expressions see, with values that somebody gives."""
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
        context = context.bind(
            **environment_entry(now=SystemClock().now(), randbelow=secrets.randbelow)
        )
        return with_values(context, values) if values else context
