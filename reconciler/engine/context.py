"""The data that expressions see.

A context is immutable: binding a name returns a new context that shares the rest, so returning to
an earlier state means to use the earlier context again.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, Protocol

from reconciler.engine.allowance import UNLIMITED, Allowance
from reconciler.engine.loads import Load, NeedsLoad
from reconciler.errors import EvaluationError
from reconciler.values import value_class

EVERYTHING = "@"
"""Among the roots of an expression: it reads the whole data."""

_USER = frozenset({("request", "userInfo"), ("request", "roles"), ("request", "clusterRoles")})
_USER_ROOTS = frozenset({("serviceAccountName",), ("serviceAccountNamespace",)})
_SERVICE_ACCOUNT = ("system", "serviceaccount")


Derive = Callable[[Mapping[str, Any]], Any]

Deferred = Callable[[], Any]
"""Returns the value of a context entry; called when an expression first reads the entry."""


class Searchable(Protocol):
    """An expression of any expression language."""

    @property
    def roots(self) -> frozenset[str]:
        """The names at the top of the data that the expression reads."""

    def search(self, data: Any, allowance: Allowance) -> Any:
        """Evaluate the expression.

        Raises:
            EvaluationError: It cannot be evaluated.
        """


@value_class(frozen=True, slots=True)
class Context:
    """Named values, one per root field.

    When the operation in ``request`` is DELETE, ``request.object`` is the old object, the only
    one that such a request has.

    Attributes:
        data: Not copied, so the caller must not change it afterwards.
        deferred: Entries that are evaluated only when they are read.
        loads: The answers to the loads of entries, by load. The mapping belongs to the caller,
            which adds answers and evaluates again; contexts derived from this one share it.
        allowance: What evaluating may cost; contexts derived from this one share it.
        derived: Functions that compute a name from the data when it is read and not bound; the
            name stays unbound where the function returns None.
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

    # The methods below pass all fields: `dataclasses.replace` takes three times as long, and each
    # rule creates several contexts for each request.

    def bind(self, **values: Any) -> "Context":
        """Return a context in which `values` replace the values or entries of the same names."""
        left = self.deferred
        if not left.keys().isdisjoint(values):
            left = {name: entry for name, entry in left.items() if name not in values}
        return Context({**self.data, **values}, left, self.loads, self.allowance, self.derived)

    def with_object(self, obj: Mapping[str, Any]) -> "Context":
        """Return a context in which ``request.object`` is another object."""
        request = self.data["request"]
        if request.get("object") is obj:
            return self
        data = {**self.data, "request": {**request, "object": obj}}
        deferred = self.deferred
        if "request" in deferred:
            deferred = {name: entry for name, entry in deferred.items() if name != "request"}
        return Context(data, deferred, self.loads, self.allowance, self.derived)

    def without_entries(self) -> "Context":
        """Return a context without any deferred entry."""
        return Context(self.data, {}, self.loads, self.allowance, self.derived)

    def defer(self, name: str, value: Deferred) -> "Context":
        """Return a context with a deferred entry of this name, evaluated at most once."""
        data = {key: held for key, held in self.data.items() if key != name}
        deferred = {**self.deferred, name: _once(value, self.allowance)}
        return Context(data, deferred, self.loads, self.allowance, self.derived)

    def derive(self, name: str, make: Derive) -> "Context":
        """Return a context in which a name that is not bound is computed from the data."""
        derived = {**self.derived, name: make}
        return Context(self.data, self.deferred, self.loads, self.allowance, derived)

    def with_loads(
        self, loads: Mapping[Hashable, Any], allowance: Allowance | None = None
    ) -> "Context":
        """Return a context whose entries find their answers in `loads`.

        Args:
            loads: The answers by load.
            allowance: What evaluating may cost; None keeps the current one.
        """
        allowance = self.allowance if allowance is None else allowance
        return Context(self.data, self.deferred, loads, allowance, self.derived)

    def within(self, allowance: Allowance) -> "Context":
        """Return a context whose evaluations are charged to this allowance."""
        return Context(self.data, self.deferred, self.loads, allowance, self.derived)

    def search(self, expression: Searchable) -> Any:
        """Evaluate an expression; the result may share parts with this context.

        Raises:
            EvaluationError: The expression cannot be evaluated.
        """
        return expression.search(self.view(expression.roots), self.allowance)

    def view(self, roots: frozenset[str]) -> Mapping[str, Any]:
        """Return the data with the deferred and derived values among `roots`.

        Raises:
            EvaluationError: An entry cannot be evaluated.
            NeedsLoad: Entries need data from outside; it holds the loads of all of them.
        """
        data = self.data
        if self.deferred:
            # In the order of the policy, so that a rule always reports the same error first.
            every = EVERYTHING in roots
            wanted = [name for name in self.deferred if every or name in roots]
            if wanted:
                data = {**data, **self._evaluated(wanted)}
        for name, make in self.derived.items():
            if name in roots and name not in data and (value := make(data)) is not None:
                data = {**data, name: value}
        return data

    def _evaluated(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of entries, or raise the loads of all of them together."""
        values: dict[str, Any] = {}
        unread: list[Load] = []
        for name in names:
            try:
                values[name] = self.deferred[name]()
            except NeedsLoad as need:
                unread += need.loads
            except EvaluationError:
                # An earlier entry is not loaded yet, and its error would come first.
                if unread:
                    break
                raise
        if unread:
            raise NeedsLoad(*unread)
        return values


NOTHING_BOUND: Final = Context({})
"""For what reads no name, as a document without variables."""


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
    """Return the context of a request.

    Args:
        operation: CREATE, UPDATE, DELETE or CONNECT.
        obj: The object; may be None for DELETE.
        old_object: The object before the request.
        name: The object's name; empty while the API server has not generated it.
        namespace: The object's namespace, empty for a cluster-scoped one.
        kind: Group, version and kind.
        user_info: The user of the request; None where it is unknown, which omits the field.
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
    """Return whether a path leads to data about the user of the request."""
    return path[:2] in _USER or path[:1] in _USER_ROOTS


def service_account(user_info: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return namespace and name of a user's ServiceAccount, both empty for any other user."""
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
        # If the allowance ran out, this may be a default; with more steps the value may differ.
        if not allowance.exhausted:
            found.append(result)
        return result

    return evaluate


def _with_deleted_object(request: dict[str, Any]) -> dict[str, Any]:
    old = request.get("oldObject")
    if old is None or request.get("object") is old:
        return request
    return {**request, "object": old}
