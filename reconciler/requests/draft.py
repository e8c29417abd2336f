"""Builds the request that is stored for an admission request and a rule.

Intent is recorded, not payload: of the objects only what the rule reads and what cannot be read
later. That is the deleted object, the old object of an update, and the object of a subresource
(a Binding, a Scale). Everything else is read live when the request is processed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Any, Final

import orjson

from reconciler.api.depth import is_cut
from reconciler.api.meta import LABEL_RECORDED, Object, ObjectRef, resource_version
from reconciler.api.updaterequest import RequestSpec, Source, TriggerRecord, UpdateRequest
from reconciler.engine.program import Paths, Program, Projection, project
from reconciler.errors import RetrofitError
from reconciler.requests import naming
from reconciler.values import value_class

MOST_LEVELS: Final = 250
"""Nesting levels that an object may have, so that it can be stored inside a request."""

READ_LATER = frozenset({"", "status"})
"""Subresources that carry the whole object, so that a live read returns the trigger again."""

_IDENTITY = ("name", "generateName", "namespace", "uid", "labels")
_USER_FIELDS = frozenset({"userInfo", "roles", "clusterRoles"})
_OF_USER = _USER_FIELDS | {"serviceAccountName", "serviceAccountNamespace"}
_IDENTIFYING = (("apiVersion",), ("kind",), *(("metadata", name) for name in _IDENTITY))
# Fields that every request has, whatever its rule reads.
_ALWAYS = frozenset({"operation", "object", "oldObject", "name", "namespace", "kind"})
_OPEN_FIELDS = frozenset({"apiVersion", "kind", "metadata", "type", "immutable"})


class TooLarge(RetrofitError):
    """The fields that must be recorded of an object do not fit into a request."""


@value_class(frozen=True, slots=True, kw_only=True)
class TypeName:
    """A kind or a resource as an admission request names it."""

    group: str = ""
    version: str = ""
    name: str = ""

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


@value_class(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """An admission request of the API server.

    Attributes:
        kind: Kind of the object, in the version that the webhook is configured for.
        resource: The plural name; for a subresource, that of its parent.
        namespace: Empty for a cluster-scoped object, a Namespace included.
        user: ``{username, uid, groups, extra}``.
        roles: Roles of the user, as ``namespace:name``; None where they were not looked up.
        cluster_roles: ClusterRoles of the user; None where they were not looked up.
        object: None on DELETE and on some CONNECT requests.
        old_object: None except on UPDATE and DELETE.
        info: All other fields that expressions may read, as received.
        manager: The field manager of the writer.
        cut: Values that are nested more deeply than `MOST_LEVELS` were cut out.
    """

    uid: str
    operation: str
    kind: TypeName
    resource: TypeName
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    user: Mapping[str, Any] = field(default_factory=dict)
    roles: tuple[str, ...] | None = None
    cluster_roles: tuple[str, ...] | None = None
    object: Object | None = None
    old_object: Object | None = None
    dry_run: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    manager: str = ""
    cut: bool = False

    @property
    def subject(self) -> Object:
        """Return the object that rules match: on DELETE the old one."""
        return self.object or self.old_object or {}

    @property
    def ref(self) -> ObjectRef:
        """Return the trigger's reference."""
        return ObjectRef(
            api_version=self.kind.api_version,
            kind=self.kind.name,
            namespace=self.namespace,
            name=self.name,
            uid=str((self.subject.get("metadata") or {}).get("uid", "")),
        )


@value_class(frozen=True, slots=True, kw_only=True)
class Draft:
    """A request to store.

    Attributes:
        name: Where ``alone`` is set, a name that other attempts at the same write share.
        alone: Name of a request for this attempt only, for when the shared one cannot be used.
        secret: Content of the Secret ``spec.recorded_secret``, which is stored before the
            request; never to be logged.
    """

    name: str
    labels: Mapping[str, str]
    spec: RequestSpec
    alone: str = ""
    secret: bytes | None = field(default=None, repr=False)


def record_trigger(request: AdmissionRequest) -> TriggerRecord:
    """Return the data for the confirmation that the admission request was stored."""
    old, new = request.old_object, request.object
    before = (old or {}).get("metadata") or {}
    return TriggerRecord(
        resource_version=resource_version(old or {}),
        digest=naming.digest(request.subject),
        unchanged=_same(old, new),
        terminating=bool(before.get("deletionTimestamp")),
        subresource=request.subresource,
    )


def draft(
    request: AdmissionRequest,
    program: Program,
    trigger: TriggerRecord,
    *,
    max_recorded: int,
    unless: Sequence[Program] = (),
    sender: str = "",
) -> Draft:
    """Return the request that a rule needs for an admission request.

    Args:
        program: A rule that matched, or that processing has to decide on.
        trigger: Result of `record_trigger`, shared by all rules of one admission request.
        max_recorded: Bytes of JSON that may be recorded of the objects.
        unless: Rules that come first, on which processing has to decide as well.
        sender: The part of the sender's identity that the work depends on although the rule
            does not read it.

    Raises:
        TooLarge: More would have to be recorded, or a value that was cut.
    """
    origin = program.origin
    name = naming.request_name(request.uid, origin.uid, origin.rule)
    reads = _reads(program, *unless)
    recorded = _recorded(request, reads)
    if request.cut and is_cut(recorded):
        raise TooLarge(
            f"rule {origin.rule} of policy {origin.policy} reads parts of {request.ref} that are"
            f" not available later and are nested more deeply than {MOST_LEVELS} levels: read"
            " fewer fields in the rule, or exclude the object"
        )
    content = b"" if recorded is None else orjson.dumps(recorded, option=orjson.OPT_SORT_KEYS)
    if len(content) > max_recorded:
        raise TooLarge(
            f"rule {origin.rule} of policy {origin.policy} reads {len(content)} bytes of "
            f"{request.ref} that are not available later, more than the {max_recorded} that a "
            f"request may keep: read fewer fields in the rule, or raise --max-recorded"
        )
    hidden = recorded is not None and _is_confidential(request, recorded)
    spec = RequestSpec(
        policy=origin.policy,
        rule=origin.rule,
        resource=request.ref,
        source=Source.ADMISSION,
        operation=request.operation,
        user=_user(request, reads.request),
        request=_info(request, reads.request),
        trigger=trigger,
        policy_uid=origin.uid,
        policy_generation=origin.generation,
        recorded=None if hidden else recorded,
        recorded_secret=naming.recorded_name(name) if hidden else "",
        unless=tuple(item.rule for item in unless),
    )
    ref = spec.resource
    unnamed = f"{ref.api_version}/{ref.kind}/{ref.namespace}/{ref.name}"
    labels = naming.labels(origin.policy.key, ref.uid or unnamed, Source.ADMISSION)
    if hidden:
        labels[LABEL_RECORDED] = "true"
    if hidden or not replaces_one_version(spec):
        return Draft(name=name, labels=labels, spec=spec, secret=content if hidden else None)
    whose = spec.user if reads.request is None or reads.request & _OF_USER else sender
    shared = _shared_name(spec, content, whose)
    return Draft(name=shared, labels=labels, spec=spec, alone=name)


def replaces_one_version(spec: RequestSpec) -> bool:
    """Return whether at most one request with this one's trigger version can take effect.

    The API server stores an update only in place of the version that it carried, and runs
    admission again, with another uid, for an update that came too late. So at most one request
    per version is stored, and once the object has another version, none of the others will be;
    processing reads the object then. That does not help where nothing is read later, nor for an
    update that changes nothing: it replaces no version.
    """
    trigger = spec.trigger
    return (
        spec.operation == "UPDATE"
        and not trigger.unchanged
        and bool(trigger.resource_version and spec.resource.uid and spec.resource.name)
        and trigger.subresource in READ_LATER
    )


def _shared_name(spec: RequestSpec, recorded: bytes, whose: str | Mapping[str, Any]) -> str:
    ref = spec.resource
    reads = (
        (spec.policy_generation, spec.unless, spec.trigger.subresource, spec.request, whose),
        (ref.api_version, ref.kind, ref.namespace, ref.name),
        blake2b(recorded).hexdigest(),
    )
    return naming.write_name(
        spec.policy_uid,
        spec.rule,
        ref.uid,
        spec.trigger.resource_version,
        orjson.dumps(reads, option=orjson.OPT_SORT_KEYS),
    )


def keeps(spec: RequestSpec, program: Program, reads: Projection) -> bool:
    """Return whether a rule's request still holds all fields that another reader needs."""
    if not spec.operation:
        return True  # Without an admission request, no field was left out.
    own = _reads(program)
    fields = (reads.request or frozenset()) - _ALWAYS
    if own.request is not None and (reads.request is None or not fields <= own.request):
        return False
    if spec.operation == "DELETE":
        return _within(reads.object | reads.old_object, own.object | own.old_object, _IDENTIFYING)
    object_there = spec.trigger.subresource in READ_LATER or _within(
        reads.object, own.object, _IDENTIFYING
    )
    return object_there and _within(reads.old_object, own.old_object, ())


def _within(paths: Paths, kept: Paths, always: Iterable[tuple[str, ...]]) -> bool:
    known = (*kept, *always)
    return all(any(path[: len(item)] == item for item in known) for path in paths)


def _reads(*programs: Program) -> Projection:
    """Return the fields that rules read, also for their match."""
    reads = Projection()
    for program in programs:
        reads = reads.joined(program.projection)
        # Only these annotations: kubectl keeps a second copy of the whole object in another one.
        reads = reads.joined(Projection(object=program.match.needs.annotations))
        if program.match.needs.user:
            reads = reads.joined(Projection(request=_USER_FIELDS))
    return reads


def _user(request: AdmissionRequest, fields: frozenset[str] | None) -> Object:
    """Return the requesting user: always the name, for people, the rest if the rule needs it."""
    if not request.user:
        return {}
    if fields is None or not fields.isdisjoint(_USER_FIELDS):
        looked_up = {"roles": request.roles, "clusterRoles": request.cluster_roles}
        found = {key: list(names) for key, names in looked_up.items() if names is not None}
        return {"userInfo": request.user, **found}
    return {"userInfo": {"username": request.user.get("username", "")}}


def _info(request: AdmissionRequest, fields: frozenset[str] | None) -> Object:
    """Return the fields that the rule reads, and the one that names a subresource's parent."""
    return {
        key: value
        for key, value in request.info.items()
        if fields is None or key in fields or (key == "resource" and request.subresource)
    }


def _same(old: Object | None, new: Object | None) -> bool:
    # Python treats 1, 1.0 and True as equal; the API server does not.
    if old != new:
        return False
    sort = orjson.OPT_SORT_KEYS
    return orjson.dumps(old, option=sort) == orjson.dumps(new, option=sort)


def _recorded(request: AdmissionRequest, reads: Projection) -> Object | None:
    old = request.old_object or {}
    if request.operation == "DELETE":
        # One tree for both: in a rule on DELETE request.object means the old object.
        return {"object": _identified(old, reads.object | reads.old_object)}
    kept: Object = {}
    if request.subresource not in READ_LATER and request.object:
        kept["object"] = _identified(request.object, reads.object)
    if request.operation == "UPDATE" and reads.old_object:
        kept["oldObject"] = project(old, reads.old_object)
    return kept or None


def _identified(tree: Object, paths: Paths) -> Object:
    """Return the given parts, and those that every match needs: kind, name, labels."""
    kept: Object = project(tree, paths)
    if () in paths:
        return kept
    meta = tree.get("metadata") or {}
    own = kept.get("metadata") or {}
    identity = {key: meta[key] for key in _IDENTITY if key in meta}
    types: Object = {key: tree[key] for key in ("apiVersion", "kind") if key in tree}
    return {**types, **kept, "metadata": {**own, **identity}}


def _is_confidential(request: AdmissionRequest, recorded: Mapping[str, Object]) -> bool:
    if request.kind.group or request.kind.name != "Secret":
        return False
    return any(
        not _OPEN_FIELDS.issuperset(part) or (part.get("metadata") or {}).get("annotations")
        for part in recorded.values()
    )


def same_work(request: UpdateRequest) -> tuple[str, ...] | None:
    """Return the key of an UPDATE request's work, equal for requests with the same work.

    Admission gives most such requests one name. The exception is a write that came when the
    request of that name had ended, or had waited so long that it may have. The key includes all
    that the work depends on, so a request with other input never takes another one's place.
    """
    spec = request.spec
    if spec.source is Source.MANUAL:
        # A manual request repeats the work of a failed one and is compared with no other.
        return None
    if not replaces_one_version(spec) or spec.recorded_secret:
        # A Secret's content is not read for a comparison, and no digest of it is kept.
        return None
    reads = {
        "recorded": spec.recorded,
        "user": spec.user,
        "request": spec.request,
        "unless": spec.unless,
    }
    return (
        spec.policy_uid,
        spec.rule,
        str(spec.resource),
        spec.resource.uid,
        spec.trigger.resource_version,
        spec.trigger.subresource,
        naming.digest(reads),
    )
