"""The data that expressions see.

A context never changes: binding a name gives another context that shares the rest, so going back
to an earlier state means to go on with the earlier context.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.engine.jmes.expression import Expression
from reconciler.engine.jmes.images import find_images
from reconciler.engine.jmes.reads import EVERYTHING

_IMAGES = "images"
_LAZY = frozenset({EVERYTHING, _IMAGES})
_SERVICE_ACCOUNT = ("system", "serviceaccount")


class Rooted(Protocol):
    """An expression or a template: what knows the root fields that it reads."""

    @property
    def roots(self) -> frozenset[str]:
        """The root fields."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """Named values, one per root field.

    When the operation in ``request`` is DELETE, ``request.object`` is the old object: nothing
    else is left of what was deleted. ``images`` is made of ``request.object`` when it is asked for
    and not bound.
    """

    data: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _with_deleted_object(dict(self.data)))

    def bind(self, **values: Any) -> "Context":
        """Give a context in which `values` replace what had these names."""
        return Context({**self.data, **values})

    def search(self, expression: Expression) -> Any:
        """Evaluate an expression; the result may share parts with this context.

        Raises:
            EvaluationError: As `Expression.search`.
        """
        return expression.search(self.view(expression.roots))

    def view(self, roots: frozenset[str]) -> Mapping[str, Any]:
        """Give the data, with ``images`` if it is among `roots` and the object has any.

        Raises:
            EvaluationError: An image of the object cannot be read.
        """
        if _IMAGES not in roots or _IMAGES in self.data:
            return self.data
        request = self.data.get("request")
        images = find_images(request.get("object")) if isinstance(request, dict) else None
        return self.data if images is None else {**self.data, _IMAGES: images}

    def missing_entries(self, reader: Rooted) -> frozenset[str]:
        """Give the root fields that `reader` may read and that are not bound yet."""
        return reader.roots - self.data.keys() - _LAZY


def request_context(
    *,
    operation: str,
    obj: Mapping[str, Any] | None,
    old_object: Mapping[str, Any] | None,
    name: str,
    namespace: str,
    kind: tuple[str, str, str],
    user_info: Mapping[str, Any] | None,
    roles: Iterable[str] = (),
    cluster_roles: Iterable[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> Context:
    """Give the context of a request.

    Args:
        operation: CREATE, UPDATE, DELETE or CONNECT.
        obj: The object; may be None for DELETE.
        old_object: The object before the request.
        name: The object's name; empty while the server has not generated it.
        namespace: The object's namespace, empty for cluster-wide ones.
        kind: Group, version and kind.
        user_info: Who asks; None where nobody knows, then the field does not exist.
        roles: Roles of the user, as ``namespace:name``.
        cluster_roles: ClusterRoles of the user.
        extra: Further fields of the request, as ``uid`` or ``dryRun``.
    """
    group, version, kind_name = kind
    request: dict[str, Any] = {
        **(extra or {}),
        "operation": operation,
        "object": obj,
        "oldObject": old_object,
        "name": name,
        "namespace": namespace,
        "kind": {"group": group, "version": version, "kind": kind_name},
        "roles": list(roles),
        "clusterRoles": list(cluster_roles),
    }
    if user_info is not None:
        request["userInfo"] = user_info
    account_namespace, account = service_account(user_info)
    return Context(
        {
            "request": request,
            "serviceAccountName": account,
            "serviceAccountNamespace": account_namespace,
        }
    )


def service_account(user_info: Mapping[str, Any] | None) -> tuple[str, str]:
    """Give namespace and name of the ServiceAccount that a user is; empty if it is none."""
    username = (user_info or {}).get("username")
    parts = username.split(":") if isinstance(username, str) else []
    if len(parts) != 4 or tuple(parts[:2]) != _SERVICE_ACCOUNT:  # noqa: PLR2004 - its four parts
        return "", ""
    return parts[2], parts[3]


def _with_deleted_object(data: dict[str, Any]) -> dict[str, Any]:
    request = data.get("request")
    if isinstance(request, dict) and request.get("operation") == "DELETE":
        old = request.get("oldObject")
        if old is not None and request.get("object") is not old:
            data["request"] = {**request, "object": old}
    return data
