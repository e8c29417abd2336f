"""Objects that no policy may read or change, whatever rights the controller has.

Rights limit what an account may do; this module protects what the controller itself depends on.
It is applied to the text of a policy when that is written, and again to a trigger's values.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind, Object, is_own_group, own_namespaces, split_api_version
from reconciler.api.paths import parse_path, segments
from reconciler.config import ProcessSettings
from reconciler.engine.evaluate import GUARDED
from reconciler.engine.match import Subject
from reconciler.errors import InvalidSetting
from reconciler.installation import INSTALLATIONS, REPLACING

OWN_NAMESPACE: Final = REPLACING.namespace
"""The default namespace of the programs; a flag overrides it."""

KUBE_SYSTEM: Final = "kube-system"
"""The namespace of cluster components; no webhook is called for it."""

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label by which a selector names a namespace."""

_ADMISSION: Final = "admissionregistration.k8s.io"
_COORDINATION: Final = "coordination.k8s.io"
_REQUESTS: Final = frozenset(
    (item.group, kinds_of(item).requests.plural) for item in INSTALLATIONS.values()
)
_SETTINGS: Final = ("", "configmaps")
_REVIEWS: Final = frozenset(
    {
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)
"""The resources that a POST may create, because the API server never stores them."""

_NEVER_SENT: Final = re.compile(r"[\x00-\x20\x7f]")
"""Characters that are no part of a path; a client that drops some would ask for another one."""

_STANDING: Final = (
    f"namespace {KUBE_SYSTEM} is changed neither before nor after its objects are stored"
)


def standing_namespaces(namespace: str) -> frozenset[str]:
    """Return the namespaces that no webhook is called for, given the programs' namespace."""
    return own_namespaces(namespace) | {KUBE_SYSTEM}


def outside_of_them(namespace: str) -> Object:
    """Return the namespace selector requirement that excludes the `standing_namespaces`.

    The API server also evaluates it for Namespace objects, on their own labels.
    """
    values = sorted(standing_namespaces(namespace))
    return {"key": NAMESPACE_NAME, "operator": "NotIn", "values": values}


def standing(subject: Subject) -> str:
    """Return why no rule changes this object as its own trigger, empty if one may."""
    is_namespace = subject.kind == "Namespace" and not subject.group
    namespace = subject.name if is_namespace else subject.namespace
    return _STANDING if namespace == KUBE_SYSTEM else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Decides what a policy may not access; ``of_*`` return a reason, empty if access is allowed.

    Attributes:
        namespace: The programs' namespace.
        guarded: Metadata fields that no patch may change.
    """

    namespace: str = OWN_NAMESPACE
    guarded: frozenset[str] = GUARDED

    @classmethod
    def of(cls, settings: ProcessSettings) -> Self:
        """Return the protection of a program with these settings.

        Raises:
            InvalidSetting: ``--allow-metadata`` names a field that is not guarded.
        """
        allowed = {field.strip() for field in settings.allow_metadata.split(",")} - {""}
        if unknown := allowed - GUARDED:
            raise InvalidSetting(
                f"--allow-metadata={settings.allow_metadata}: {', '.join(sorted(unknown))} is not"
                f" guarded; write {' or '.join(sorted(GUARDED))}"
            )
        return cls(namespace=settings.namespace, guarded=GUARDED - allowed)

    def of_write(self, group: str, namespace: str) -> str:
        """Return why no policy may change objects of an API group in a namespace."""
        if self._is_own(namespace):
            return f"namespace {namespace} belongs to kube-retrofit, and no policy changes it"
        if is_own_group(group):
            return f"no policy changes objects of {group}: they configure kube-retrofit"
        if group == _ADMISSION:
            return f"no policy changes objects of {group}: they decide where requests are sent"
        if group == _COORDINATION:
            return f"no policy changes objects of {group}: they decide which replica leads"
        return ""

    def of_admission(self, namespace: str) -> str:
        """Return why no rule may change objects of a namespace before they are stored."""
        return _STANDING if namespace == KUBE_SYSTEM else self.of_write("", namespace)

    def of_target(self, kind: Kind, namespace: str) -> str:
        """Return why objects of a kind in a namespace may not be targets."""
        return self.of_write(kind.group, namespace if kind.namespaced else "")

    def of_field(self, field: str) -> str:
        """Return why no patch may change a field of a target's metadata."""
        if field not in self.guarded:
            return ""
        return (
            f"no patch changes metadata.{field}, which decides when an object is deleted, unless"
            f" both programs run with --allow-metadata={field}"
        )

    def of_trigger(self, kind: str, namespace: str) -> str:
        """Return why objects in a namespace trigger nothing; Namespace objects are exempt."""
        if self._is_own(namespace) and kind != "Namespace":
            return (
                f"namespace {namespace} belongs to kube-retrofit, and its objects trigger nothing"
            )
        return ""

    def of_api_version(self, api_version: str, namespace: str) -> str:
        """Return why a target is refused, given only its apiVersion and namespace."""
        return self.of_write(split_api_version(api_version)[0], namespace)

    def of_read(self, group: str, resource: str, namespace: str) -> str:
        """Return why no policy may read objects of a resource, by a call or in a global entry."""
        if group in {_ADMISSION, _COORDINATION}:
            return f"no policy reads objects of {group}"
        if (group, resource) in _REQUESTS:
            return "no policy reads UpdateRequests: they hold what was recorded for other policies"
        if self._is_own(namespace) and (group, resource) != _SETTINGS:
            return (
                f"namespace {namespace} belongs to kube-retrofit, and a policy may read only"
                " ConfigMaps there"
            )
        return ""

    def of_call(self, method: str, path: str) -> str:
        """Return why a policy may not make a call to the API server."""
        if found := _NEVER_SENT.search(path.partition("?")[0]):
            return f"a path must not contain {found[0]!r}"
        parts = segments(path)
        if "." in parts or ".." in parts:
            return "a path must not contain dots as a part"
        meant = parse_path(parts)
        if method != "GET":
            if meant is not None and (meant.group, meant.resource) in _REVIEWS:
                return ""
            return (
                f"{method} is only for access reviews, which store nothing, such as"
                " /apis/authorization.k8s.io/v1/subjectaccessreviews"
            )
        return "" if meant is None else self.of_read(meant.group, meant.resource, meant.namespace)

    def without_own(self, path: str, answer: Any) -> Any:
        """Return the response to a GET without the objects of the programs' namespace."""
        meant = parse_path(segments(path))
        if (
            meant is None
            or meant.namespace
            or meant.name
            or (meant.group, meant.resource) == _SETTINGS
            or not isinstance(answer, Mapping)
            or not isinstance(answer.get("items"), list)
        ):
            return answer
        return {**answer, "items": [item for item in answer["items"] if not self._holds(item)]}

    def hides(self, kind: Kind, obj: Mapping[str, Any]) -> bool:
        """Return whether an object of a cluster-wide list must be hidden from policies."""
        return (kind.group, kind.plural) != _SETTINGS and self._holds(obj)

    def _holds(self, obj: Any) -> bool:
        meta = obj.get("metadata") if isinstance(obj, Mapping) else None
        return isinstance(meta, Mapping) and self._is_own(str(meta.get("namespace", "")))

    def _is_own(self, namespace: str) -> bool:
        return namespace in own_namespaces(self.namespace)
