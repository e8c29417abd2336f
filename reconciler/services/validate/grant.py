"""The ClusterRole that grants what is missing, as text to apply."""

from collections.abc import Iterable

from reconciler.services.validate.need import Need

LABEL = "rbac.kyverno.io/aggregate-to-background-controller"
"""The controller's role collects every ClusterRole that has it."""


def cluster_role(policy: str, missing: Iterable[Need]) -> str:
    """Return YAML with the missing rights, one rule per resource.

    Where any of several rights is enough, all of them are granted: the smaller write is a patch,
    and what was asked for is an update.

    Args:
        policy: Key of the policy, for the name of the role.
        missing: What the policy lacks.
    """
    verbs: dict[tuple[str, str], set[str]] = {}
    for need in missing:
        for right in need.options:
            part = f"/{right.subresource}" if right.subresource else ""
            verbs.setdefault((right.group, right.resource + part), set()).add(right.verb)
    lines = [
        "apiVersion: rbac.authorization.k8s.io/v1",
        "kind: ClusterRole",
        "metadata:",
        f"  name: retrofit:{policy.replace('/', ':')}",
        "  labels:",
        f'    {LABEL}: "true"',
        "rules:",
    ]
    for (group, resource), granted in verbs.items():
        lines += [
            f'- apiGroups: ["{group}"]',
            f'  resources: ["{resource}"]',
            f"  verbs: [{', '.join(sorted(granted))}]",
        ]
    return "\n".join(lines)
