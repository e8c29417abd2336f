"""The subject and the context that rules get from an admission request."""

from collections.abc import Collection, Mapping
from typing import Any

from reconciler.api.meta import FIELD_MANAGER
from reconciler.engine.context import Context, request_context
from reconciler.engine.match import Subject, UserInfo
from reconciler.engine.program import Program
from reconciler.requests.draft import AdmissionRequest, TypeName


def subject_of(
    request: AdmissionRequest, kind: TypeName, namespace_labels: Mapping[str, str] | None
) -> Subject:
    """Return the subject that rules are matched against.

    Args:
        request: As received.
        kind: The kind by which rules name the object; for a subresource, that of its parent.
        namespace_labels: Labels of the object's namespace; None while they are not known.
    """
    user = request.user
    return Subject(
        obj=request.subject,
        group=kind.group,
        version=kind.version,
        kind=kind.name,
        subresource=request.subresource,
        name=request.name,
        namespace=request.namespace,
        operation=request.operation,
        user=UserInfo(
            username=user.get("username", ""),
            groups=tuple(user.get("groups") or ()),
            roles=request.roles,
            cluster_roles=request.cluster_roles,
        ),
        namespace_labels=namespace_labels if request.namespace else {},
    )


def context_of(request: AdmissionRequest, subject: Subject) -> Context:
    """Return the context of expressions, with the subject's object as that of the request."""
    return request_context(
        operation=request.operation,
        obj=subject.obj,
        old_object=request.old_object or {},
        name=request.name,
        namespace=request.namespace,
        kind=(subject.group, subject.version, subject.kind),
        user_info=request.user or None,
        roles=request.roles or (),
        cluster_roles=request.cluster_roles or (),
        extra=request.info,
    )


def is_from_controller(
    request: AdmissionRequest, program: Program, controller_users: Collection[Any]
) -> bool:
    """Return whether the controller sent a request, as the shared or as the rule's account.

    Other programs may use the rule's account too, with the field manager of the controller. So
    that account only counts for the policies whose authors chose it.
    """
    username = request.user.get("username")
    if username in controller_users:
        return True
    account = program.origin.account
    return account is not None and request.manager == FIELD_MANAGER and username == account.user
