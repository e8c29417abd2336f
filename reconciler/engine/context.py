"""The data that expressions see.

A context never changes: binding a name gives another context that shares the rest, so going back
to an earlier state means to go on with the earlier context.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import field
from typing import Any, Protocol

from reconciler.engine.allowance import UNLIMITED, Allowance
from reconciler.engine.loads import Load, NeedsLoad
from reconciler.errors import EvaluationError
from reconciler.values import value_class

EVERYTHING = "@"
"""Stands among the roots of what reads the whole data."""

_USER = frozenset({("request", "userInfo"), ("request", "roles"), ("request", "clusterRoles")})
_USER_ROOTS = frozenset({("serviceAccountName",), ("serviceAccountNamespace",)})
_SERVICE_ACCOUNT = ("system", "serviceaccount")


Derive = Callable[[Mapping[str, Any]], Any]

Deferred = Callable[[], Any]
"""Gives the value of a context entry; it is called when a reader names the entry."""


class Searchable(Protocol):
    """An expression of some language."""

    @property
    def roots(self) -> frozenset[str]:
        """The names at the top of the data that it reads."""
        ...

    def search(self, data: Any, allowance: Allowance) -> Any:
        """Evaluate it.

        Raises:
            EvaluationError: It cannot be evaluated.
        """
        ...


@value_class(frozen=True, slots=True)
class Context:
    """Named values, one per root field.

    When the operation in ``request`` is DELETE, ``request.object`` is the old object: nothing
    else is left of what was deleted.

    Attributes:
        data: Kept as it is given, so whoever gives it changes it no more.
        deferred: Entries that are evaluated only when somebody reads them.
        loads: What was read from outside for entries, by what was asked for. It belongs to the
            caller, who adds to it and evaluates again; all contexts made of this one share it.
        allowance: What evaluating may cost; all contexts made of this one share it.
        derived: Names that are made of the data when they are read and not bound; none where
            that gives None.
    """

    data: Mapping[str, Any]
    deferred: Mapping[str, Deferred] = field(default_factory=dict)
    loads: Mapping[Hashable, Any] = field(default_factory=dict)
    allowance: Allowance = field(default=UNLIMITED, repr=False, compare=False)
    derived: Mapping[str, Derive] = field(default_factory=dict)

    def __post_init__(self) -> None:
        request = self.data.get("request")
        if isinstance(request, dict) and request.get("operation") == "DELETE":
            data = {**self.data, "request": _with_deleted_object(request)}
            object.__setattr__(self, "data", data)

    # What follows names all fields: `dataclasses.replace` takes three times as long, and each
    # rule of each request makes several contexts.

    def bind(self, **values: Any) -> "Context":
        """Give a context in which `values` replace what had these names."""
        left = self.deferred
        if not left.keys().isdisjoint(values):
            left = {name: entry for name, entry in left.items() if name not in values}
        return Context({**self.data, **values}, left, self.loads, self.allowance, self.derived)

    def with_object(self, obj: Mapping[str, Any]) -> "Context":
        """Give a context in which ``request.object`` is another."""
        request = self.data["request"]
        if request.get("object") is obj:
            return self
        data = {**self.data, "request": {**request, "object": obj}}
        deferred = self.deferred
        if "request" in deferred:
            deferred = {name: entry for name, entry in deferred.items() if name != "request"}
        return Context(data, deferred, self.loads, self.allowance, self.derived)

    def without_entries(self) -> "Context":
        """Give the context as it was before any name was deferred."""
        return Context(self.data, {}, self.loads, self.allowance, self.derived)

    def defer(self, name: str, value: Deferred) -> "Context":
        """Give a context in which an entry has this name, evaluated at most once."""
        data = {key: held for key, held in self.data.items() if key != name}
        deferred = {**self.deferred, name: _once(value, self.allowance)}
        return Context(data, deferred, self.loads, self.allowance, self.derived)

    def derive(self, name: str, make: Derive) -> "Context":
        """Give a context in which a name is made of the data where it is not bound."""
        derived = {**self.derived, name: make}
        return Context(self.data, self.deferred, self.loads, self.allowance, derived)

    def with_loads(
        self, loads: Mapping[Hashable, Any], allowance: Allowance | None = None
    ) -> "Context":
        """Give a context that takes from `loads` what was read from outside.

        Args:
            loads: By what was asked for.
            allowance: What evaluating may cost; None: as before.
        """
        allowance = self.allowance if allowance is None else allowance
        return Context(self.data, self.deferred, loads, allowance, self.derived)

    def within(self, allowance: Allowance) -> "Context":
        """Give a context on which evaluating costs something of this allowance."""
        return Context(self.data, self.deferred, self.loads, allowance, self.derived)

    def search(self, expression: Searchable) -> Any:
        """Evaluate an expression; the result may share parts with this context.

        Raises:
            EvaluationError: The expression cannot be evaluated.
        """
        return expression.search(self.view(expression.roots), self.allowance)

    def view(self, roots: frozenset[str]) -> Mapping[str, Any]:
        """Give the data, with what is deferred or derived among `roots`.

        Raises:
            EvaluationError: One of them cannot be evaluated.
            NeedsLoad: Some have to be read before; it names what all of them need.
        """
        data = self.data
        if self.deferred:
            # In the order of the policy, so that the same rule always tells the same first error.
            every = EVERYTHING in roots
            wanted = [name for name in self.deferred if every or name in roots]
            if wanted:
                data = {**data, **self._evaluated(wanted)}
        for name, make in self.derived.items():
            if name in roots and name not in data and (value := make(data)) is not None:
                data = {**data, name: value}
        return data

    def _evaluated(self, names: Iterable[str]) -> dict[str, Any]:
        """Give the values of entries that are all needed, so that they can be read together."""
        values: dict[str, Any] = {}
        unread: list[Load] = []
        for name in names:
            try:
                values[name] = self.deferred[name]()
            except NeedsLoad as need:
                unread += need.loads
            except EvaluationError:
                # What was not read yet may be the fault that comes first.
                if unread:
                    break
                raise
        if unread:
            raise NeedsLoad(*unread)
        return values


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


def reads_user(path: tuple[str, ...]) -> bool:
    """Return whether a path leads to who sent the request."""
    return path[:2] in _USER or path[:1] in _USER_ROOTS


def service_account(user_info: Mapping[str, Any] | None) -> tuple[str, str]:
    """Give namespace and name of the ServiceAccount that a user is; empty if it is none."""
    username = (user_info or {}).get("username")
    parts = username.split(":") if isinstance(username, str) else []
    if len(parts) != 4 or tuple(parts[:2]) != _SERVICE_ACCOUNT:  # noqa: PLR2004 - its four parts
        return "", ""
    return parts[2], parts[3]


def _once(value: Deferred, allowance: Allowance) -> Deferred:
    found: list[Any] = []

    def evaluate() -> Any:
        if found:
            return found[0]
        result = value()
        # A default may stand in for what was only too long: with more steps it is another value.
        if not allowance.exhausted:
            found.append(result)
        return result

    return evaluate


def _with_deleted_object(request: dict[str, Any]) -> dict[str, Any]:
    old = request.get("oldObject")
    if old is None or request.get("object") is old:
        return request
    return {**request, "object": old}
