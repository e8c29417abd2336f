"""When a rule fires, and what it then knows: findings about match and context."""

from collections.abc import Iterable, Iterator

from reconciler.engine.edits import Edit, ForeachEdit
from reconciler.engine.entries import Entry
from reconciler.engine.jmes.reads import EVERYTHING
from reconciler.engine.match import KindScope
from reconciler.engine.program import IGNORE, CompiledPolicy, Program
from reconciler.engine.readers import of_program, reads_user
from reconciler.engine.variables import Template
from reconciler.services.authoring.lint.finding import Finding, Level, Scope
from reconciler.services.catchup.rules import why_lost

_REQUEST_ONLY = (("request", "operation"), ("request", "oldObject"))


def firing_findings(program: Program, scope: Scope, *, background: bool) -> Iterator[Finding]:
    """Yield findings about when a rule fires.

    Args:
        program: The rule, compiled.
        scope: What is known about kinds.
        background: Whether the policy says that it also runs without a request.
    """
    place = program.origin.location
    if program.on_policy_change:
        if background:
            yield from _user_refused(program)
        yield from _on_policy_update(program, f"{place}.match", background=background)
    for kind in program.matcher.kinds():
        yield from _of_kind(program, kind, scope)


def lost_findings(policy: CompiledPolicy, program: Program) -> Iterator[Finding]:
    """Yield why what such a rule loses under Ignore is lost for good."""
    reason = why_lost(policy, program) if policy.failure_policy == IGNORE else ""
    if reason:
        yield Finding(
            level=Level.NOTE,
            code="no-catch-up",
            location=program.origin.location,
            text="with failurePolicy Ignore a trigger that could not be recorded is lost for this"
            f" rule, for nothing shows afterwards that it came: {reason}",
            cure="set failurePolicy: Fail where no trigger may be lost",
        )


def unused_entries(program: Program) -> Iterator[Finding]:
    """Yield the context entries that nothing reads."""
    readers = list(of_program(program))
    used = frozenset[str]().union(*(reader.roots for reader in readers))
    if EVERYTHING in used or any(reader.dynamic for reader in readers):
        return
    for place, entries in entry_lists(program):
        for index, entry in enumerate(entries):
            if entry.name not in used:
                yield Finding(
                    level=Level.NOTE,
                    code="unused-entry",
                    location=f"{place}[{index}]",
                    text=f"nothing reads the context entry {entry.name}, so it is never loaded",
                    cure="remove it, or correct the name where it was meant to be used",
                )


def _user_refused(program: Program) -> Iterator[Finding]:
    readers = of_program(program)
    expressions = (
        expression
        for reader in readers
        for expression in (reader.expressions if isinstance(reader, Template) else (reader,))
    )
    sources = [item.source for item in expressions if any(map(reads_user, item.reads))]
    for source in dict.fromkeys(sources):
        yield Finding(
            level=Level.ERROR,
            code="no-user-on-policy-update",
            location=program.origin.location,
            text="only select variables are allowed in on policy update. Set"
            " spec.mutateExistingOnPolicyUpdate=false to disable update policy mode for this"
            f" policy rule: variable {{{{{source}}}}} is not allowed",
            cure="nobody sends a request when a policy changes; with spec.background=false this is"
            " a warning",
        )


def _on_policy_update(program: Program, place: str, *, background: bool) -> Iterator[Finding]:
    matcher = program.matcher
    if not matcher.listings():
        yield Finding(
            level=Level.WARNING,
            code="never-on-policy-update",
            location=place,
            text="mutateExistingOnPolicyUpdate has no effect: a filter that lists operations"
            " concerns requests only, and a policy update is none",
            cure="add a filter without operations under match.any, or remove"
            " mutateExistingOnPolicyUpdate",
        )
        return
    if matcher.operations_listed:
        yield Finding(
            level=Level.NOTE,
            code="partly-on-policy-update",
            location=place,
            text="when the policy changes, the filters that list operations take no part",
        )
    paths = {path for reader in of_program(program) for path in reader.reads}
    if not background and any(map(reads_user, paths)):
        yield Finding(
            level=Level.WARNING,
            code="no-user-on-policy-update",
            location=program.origin.location,
            text="the rule reads who sent the request, but also runs when the policy changes:"
            " nobody sent anything then, so the variables of the user fail or are empty",
            cure="set mutateExistingOnPolicyUpdate: false, or give the variables a default",
        )
    for wanted in _REQUEST_ONLY:
        if any(path[:2] == wanted for path in paths):
            yield Finding(
                level=Level.NOTE,
                code="no-request-on-policy-update",
                location=program.origin.location,
                text=f"{'.'.join(wanted)} is empty when the rule runs because the policy changed",
                cure="give a default, as {{ " + ".".join(wanted) + " || '' }}",
            )


def _of_kind(program: Program, kind: KindScope, scope: Scope) -> Iterator[Finding]:
    place, selector = f"{program.origin.location}.match", kind.selector
    if selector.kind == "*" and not selector.subresource.strip("*"):
        yield Finding(
            level=Level.WARNING,
            code="every-kind",
            location=place,
            text="the rule matches every kind, so every write in the cluster waits for the"
            " webhook",
            cure="name the kinds that can trigger it",
        )
        return
    version = "*" if selector.group == "*" == selector.version else selector.version
    api_version = f"{selector.group}/{version}" if selector.group and version != "*" else version
    if program.origin.namespace and scope(api_version, selector.kind) is False:
        yield Finding(
            level=Level.ERROR,
            code="cluster-kind-in-policy",
            location=place,
            text=f"{selector.kind} is cluster-scoped; a Policy concerns only objects in its"
            f" namespace {program.origin.namespace}, so this kind never matches",
            cure="use a ClusterPolicy",
        )


def entry_lists(program: Program) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """Yield all context entries of a rule, each list with its place."""
    yield f"{program.origin.location}.context", program.entries
    for target in program.targets:
        yield f"{target.location}.context", target.entries
    yield from _foreach_lists(program.edits)


def _foreach_lists(edits: Iterable[Edit]) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    for edit in edits:
        if isinstance(edit, ForeachEdit):
            yield f"{edit.location}.context", edit.entries
            yield from _foreach_lists(edit.edits)
