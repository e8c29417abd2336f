"""Reads the trigger of a request, confirms it, and puts it into a context."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import LABEL_RECORDED, NAMESPACES, Object, ObjectRef, split_api_version
from reconciler.api.shape import object_fault, texts_fault, type_fault
from reconciler.api.updaterequest import Reason, RequestSpec, UpdateRequest
from reconciler.clock import Clock
from reconciler.engine.confidential import is_secret
from reconciler.engine.context import Context, request_context
from reconciler.engine.environment import environment_entry
from reconciler.engine.match import Subject, UserInfo
from reconciler.engine.program import Program
from reconciler.errors import NoKindMatch, NotFound, RetrofitError
from reconciler.requests.confirmation import Presence, confirm, needs_read
from reconciler.requests.lifecycle import Skip
from reconciler.services.ports.objects import Kinds, Reader
from reconciler.services.ports.requests import Requests
from reconciler.values import value_class

NotStored: TypeAlias = Literal[Presence.WAITING, Presence.GONE]
LabelsOf: TypeAlias = Mapping[str, Mapping[str, str]]
"""Labels of namespaces, by their names."""


@value_class(frozen=True, slots=True, kw_only=True)
class Trigger:
    """A stored trigger of a rule, as it is evaluated.

    Attributes:
        subject: The input of match and exclude.
        context: The input of expressions.
    """

    subject: Subject
    context: Context

    @property
    def confidential(self) -> bool:
        """Return whether it is a Secret, which no message may quote."""
        return is_secret(self.subject.group, self.subject.kind)


class Malformed(RetrofitError):
    """A request holds data of its trigger that admission never records; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerReader:
    """Reads the trigger that a request refers to.

    Attributes:
        randbelow: Returns a random integer from 0 up to its argument, exclusive, for expressions.
    """

    kinds: Kinds
    reader: Reader
    requests: Requests
    clock: Clock
    randbelow: Callable[[int], int]

    def acting_as(self, account: ServiceAccount | None) -> Self:
        """Return the reader that acts as an account, as `Reader.acting_as` does."""
        if account is None:
            return self
        return replace(self, reader=self.reader.acting_as(account))

    async def read(self, request: UpdateRequest, program: Program) -> Trigger | NotStored:
        """Return the trigger of a request if a live read shows that it is stored.

        Raises:
            NotFound: The Secret with the recorded fields does not exist.
            Malformed: The request holds data that admission never records.
            ClusterError: The read failed for another reason than absence.
        """
        spec = request.spec
        live = await self._live(spec) if needs_read(spec) else None
        if needs_read(spec) and (presence := confirm(spec, live)) is not Presence.STORED:
            return presence
        recorded = await self._recorded(request)
        if fault := _fault(spec, recorded):
            raise Malformed(fault)
        obj, old = _objects(spec, live, recorded)
        group, version, kind = await self._matched_kind(spec)
        subject = Subject(
            group=group,
            version=version,
            kind=kind,
            subresource=spec.trigger.subresource,
            name=spec.resource.name,
            namespace=spec.resource.namespace,
            obj=obj,
            operation=spec.operation,
            user=_user(spec.user),
            namespace_labels=await self._labels(program, spec.resource.namespace),
        )
        return self._trigger(subject, old, spec.user, spec.request)

    async def of_object(
        self,
        obj: Object,
        program: Program,
        *,
        operation: str = "",
        user: Mapping[str, Any] | None = None,
        labels: LabelsOf | None = None,
    ) -> Trigger:
        """Return an existing object as the trigger of a policy change, or of a request.

        Args:
            obj: The object as it is stored.
            operation: That of a request that changes nothing; empty if the policy changed.
            user: ``{userInfo, roles, clusterRoles}`` of the sender of the request, if any.
            labels: Labels of namespaces that were read just now; the others are read.
        """
        meta = obj.get("metadata") or {}
        group, version = split_api_version(obj.get("apiVersion", ""))
        namespace, user = meta.get("namespace", ""), user or {}
        known = (labels or {}).get(namespace)
        subject = Subject(
            group=group,
            version=version,
            kind=obj.get("kind", ""),
            name=meta.get("name", ""),
            namespace=namespace,
            obj=obj,
            operation=operation,
            user=_user(user),
            namespace_labels=await self._labels(program, namespace) if known is None else known,
        )
        old = obj if operation in ("UPDATE", "DELETE") else {}
        return self._trigger(subject, old, user, {})

    async def _live(self, spec: RequestSpec) -> Object | None:
        ref = spec.resource
        found = await self.kinds.find(ref.api_version, ref.kind)
        if not found:
            msg = f"the cluster does not serve {ref.api_version} {ref.kind}"
            raise NoKindMatch(msg, status=404)
        try:
            return await self.reader.get(found[0], ref.namespace, ref.name)
        except NotFound:
            return None

    async def _recorded(self, request: UpdateRequest) -> Mapping[str, Any]:
        if request.spec.recorded_secret:
            former = LABEL_RECORDED not in request.labels
            content = await self.requests.read_recorded(request.name, former=former)
            try:
                read: Mapping[str, Any] = json.loads(content)
            except ValueError:
                raise Malformed(
                    f"the Secret {request.spec.recorded_secret} does not contain valid JSON"
                ) from None
            return read
        return request.spec.recorded or {}

    async def _matched_kind(self, spec: RequestSpec) -> tuple[str, str, str]:
        # A subresource request is matched by the kind of its parent: Pod/binding, not Binding.
        resource = spec.request.get("resource") or {}
        if spec.trigger.subresource and resource:
            parent = await self.kinds.of_resource(
                resource.get("group", ""),
                resource.get("version", ""),
                resource.get("resource", ""),
            )
            if parent is not None:
                return parent.group, parent.version, parent.kind
        group, version = split_api_version(spec.resource.api_version)
        return group, version, spec.resource.kind

    def _trigger(
        self, subject: Subject, old: Object, user: Mapping[str, Any], extra: Mapping[str, Any]
    ) -> Trigger:
        context = request_context(
            operation=subject.operation,
            obj=subject.obj,
            old_object=old,
            name=subject.name,
            namespace=subject.namespace,
            kind=(subject.group, subject.version, subject.kind),
            user_info=user.get("userInfo") or None,
            roles=user.get("roles") or [],
            cluster_roles=user.get("clusterRoles") or [],
            extra=extra,
        )
        context = context.bind(**environment_entry(now=self.clock.now(), randbelow=self.randbelow))
        return Trigger(subject=subject, context=context)

    async def _labels(self, program: Program, namespace: str) -> Mapping[str, str]:
        needed = program.match.needs.namespace_labels
        return await self.namespace_labels(namespace) if needed else {}

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace, none where it does not exist or its name is empty."""
        if not namespace:
            return {}
        try:
            found = await self.reader.get(NAMESPACES, "", namespace)
        except NotFound:
            return {}
        labels: Mapping[str, str] = (found.get("metadata") or {}).get("labels") or {}
        return labels


def _fault(spec: RequestSpec, recorded: Mapping[str, Any]) -> str:
    """Return why admission cannot have written a request, empty where it can."""
    place = "spec.recorded"
    if fault := type_fault(recorded, Mapping, place):
        return fault
    for name in ("object", "oldObject"):
        if fault := object_fault(recorded.get(name) or {}, f"{place}.{name}"):
            return fault
    place = "spec.context.admissionRequestInfo.admissionRequest.resource"
    resource = spec.request.get("resource") or {}
    if fault := type_fault(resource, Mapping, place):
        return fault
    return texts_fault(resource, ("group", "version", "resource"), place)


def _user(user: Mapping[str, Any]) -> UserInfo | None:
    info = user.get("userInfo") or {}
    if not info:
        return None
    return UserInfo(
        username=info.get("username", ""),
        groups=tuple(info.get("groups") or ()),
        roles=tuple(user["roles"]) if "roles" in user else None,
        cluster_roles=tuple(user["clusterRoles"]) if "clusterRoles" in user else None,
    )


def _objects(
    spec: RequestSpec, live: Object | None, recorded: Mapping[str, Any]
) -> tuple[Object, Object]:
    old: Object = recorded.get("oldObject") or {}
    if spec.operation == "DELETE" or live is None:
        kept: Object = recorded.get("object") or old
        return kept, old or (kept if spec.operation == "DELETE" else {})
    if spec.operation == "UPDATE" and spec.trigger.resource_version:
        # Expressions read the resourceVersion that the admission request carried.
        meta = {**live["metadata"], "resourceVersion": spec.trigger.resource_version}
        return {**live, "metadata": meta}, old
    return live, old


def trigger_gone(ref: ObjectRef) -> Skip:
    """Return the disposition of a request whose trigger no longer exists."""
    which = f"{ref} with uid {ref.uid}" if ref.uid else str(ref)
    message = f"{which} is gone: it was deleted before this request was done"
    return Skip(reason=Reason.TRIGGER_GONE, message=message)
