"""The kinds of an installation's API group, and the policy kinds of other languages."""

from dataclasses import dataclass, replace
from typing import Final

from reconciler.api.meta import Kind, PolicyRef, split_api_version
from reconciler.installation import INSTALLATIONS, REPLACING, Installation

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKinds:
    """The kinds of one installation: policies, and what belongs to them."""

    cluster_policies: Kind
    policies: Kind
    exceptions: Kind
    entries: Kind
    requests: Kind


def _group_kinds(installation: Installation) -> GroupKinds:
    def kind(name: str, plural: str, version: str, *, namespaced: bool = True) -> Kind:
        return Kind(
            group=installation.group,
            version=version,
            kind=name,
            plural=installation.plural_prefix + plural,
            namespaced=namespaced,
        )

    version = installation.version
    return GroupKinds(
        cluster_policies=kind("ClusterPolicy", "clusterpolicies", "v1", namespaced=False),
        policies=kind("Policy", "policies", "v1"),
        exceptions=kind("PolicyException", "policyexceptions", version),
        entries=kind("GlobalContextEntry", "globalcontextentries", version, namespaced=False),
        requests=kind("UpdateRequest", "updaterequests", version),
    )


_KINDS: Final = {item.group: _group_kinds(item) for item in INSTALLATIONS.values()}


def kinds_of(installation: Installation) -> GroupKinds:
    """Return the kinds of an installation's group."""
    return _KINDS[installation.group]


def installation_of(api_version: str) -> Installation:
    """Return the installation that an ``apiVersion`` belongs to, `REPLACING` for other groups."""
    return INSTALLATIONS.get(split_api_version(api_version)[0], REPLACING)


_BY_WORD: Final = {
    word: kind
    for kind in (
        MOD_RULES,
        OVERRIDE_POLICIES,
        CLUSTER_OVERRIDE_POLICIES,
        CLUSTER_VALIDATE_POLICIES,
    )
    for word in (kind.kind.lower(), kind.plural)
}


def policy_named(key: str, installation: Installation = REPLACING) -> PolicyRef:
    """Return the policy that a text names: ``name`` a ClusterPolicy, ``namespace/name`` a Policy.

    Users write this form, and reports and requests of older versions contain it. The kind of
    another language may precede it, see `named_with_kind`.
    """
    found = named_with_kind(key)
    if found is not None:
        return found
    namespace, _, name = key.rpartition("/")
    kinds = kinds_of(installation)
    kind = kinds.policies if namespace else kinds.cluster_policies
    return PolicyRef(api_version=kind.api_version, kind=kind.kind, namespace=namespace, name=name)


def named_with_kind(text: str) -> PolicyRef | None:
    """Return the policy of another language that a text names with its kind, else None.

    Such are ``modrule/namespace/name`` and ``clusteroverridepolicy/name``.
    """
    word, _, rest = text.partition("/")
    kind = _BY_WORD.get(word)
    *namespace, name = rest.split("/")
    if kind is None or len(namespace) != int(kind.namespaced) or not all((*namespace, name)):
        return None
    return PolicyRef(
        api_version=kind.api_version, kind=kind.kind, namespace="".join(namespace), name=name
    )
