"""Builds the engine's subjects, users and programs from the fields of a case."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from reconciler.api.meta import Object, split_api_version
from reconciler.dialects.registry import compile_policy
from reconciler.engine.environment import environment_entry
from reconciler.engine.match import Subject, UserInfo
from reconciler.engine.program import Program
from tests.conformance.units.cases import Fields

# The time and random numbers that an expression may use besides its data.
ENVIRONMENT = environment_entry(
    now=datetime(2026, 1, 1, tzinfo=UTC), randbelow=lambda limit: limit - 1
)
OPERATIONS = ("", "CREATE", "UPDATE", "DELETE", "CONNECT")


def operation_of(given: Fields) -> str:
    """Return the operation of a case, or CREATE if it names none."""
    operation = given.get("operation")
    if operation is None:
        return "CREATE"
    if operation not in OPERATIONS:
        given.refuse("operation", operation)
    return str(operation)


def user_of(request: Fields) -> UserInfo:
    """Return the user of a request with its roles."""
    info = request.part("userInfo")
    for name in ("uid", "extra"):
        info.get(name)  # no rule can refer to it
    return UserInfo(
        username=info.get("username") or "",
        groups=tuple(info.get("groups") or ()),
        roles=tuple(request.get("roles") or ()),
        cluster_roles=tuple(request.get("clusterRoles") or ()),
    )


def subject_of(
    obj: Object | None,
    *,
    operation: str = "",
    user: UserInfo | None = None,
    namespace_labels: Mapping[str, str] | None = None,
    subresource: str = "",
) -> Subject:
    """Return the subject that rules match; a null object stands for a request without one."""
    obj = obj or {}
    group, version = split_api_version(obj.get("apiVersion") or "v1")
    meta = obj.get("metadata") or {}
    return Subject(
        obj=obj,
        group=group,
        version=version,
        kind=obj.get("kind") or "",
        subresource=subresource,
        name=meta.get("name") or "",
        namespace=meta.get("namespace") or "",
        operation=operation,
        user=user or UserInfo(),
        namespace_labels=namespace_labels or {},
    )


def policy_of(
    rules: Iterable[Mapping[str, Any]], *, namespace: str = "", **spec: Any
) -> dict[str, Any]:
    """Return a policy with rules, which is a Policy if it has a namespace."""
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": {"name": "p", **place},
        "spec": {"rules": list(rules), **spec},
    }


def values_of(given: Fields) -> dict[str, Any]:
    """Return the values of the context entries that a case presupposes, by name."""
    return {**given.part("variables"), **given.part("context")}


def programs_of(given: Fields, policy: Object) -> tuple[Program, ...]:
    """Compile a policy, with context entries in each rule for the values of the case."""
    values = values_of(given)
    rules = [
        {
            **rule,
            "context": [
                *({"name": name, "variable": {"value": value}} for name, value in values.items()),
                *(one for one in rule.get("context") or () if one.get("name") not in values),
            ],
        }
        for rule in policy["spec"]["rules"]
    ]
    known = {**policy, "spec": {**policy["spec"], "rules": rules}} if values else policy
    return compile_policy(known).programs
