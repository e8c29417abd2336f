"""Names and references of the API that all parts of the project share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from reconciler.installation import INSTALLATIONS
from reconciler.values import value_class

GROUPS = tuple(INSTALLATIONS)
"""The API groups that have the same kinds; each installation uses one of them."""
PREFIX = "kube-retrofit.dev/"
_OWN_GROUPS = (*GROUPS, "api.kubemod.io", "policy.kcloudlabs.io")
_BELOW_OWN_GROUPS = tuple(f".{group}" for group in _OWN_GROUPS)
_LONGEST_VERSION = 20
"""The digits of the largest number of 64 bits."""
_RECORDED = frozenset(item.recorded for item in INSTALLATIONS.values())
FIELD_MANAGER = "kube-retrofit"
EXISTING_MANAGER = f"{FIELD_MANAGER}-existing"
"""The field manager of a rule's writes to existing objects that no other rule matches."""

LABEL_SHARD = f"{PREFIX}shard"
LABEL_POLICY = f"{PREFIX}policy"
LABEL_SOURCE = f"{PREFIX}source"
ANNOTATION_APPLIED = f"{PREFIX}applied"
LABEL_RECORDED = f"{PREFIX}recorded"
"""On a Secret that holds recorded fields, and on the request that they belong to."""
ANNOTATION_EXCEPTS = f"{PREFIX}excepts"
ANNOTATION_WAITING = f"{PREFIX}waiting"
ANNOTATION_HOLDERS = f"{PREFIX}waiting-of"
ANNOTATION_SEEN = f"{PREFIX}seen"
ANNOTATION_MISSED = f"{PREFIX}missed-until"
"""On the Lease of the admission servers: triggers from before this time may be missing."""
ANNOTATION_IN_FORCE = f"{PREFIX}in-force"
ANNOTATION_OUTAGES = f"{PREFIX}outages"
ANNOTATION_ALL_KINDS = f"{PREFIX}all-kinds"
"""On a policy: ``fail`` allows a rule for all kinds to refuse what cannot be recorded."""
ANNOTATION_SERVICE_ACCOUNT = f"{PREFIX}service-account"
"""On a policy: the ServiceAccount as which its work is done."""
ANNOTATION_EXISTING = f"{PREFIX}existing"
ANNOTATION_RUN = f"{PREFIX}run"
"""On a policy: every new value runs its rules once on all existing triggers."""
ANNOTATION_RETRY = f"{PREFIX}retry"
"""On a request: a new value ends the pause before its next attempt."""
ANNOTATION_RETRY_FAILED = f"{PREFIX}retry-failed"
"""On a failed request: asks for a new request that does its work."""
ANNOTATION_RETRIED = f"{PREFIX}retried"
"""On a failed request: the name of the request that does its work again."""

Object = dict[str, Any]
"""A Kubernetes object as decoded from JSON; never modelled further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A served resource, as discovery describes it.

    Attributes:
        group: Empty for the core group.
        plural: The resource's name in the path, without a subresource.
        subresource: Empty for the object itself, else as ``status`` or ``scale``.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    subresource: str = ""

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def head(self) -> dict[str, str]:
        """Return the fields of an object that name its kind."""
        return {"apiVersion": self.api_version, "kind": self.kind}

    @property
    def resource(self) -> str:
        """Return the name that RBAC uses, as ``deployments.apps/scale``."""
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{name}/{self.subresource}" if self.subresource else name


CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
NAMESPACES = Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False)


@value_class(frozen=True, slots=True, kw_only=True)
class TargetKey:
    """The identity of a target; work on one target is serialised."""

    kind: Kind
    namespace: str
    name: str


@value_class(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A reference to an object; ``uid`` is empty where any object of that name counts."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""

    @property
    def reference(self) -> dict[str, str]:
        """Return the reference in the form of the Kubernetes API."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }

    @override
    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRef:
    """A reference to a policy of any language; ``namespace`` is empty for a cluster-wide one.

    A policy that was deleted and created again has the same reference and another uid.
    """

    api_version: str
    kind: str
    namespace: str = ""
    name: str

    @property
    def key(self) -> str:
        """Return ``namespace/name`` or ``name``, as users, labels and ``spec.policy`` write it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def as_object(self, uid: str) -> ObjectRef:
        """Return the reference to the policy as an object."""
        return ObjectRef(
            api_version=self.api_version,
            kind=self.kind,
            namespace=self.namespace,
            name=self.name,
            uid=uid,
        )

    @override
    def __str__(self) -> str:
        return self.key


def policy_ref(policy: Mapping[str, Any]) -> PolicyRef:
    """Return the reference to the policy in an object."""
    ref = ref_of(policy)
    return PolicyRef(
        api_version=ref.api_version,
        kind=ref.kind,
        namespace=ref.namespace,
        name=ref.name,
    )


def ref_of(obj: Mapping[str, Any]) -> ObjectRef:
    """Return the reference of an object as decoded."""
    meta = obj.get("metadata") or {}
    return ObjectRef(
        api_version=str(obj.get("apiVersion", "")),
        kind=str(obj.get("kind", "")),
        namespace=str(meta.get("namespace") or ""),
        name=str(meta.get("name") or ""),
        uid=str(meta.get("uid") or ""),
    )


def manager_of(entry: Mapping[str, Any]) -> str:
    """Return the manager of a ``managedFields`` entry; the controller's two count as one."""
    name = str(entry.get("manager") or "")
    return FIELD_MANAGER if name == EXISTING_MANAGER else name


def resource_version(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.resourceVersion``, empty where there is none."""
    return str((obj.get("metadata") or {}).get("resourceVersion", ""))


def version_number(version: str) -> int:
    """Return a resourceVersion as the number by which it is compared; 0 if it is not one."""
    return int(version) if version.isdecimal() and len(version) <= _LONGEST_VERSION else 0


def split_api_version(api_version: str) -> tuple[str, str]:
    """Return the group and the version; the group of ``v1`` is empty."""
    group, _, version = api_version.rpartition("/")
    return group, version


def is_own_group(group: str) -> bool:
    """Return whether an API group holds policies or objects of the programs themselves."""
    return group in _OWN_GROUPS or group.endswith(_BELOW_OWN_GROUPS)


def own_namespaces(namespace: str) -> frozenset[str]:
    """Return the namespaces that policies cannot act on, given that of the programs.

    They include the namespaces in which any installation keeps recorded fields of Secrets.
    """
    return _RECORDED | {namespace}
