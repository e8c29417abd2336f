"""The kinds of policies, and which one a text without a kind means."""

from dataclasses import replace

from reconciler.api.meta import GROUP, POLICY_VERSION, Kind, PolicyRef

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

MOD_RULES = Kind(
    group="api.kubemod.io",
    version="v1beta1",
    kind="ModRule",
    plural="modrules",
    namespaced=True,
)

OVERRIDE_POLICIES = Kind(
    group="policy.kcloudlabs.io",
    version="v1alpha1",
    kind="OverridePolicy",
    plural="overridepolicies",
    namespaced=True,
)
CLUSTER_OVERRIDE_POLICIES = replace(
    OVERRIDE_POLICIES,
    kind="ClusterOverridePolicy",
    plural="clusteroverridepolicies",
    namespaced=False,
)
CLUSTER_VALIDATE_POLICIES = replace(
    CLUSTER_OVERRIDE_POLICIES, kind="ClusterValidatePolicy", plural="clustervalidatepolicies"
)


def policy_named(key: str) -> PolicyRef:
    """Return which policy a text means: ``name`` a ClusterPolicy, ``namespace/name`` a Policy.

    People write it so, and so it stands in reports and in requests of older versions.
    """
    namespace, _, name = key.rpartition("/")
    kind = POLICIES if namespace else CLUSTER_POLICIES
    return PolicyRef(api_version=kind.api_version, kind=kind.kind, namespace=namespace, name=name)
