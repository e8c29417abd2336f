"""The `Kinds` and `MergeKeys` ports, from a table of common kinds and additions to it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind, Object, ref_of, split_api_version
from reconciler.engine import reading
from reconciler.engine.patch import SHIPPED, KeyTable
from reconciler.engine.patch.openapi import read_definitions
from reconciler.engine.values.wildcard import has_wildcard, matches
from reconciler.errors import InvalidPolicy, InvalidSetting
from reconciler.installation import REPLACING

# Group version, then kind=plural, then N for namespaced kinds, then the subresources.
_BUILT_IN = """
v1 ConfigMap=configmaps N
v1 Endpoints=endpoints N
v1 Event=events N
v1 LimitRange=limitranges N
v1 Namespace=namespaces - status
v1 Node=nodes - status
v1 PersistentVolume=persistentvolumes - status
v1 PersistentVolumeClaim=persistentvolumeclaims N status
v1 Pod=pods N status ephemeralcontainers resize
v1 PodTemplate=podtemplates N
v1 ReplicationController=replicationcontrollers N scale status
v1 ResourceQuota=resourcequotas N status
v1 Secret=secrets N
v1 Service=services N status
v1 ServiceAccount=serviceaccounts N
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration=mutatingwebhookconfigurations -
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy=validatingadmissionpolicies - status
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration=validatingwebhookconfigurations -
apiextensions.k8s.io/v1 CustomResourceDefinition=customresourcedefinitions - status
apiregistration.k8s.io/v1 APIService=apiservices - status
apps/v1 ControllerRevision=controllerrevisions N
apps/v1 DaemonSet=daemonsets N status
apps/v1 Deployment=deployments N scale status
apps/v1 ReplicaSet=replicasets N scale status
apps/v1 StatefulSet=statefulsets N scale status
autoscaling/v2 HorizontalPodAutoscaler=horizontalpodautoscalers N status
autoscaling/v1 HorizontalPodAutoscaler=horizontalpodautoscalers N status
batch/v1 CronJob=cronjobs N status
batch/v1 Job=jobs N status
coordination.k8s.io/v1 Lease=leases N
discovery.k8s.io/v1 EndpointSlice=endpointslices N
events.k8s.io/v1 Event=events N
networking.k8s.io/v1 Ingress=ingresses N status
networking.k8s.io/v1 IngressClass=ingressclasses -
networking.k8s.io/v1 NetworkPolicy=networkpolicies N
policy/v1 PodDisruptionBudget=poddisruptionbudgets N status
rbac.authorization.k8s.io/v1 ClusterRole=clusterroles -
rbac.authorization.k8s.io/v1 ClusterRoleBinding=clusterrolebindings -
rbac.authorization.k8s.io/v1 Role=roles N
rbac.authorization.k8s.io/v1 RoleBinding=rolebindings N
scheduling.k8s.io/v1 PriorityClass=priorityclasses -
storage.k8s.io/v1 CSIDriver=csidrivers -
storage.k8s.io/v1 StorageClass=storageclasses -
storage.k8s.io/v1 VolumeAttachment=volumeattachments - status
kyverno.io/v1 ClusterPolicy=clusterpolicies - status
kyverno.io/v1 Policy=policies N status
kyverno.io/v2 GlobalContextEntry=globalcontextentries - status
kyverno.io/v2 PolicyException=policyexceptions N
kyverno.io/v2 UpdateRequest=updaterequests N status
api.kubemod.io/v1beta1 ModRule=modrules N status
policy.kcloudlabs.io/v1alpha1 OverridePolicy=overridepolicies N status
policy.kcloudlabs.io/v1alpha1 ClusterOverridePolicy=clusteroverridepolicies - status
policy.kcloudlabs.io/v1alpha1 ClusterValidatePolicy=clustervalidatepolicies - status
kube-retrofit.dev/v1 ClusterPolicy=retrofitclusterpolicies - status
kube-retrofit.dev/v1 GlobalContextEntry=retrofitglobalcontextentries - status
kube-retrofit.dev/v1 Policy=retrofitpolicies N status
kube-retrofit.dev/v1 PolicyException=retrofitpolicyexceptions N
kube-retrofit.dev/v1 UpdateRequest=retrofitupdaterequests N status
"""

_SHORT_NAMES = {
    "cm": "configmaps",
    "ep": "endpoints",
    "ev": "events",
    "ns": "namespaces",
    "no": "nodes",
    "po": "pods",
    "pv": "persistentvolumes",
    "sa": "serviceaccounts",
    "pvc": "persistentvolumeclaims",
    "rc": "replicationcontrollers",
    "svc": "services",
    "crd": "customresourcedefinitions",
    "crds": "customresourcedefinitions",
    "ds": "daemonsets",
    "deploy": "deployments",
    "rs": "replicasets",
    "sts": "statefulsets",
    "hpa": "horizontalpodautoscalers",
    "cj": "cronjobs",
    "ing": "ingresses",
    "netpol": "networkpolicies",
    "pdb": "poddisruptionbudgets",
    "sc": "storageclasses",
    "quota": "resourcequotas",
    "limits": "limitranges",
    "pc": "priorityclasses",
    "ur": "updaterequests",
    "cpol": "clusterpolicies",
    "pol": "policies",
}


def _table() -> Iterator[Kind]:
    for line in _BUILT_IN.strip().splitlines():
        api_version, names, scope, *subresources = line.split()
        group, version = split_api_version(api_version)
        name, _, plural = names.partition("=")
        kind = Kind(
            group=group, version=version, kind=name, plural=plural, namespaced=scope == "N"
        )
        yield kind
        yield from (replace(kind, subresource=item) for item in subresources)


REQUESTS = kinds_of(REPLACING).requests


class MemoryKinds:
    """The kinds that the in-memory cluster serves."""

    def __init__(self) -> None:
        self._served = list(_table())
        self._merge_keys = SHIPPED

    def serve(self, *kinds: Kind) -> None:
        """Serve more kinds; the first version of a resource is its preferred one."""
        self._served += [kind for kind in kinds if kind not in self._served]

    def serve_definition(self, definition: Object) -> None:
        """Serve the kinds of a CustomResourceDefinition, its storage version first.

        Raises:
            InvalidSetting: The definition is malformed, or of v1beta1 with one version.
        """
        try:
            self.serve(*_defined(reading.object_at(definition.get("spec"), "spec")))
        except InvalidPolicy as error:
            name = ref_of(definition).name
            raise InvalidSetting(f"CustomResourceDefinition {name}: {error}") from error
        self._merge_keys = self._merge_keys.with_kinds(read_definitions([definition]))

    def serves(self, kind: Kind) -> bool:
        """Return whether a kind is served."""
        return kind in self._served

    async def merge_keys(self, _api_version: str) -> KeyTable:
        """Return the merge keys of all kinds."""
        return self._merge_keys

    def exact(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object's own apiVersion and kind."""
        for item in self._served:
            if (item.api_version, item.kind, item.subresource) == (api_version, kind, ""):
                return item
        return None

    async def find(self, api_version: str, kind: str) -> tuple[Kind, ...]:
        """Return the served resources that a target's ``apiVersion`` and ``kind`` name."""
        group, version = split_api_version(api_version)
        if version == "*" and "/" not in api_version:
            group = "*"
        name, _, subresource = kind.partition("/")
        wanted = (group, version, name, subresource)
        found = [item for item in self._served if _named(item, wanted)]
        if has_wildcard(version):
            first = {(item.group, item.plural, item.subresource): item for item in reversed(found)}
            found = list(first.values())[::-1]
        return tuple(found)

    async def named(self, api_version: str, name: str) -> Kind | None:
        """Return the kind of a name, plural or short name as users type it, None if not served."""
        wanted = _SHORT_NAMES.get(name.lower(), name.lower())
        for item in self._served:
            is_version = not item.subresource and api_version in {"", item.api_version}
            if is_version and wanted in {item.kind.lower(), item.plural}:
                return item
        return None

    async def of_resource(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind behind a resource name, None where it is not served."""
        wanted = (group, version, *plural.partition("/")[::2])
        for item in self._served:
            if (item.group, item.version, item.plural, item.subresource) == wanted:
                return item
        return None


def _defined(spec: Mapping[str, Any]) -> Iterator[Kind]:
    names = reading.object_at(spec.get("names"), "spec.names")
    listed = reading.sequence(spec.get("versions"), "spec.versions")
    versions = [reading.object_at(item, "spec.versions[*]") for item in listed]
    if not versions:
        raise InvalidPolicy("spec.versions", "expected a list of versions, got nothing")
    served = [version for version in versions if version.get("served", True)]
    for version in sorted(served, key=lambda item: not item.get("storage", False)):
        kind = Kind(
            group=reading.string(spec.get("group"), "spec.group"),
            version=reading.string(version.get("name"), "spec.versions[*].name"),
            kind=reading.string(names.get("kind"), "spec.names.kind"),
            plural=reading.string(names.get("plural"), "spec.names.plural"),
            namespaced=spec.get("scope") != "Cluster",
        )
        yield kind
        parts = reading.object_at(version.get("subresources"), "spec.versions[*].subresources")
        yield from (replace(kind, subresource=name) for name in parts)


def _named(kind: Kind, wanted: tuple[str, str, str, str]) -> bool:
    parts = (kind.group, kind.version, kind.kind, kind.subresource)
    return bool(wanted[3]) == bool(kind.subresource) and all(map(matches, wanted, parts))
