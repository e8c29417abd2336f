"""Findings on the targets of a rule."""

from collections.abc import Iterator

from reconciler.api.meta import split_api_version
from reconciler.dialects.finding import Finding, Level, Scope, note, refusal, warning
from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.kyverno.rights import OWN_NAME, constant, is_field
from reconciler.dialects.kyverno.targets import Target
from reconciler.engine.match import KindScope, Subject
from reconciler.engine.match.kinds import KindTable
from reconciler.engine.program import Program
from reconciler.engine.values.wildcard import has_wildcard

_OWN_UID = ("request.object.metadata.uid", "request.oldObject.metadata.uid")


def target_findings(program: Program, scope: Scope) -> Iterator[Finding]:
    """Yield findings about the targets of a rule."""
    for target in parts_of(program).targets:
        api_version, kind = constant(target.api_version), constant(target.kind)
        known = None
        if api_version and kind:
            known = scope(api_version, kind.partition("/")[0])
        yield from _reach(program, target, kind, namespaced=known)
        if api_version and kind and not has_wildcard(kind + api_version):
            yield from _own_kind(program, target, api_version, kind)


def _reach(
    program: Program, target: Target, kind: str, *, namespaced: bool | None
) -> Iterator[Finding]:
    home, shown = program.origin.namespace, kind or "object of the kind"
    if namespaced is False:
        if home or target.namespace is not None:
            yield refusal(
                "cluster-scoped-target",
                target.location,
                f"{shown} is cluster-scoped, so no namespace contains such an object",
                "use a ClusterPolicy" if home else "remove the namespace of the target",
            )
        elif target.name is None and target.selector is None and target.uid is None:
            yield note(
                "every-object",
                target.location,
                f"the target is every {shown} of the cluster",
                "give a name or a selector, unless all of them are meant",
            )
        return
    if home or target.namespace is not None or target.uid is not None:
        return
    if target.selector is not None and target.name is None:
        level, which = Level.NOTE, f"every {shown} that the selector selects"
    else:
        level, which = Level.WARNING, f"every {shown}{' of that name' if target.name else ''}"
    doubt = "" if namespaced else "if the kind is namespaced, "
    yield Finding(
        level=level,
        code="whole-cluster",
        location=target.location,
        text=f"{doubt}the target is {which} in all namespaces: no namespace is given",
        cure='give one, such as "{{ request.namespace }}", or "*" for all namespaces',
    )


def _own_kind(program: Program, target: Target, api_version: str, kind: str) -> Iterator[Finding]:
    scopes = [item for item in program.match.kinds() if _selects(item, api_version, kind)]
    if not scopes:
        return
    itself = is_field(target.name, OWN_NAME) or is_field(target.uid, _OWN_UID)
    if itself and any("DELETE" in item.operations for item in scopes):
        yield warning(
            "deleted-target",
            target.location,
            "the target is the trigger itself, which no longer exists after a DELETE",
            "do not list DELETE in the operations of match, or name another target",
        )
    elif program.skip_background and any("*" not in item.selector.kind for item in scopes):
        yield note(
            "trigger-is-target",
            target.location,
            f"{kind} is trigger and target of the rule; what the rule writes does not fire it"
            " again",
        )
    elif not program.skip_background:
        yield Finding(
            level=Level.NOTE if program.converges else Level.WARNING,
            code="may-loop",
            location=target.location,
            text=f"{kind} is trigger and target of the rule, and skipBackgroundRequests is false:"
            " what the rule writes fires it again, until there is nothing to change",
            cure="remove skipBackgroundRequests: false, or add a precondition that ends the loop",
        )


def _selects(scope: KindScope, api_version: str, kind: str) -> bool:
    group, version = split_api_version(api_version)
    name, _, subresource = kind.partition("/")
    subject = Subject(obj={}, group=group, version=version, kind=name, subresource=subresource)
    return KindTable((scope.selector,)).accepts(subject)
