"""Renders roles that grant missing rights, as YAML to apply."""

from collections.abc import Iterable, Iterator

from reconciler.api.account import ServiceAccount
from reconciler.api.rights import Need, Right

_API = "rbac.authorization.k8s.io"


def cluster_role(policy: str, missing: Iterable[Need], label: str) -> str:
    """Return YAML of a ClusterRole with the missing rights, one rule per resource.

    Where any of several rights is enough, all of them are granted: the check accepts update, while
    patch allows the smaller write.

    Args:
        policy: Key of the policy, for the name of the role.
        missing: The needs that are not granted.
        label: Aggregates the ClusterRole into the controller's role.
    """
    labels = f'  labels:\n    {label}: "true"'
    rights = [right for need in missing for right in need.options]
    return "\n".join(_role("ClusterRole", _name(policy), "", rights, labels))


def account_roles(
    policy: str, account: ServiceAccount, missing: Iterable[Need], controller: ServiceAccount
) -> str:
    """Return YAML of roles and bindings with the missing rights of a policy's account.

    Args:
        policy: Key of the policy, for the names of the roles.
        missing: Its missing rights; the right to impersonate it goes to the controller.
        controller: The account that impersonates it.
    """
    rights: dict[str, list[Right]] = {}
    documents: list[str] = []
    for right in (right for need in missing for right in need.options):
        if right == account.impersonation:
            name = f"{_name(policy)}:impersonate"
            documents += _bound(name, account.namespace, [right], controller)
        else:
            rights.setdefault(right.namespace, []).append(right)
    for namespace, wanted in rights.items():
        documents += _bound(_name(policy), namespace, wanted, account)
    return "\n---\n".join(documents)


def _bound(
    name: str, namespace: str, rights: Iterable[Right], account: ServiceAccount
) -> Iterator[str]:
    kind = "Role" if namespace else "ClusterRole"
    yield "\n".join(_role(kind, name, namespace, rights))
    yield "\n".join(
        [
            *_head(f"{kind}Binding", name, namespace),
            "roleRef:",
            f"  apiGroup: {_API}",
            f"  kind: {kind}",
            f"  name: {name}",
            "subjects:",
            "- kind: ServiceAccount",
            f"  name: {account.name}",
            f"  namespace: {account.namespace}",
        ]
    )


def _role(
    kind: str, name: str, namespace: str, rights: Iterable[Right], *more: str
) -> Iterator[str]:
    yield from _head(kind, name, namespace)
    yield from more
    yield "rules:"
    verbs: dict[tuple[str, str, str], set[str]] = {}
    for right in rights:
        part = f"/{right.subresource}" if right.subresource else ""
        named = right.name if right.verb == "impersonate" else ""
        verbs.setdefault((right.group, right.resource + part, named), set()).add(right.verb)
    for (group, resource, named), granted in verbs.items():
        yield f'- apiGroups: ["{group}"]'
        yield f'  resources: ["{resource}"]'
        if named:
            yield f'  resourceNames: ["{named}"]'
        yield f"  verbs: [{', '.join(sorted(granted))}]"


def _head(kind: str, name: str, namespace: str) -> Iterator[str]:
    yield f"apiVersion: {_API}/v1"
    yield f"kind: {kind}"
    yield "metadata:"
    yield f"  name: {name}"
    if namespace:
        yield f"  namespace: {namespace}"


def _name(policy: str) -> str:
    return f"retrofit:{policy.replace('/', ':')}"
