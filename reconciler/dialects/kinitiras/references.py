"""References to other objects of the cluster: by name, by labels, and to the owner."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.api.meta import split_api_version
from reconciler.api.rights import ANY, Need, ReadNeed, Right
from reconciler.dialects.kinitiras.texts import (
    ABSENT,
    API_VERSION,
    KIND,
    Path,
    filled,
    filled_selector,
    has_placeholder,
    read_kind,
    read_text,
)
from reconciler.engine import reading
from reconciler.engine.confidential import is_secret
from reconciler.engine.context import Context
from reconciler.engine.loads import ObjectLoad, answer_to
from reconciler.engine.match.selectors import compile_selector
from reconciler.engine.values.addresses import check_name, why_no_name
from reconciler.errors import EvaluationError, InvalidPolicy

_FIELDS: Final = ("apiVersion", "kind", "namespace", "name", "labelSelector", "fieldSelector")
_OBJECT: Final = frozenset({("request", "object")})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """A part of another object, selected by its name or as the first with matching labels.

    Attributes:
        home: The namespace to which the policy is confined; empty where it is not.
        location: Of the reference in the policy.
        namespace: May contain placeholders, as may `name` and the values in `labels`.
        labels: None where the object is named.
        path: Into the object.
    """

    home: str
    location: str
    api_version: str
    kind: str
    namespace: str
    name: str
    labels: Mapping[str, Any] | None
    path: Path

    loads = True
    reads = _OBJECT

    def of(self, context: Context) -> Any:
        """Return the part; `ABSENT` if it, its object or a placeholder's value is missing.

        Raises:
            EvaluationError: The object cannot be read, or a placeholder gives no valid name.
            NeedsLoad: The object has not been read yet.
        """
        load = self._load(context.data["request"])
        found = None if load is None else answer_to(load, context.loads, _failing(load))
        return ABSENT if found is None else self.path.look_up(found)

    def _load(self, request: Mapping[str, Any]) -> ObjectLoad | None:
        obj = request.get("object") or {}
        name, namespace = filled(self.name, obj), filled(self.namespace, obj)
        labels = {} if self.labels is None else filled_selector(self.labels, obj)
        if name is None or namespace is None or labels is None:
            return None
        if self.home and namespace not in ("", self.home):
            reason = f"k8s: a policy in namespace {self.home} can read only that namespace"
            raise EvaluationError(reason).bare(reason)
        if not namespace:
            # The original fails if only the name is given; this follows its documentation.
            namespace = self.home or (str(request.get("namespace") or "") if name else "")
        if namespace:
            check_name(namespace, "k8s.namespace")
        return ObjectLoad(
            api_version=self.api_version,
            kind=self.kind,
            namespace=namespace,
            name=check_name(name, "k8s.name") if self.name else "",
            labels="" if self.labels is None else _selector_text(labels),
            confined=bool(self.home),
        )

    def needs(self) -> Iterator[Need | ReadNeed]:
        """Yield the right that reading the object requires."""
        namespace = "" if has_placeholder(self.namespace) else self.namespace
        yield ReadNeed(
            location=self.location,
            verb="get" if self.name else "list",
            api_version=self.api_version,
            kind=self.kind,
            namespace=self.home or namespace,
            name="" if has_placeholder(self.name) else self.name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """A part of the object's owner: of the first one that it names, as in the original.

    Attributes:
        home: The namespace to which the policy is confined; empty where it is not.
        location: Of the reference in the policy.
        path: Into the owner.
    """

    home: str
    location: str
    path: Path

    loads = True
    reads = _OBJECT

    def of(self, context: Context) -> Any:
        """Return the part, or `ABSENT` if the owner does not have it.

        Raises:
            EvaluationError: The object has no owner, or the owner cannot be read.
            NeedsLoad: The owner has not been read yet.
        """
        request = context.data["request"]
        owner = _first_owner(request.get("object") or {})
        load = ObjectLoad(
            api_version=str(owner["apiVersion"]),
            kind=str(owner["kind"]),
            namespace=str(request.get("namespace") or ""),
            name=check_name(str(owner.get("name") or ""), "owner: name"),
            confined=bool(self.home),
        )
        found = answer_to(load, context.loads, _failing(load))
        stored = (found.get("metadata") or {}).get("uid")
        # The author of an object chooses its ownerReferences, but does not know every uid.
        if owner.get("uid") and stored and owner["uid"] != stored:
            reason = "owner: the object of that name has another uid"
            raise EvaluationError(reason).bare(reason)
        return self.path.look_up(found)

    def needs(self) -> Iterator[Need | ReadNeed]:
        """Yield the right to read any kind, as only the object names the kind of its owner."""
        right = Right(verb="get", group=ANY, resource=ANY, namespace=self.home)
        yield Need(location=self.location, options=(right,))


def _first_owner(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    owners = (obj.get("metadata") or {}).get("ownerReferences") or []
    owner = owners[0] if isinstance(owners, list) and owners else None
    if not isinstance(owner, Mapping):
        raise _refused(
            "the object has no owner; restrict resourceSelectors to objects with an owner"
        )
    api_version, kind = str(owner.get("apiVersion", "")), str(owner.get("kind", ""))
    if not (API_VERSION.fullmatch(api_version) and KIND.fullmatch(kind)):
        raise _refused("the apiVersion or kind in ownerReferences is invalid")
    if is_secret(split_api_version(api_version)[0], kind):
        # The author of the object chooses the owner, and may not be allowed to read it.
        raise _refused("a Secret is never read as an owner")
    return owner


def _refused(why: str) -> EvaluationError:
    return EvaluationError(f"owner: {why}").bare(f"owner: {why}")


def _failing(load: ObjectLoad) -> str:
    place = "/".join(part for part in (load.namespace, load.name) if part)
    return f"{load.kind} {place}".rstrip() + " cannot be read"


def _selector_text(labels: Mapping[str, Any]) -> str:
    """Return a selector in the API server's syntax; its values are not patterns.

    Raises:
        EvaluationError: A placeholder gives an invalid label.
    """
    equal = labels.get("matchLabels") or {}
    expressions = [
        *({"key": key, "operator": "In", "values": [value]} for key, value in equal.items()),
        *(labels.get("matchExpressions") or ()),
    ]
    try:
        return compile_selector({"matchExpressions": expressions}, location="").server
    except InvalidPolicy as error:
        reason = "k8s.labelSelector: the value of a placeholder is not a valid label value"
        raise EvaluationError(reason).bare(reason) from error


def read_object_reference(raw: Any, path: Path, location: str, home: str) -> ObjectReference:
    """Read ``k8s``, the selection of another object.

    Raises:
        InvalidPolicy: The reference is invalid, or leaves the namespace of the policy.
    """
    place = f"{location}.k8s"
    fields = reading.mapping(raw, place, allowed=_FIELDS)
    labels = fields.get("labelSelector")
    if fields.get("fieldSelector"):
        reason = "only a name or labels select the object of a reference"
        raise InvalidPolicy(f"{place}.fieldSelector", reason)
    api_version, kind = read_kind(fields, place)
    found = ObjectReference(
        home=home,
        location=location,
        api_version=api_version,
        kind=kind,
        namespace=read_text(fields, "namespace", place),
        name=read_text(fields, "name", place),
        labels=None if fields.get("name") else labels,
        path=path,
    )
    _check_name(found.name, f"{place}.name")
    _check_name(found.namespace, f"{place}.namespace")
    if not found.name:
        _check_labels(labels, place)
    _check_home(found, place)
    return found


def _check_name(text: str, location: str) -> None:
    """Refuse a name that no object can have; the value of a placeholder is checked later."""
    reason = why_no_name(text) if text and not has_placeholder(text) else ""
    if reason:
        raise InvalidPolicy(location, reason)


def _check_labels(raw: Any, place: str) -> None:
    if not raw:
        raise InvalidPolicy(place, "expected a name or a labelSelector")
    location = f"{place}.labelSelector"
    sample = _sampled(raw)
    compile_selector(sample, location=location)


def _sampled(raw: Any) -> Any:
    """Return a selector with a valid label in place of each text with a placeholder."""
    if isinstance(raw, str):
        return "x" if has_placeholder(raw) else raw
    if isinstance(raw, Mapping):
        return {name: _sampled(value) for name, value in raw.items()}
    return [_sampled(value) for value in raw] if isinstance(raw, list) else raw


def _check_home(found: ObjectReference, place: str) -> None:
    if not found.home:
        return
    if found.namespace not in ("", found.home) and not has_placeholder(found.namespace):
        reason = f"a policy in namespace {found.home} can read only that namespace"
        raise InvalidPolicy(f"{place}.namespace", reason)
    if is_secret(split_api_version(found.api_version)[0], found.kind):
        # The author of the policy may not be allowed to read what the controller may.
        reason = "a namespaced policy must not read Secrets; use a ClusterOverridePolicy"
        raise InvalidPolicy(f"{place}.kind", reason)
