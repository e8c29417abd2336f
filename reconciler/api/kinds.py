"""The kinds of objects that are policies, of all languages."""

from reconciler.api.meta import GROUP, POLICY_VERSION, Kind, PolicyRef
from reconciler.errors import NoKindMatch

CLUSTER_POLICIES = Kind(
    group=GROUP,
    version=POLICY_VERSION,
    kind="ClusterPolicy",
    plural="clusterpolicies",
    namespaced=False,
)
POLICIES = Kind(
    group=GROUP, version=POLICY_VERSION, kind="Policy", plural="policies", namespaced=True
)
POLICY_KINDS = (CLUSTER_POLICIES, POLICIES)
"""What is watched, listed, waited for at the start and checked when it is written."""


def policy_named(key: str) -> PolicyRef:
    """Return which policy a text means: ``name`` a ClusterPolicy, ``namespace/name`` a Policy.

    People write it so, and so it stands in reports and in requests of older versions.
    """
    namespace, _, name = key.rpartition("/")
    kind = POLICIES if namespace else CLUSTER_POLICIES
    return PolicyRef(api_version=kind.api_version, kind=kind.kind, namespace=namespace, name=name)


def policy_kind(ref: PolicyRef) -> Kind:
    """Return under which kind a policy is served.

    Raises:
        NoKindMatch: None of that name is.
    """
    for kind in POLICY_KINDS:
        if (kind.api_version, kind.kind) == (ref.api_version, ref.kind):
            return kind
    raise NoKindMatch(f"{ref.kind} of {ref.api_version} is no kind of policies", status=404)
