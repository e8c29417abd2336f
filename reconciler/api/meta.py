"""Names of the API that every part of the project shares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from reconciler.installation import INSTALLATIONS
from reconciler.values import value_class

GROUPS = tuple(INSTALLATIONS)
"""The API groups of the same kinds; each installation has one of them."""
PREFIX = "kube-retrofit.dev/"
_OWN_GROUPS = (*GROUPS, "api.kubemod.io", "policy.kcloudlabs.io")
_BELOW_OWN_GROUPS = tuple(f".{group}" for group in _OWN_GROUPS)
_RECORDED = frozenset(item.recorded for item in INSTALLATIONS.values())
FIELD_MANAGER = "kube-retrofit"
EXISTING_MANAGER = f"{FIELD_MANAGER}-existing"
"""The field manager of what rules write on existing objects that no other rule is for."""

LABEL_SHARD = f"{PREFIX}shard"
LABEL_POLICY = f"{PREFIX}policy"
LABEL_SOURCE = f"{PREFIX}source"
ANNOTATION_APPLIED = f"{PREFIX}applied"
LABEL_RECORDED = f"{PREFIX}recorded"
"""On a Secret with recorded fields, and on its request: where recorded fields are kept."""
ANNOTATION_EXCEPTS = f"{PREFIX}excepts"
ANNOTATION_WAITING = f"{PREFIX}waiting"
ANNOTATION_HOLDERS = f"{PREFIX}waiting-of"
ANNOTATION_SEEN = f"{PREFIX}seen"
ANNOTATION_MISSED = f"{PREFIX}missed-until"
ANNOTATION_IN_FORCE = f"{PREFIX}in-force"
ANNOTATION_OUTAGES = f"{PREFIX}outages"
"""On the Lease of the admission servers: triggers may be missing that came before this time."""
ANNOTATION_ALL_KINDS = f"{PREFIX}all-kinds"
"""On a policy: ``fail`` lets a rule for all kinds refuse what cannot be recorded."""
ANNOTATION_SERVICE_ACCOUNT = f"{PREFIX}service-account"
"""On a policy: the account in whose name its work is done."""
ANNOTATION_EXISTING = f"{PREFIX}existing"
ANNOTATION_RUN = f"{PREFIX}run"
"""On a policy: every new value runs its rules once on all that exists."""
ANNOTATION_RETRY = f"{PREFIX}retry"
"""On a request: a new value ends the pause before its next attempt."""
ANNOTATION_RETRY_FAILED = f"{PREFIX}retry-failed"
"""On a failed request: somebody wants a new one to do its work."""
ANNOTATION_RETRIED = f"{PREFIX}retried"
"""On a failed request: the name of the one that does its work again."""

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
    def resource(self) -> str:
        """Return the name that RBAC uses, as ``deployments.apps/scale``."""
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{name}/{self.subresource}" if self.subresource else name


CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
NAMESPACES = Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False)


@value_class(frozen=True, slots=True, kw_only=True)
class TargetKey:
    """Which object, of those that there may be; work on one of them is serialised."""

    kind: Kind
    namespace: str
    name: str


@value_class(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """Which object; ``uid`` is empty where any object of that name is meant."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""

    @property
    def reference(self) -> dict[str, str]:
        """Return it as the API refers to an object."""
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
    """Which policy, of all languages; ``namespace`` is empty where it is cluster-wide.

    A policy that was deleted and made again has the same one: uids tell them apart.
    """

    api_version: str
    kind: str
    namespace: str = ""
    name: str

    @property
    def key(self) -> str:
        """Return ``namespace/name`` or ``name``, as people, labels and ``spec.policy`` have it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def as_object(self, uid: str) -> ObjectRef:
        """Return it as an object like any other."""
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
    """Return which policy an object is."""
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
        namespace=str(meta.get("namespace", "")),
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
    )


def manager_of(entry: Mapping[str, Any]) -> str:
    """Return who wrote what an entry of ``managedFields`` lists; the controller has one name."""
    name = str(entry.get("manager") or "")
    return FIELD_MANAGER if name == EXISTING_MANAGER else name


def resource_version(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.resourceVersion``, empty where there is none."""
    return str((obj.get("metadata") or {}).get("resourceVersion", ""))


def split_api_version(api_version: str) -> tuple[str, str]:
    """Return group and version; the group of ``v1`` is empty."""
    group, _, version = api_version.rpartition("/")
    return group, version


def is_own_group(group: str) -> bool:
    """Return whether objects of an API group are policies, or kept by the programs themselves."""
    return group in _OWN_GROUPS or group.endswith(_BELOW_OWN_GROUPS)


def own_namespaces(namespace: str) -> frozenset[str]:
    """Return the namespaces that no policy reaches, given that of the programs.

    What any installation recorded of users' Secrets is out of reach of all of them.
    """
    return _RECORDED | {namespace}
