"""Findings on when a rule fires, and on data that is missing then: match and context."""

from collections.abc import Iterator

from reconciler.api.meta import ANNOTATION_EXISTING
from reconciler.dialects.finding import Finding, note, refusal, warning
from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.kyverno.readers import expressions_of
from reconciler.engine.context import EVERYTHING, reads_user
from reconciler.engine.program import Phase, Program

_REQUEST_ONLY = (("request", "operation"), ("request", "oldObject"))


def firing_findings(program: Program, *, background: bool) -> Iterator[Finding]:
    """Yield findings about when a rule fires.

    Args:
        background: Whether the policy also runs without a request, by ``spec.background``.
    """
    place = program.origin.location
    if program.on_policy_change:
        if background:
            yield from _user_refused(program)
        yield from _on_policy_update(program, f"{place}.match", background=background)


def unused_entries(program: Program) -> Iterator[Finding]:
    """Yield the context entries that nothing reads."""
    readers = list(parts_of(program).readers())
    used = frozenset[str]().union(*(reader.roots for reader in readers))
    if EVERYTHING in used or any(reader.dynamic for reader in readers):
        return
    for place, entries in parts_of(program).entry_lists():
        for index, entry in enumerate(entries):
            if entry.name not in used:
                yield note(
                    "unused-entry",
                    f"{place}[{index}]",
                    f"nothing reads the context entry {entry.name}, so it is never loaded",
                    "remove it, or correct the name where it was meant to be used",
                )


def _user_refused(program: Program) -> Iterator[Finding]:
    expressions = expressions_of(parts_of(program).readers())
    sources = [item.source for item in expressions if any(map(reads_user, item.reads))]
    for source in dict.fromkeys(sources):
        yield refusal(
            "no-user-on-policy-update",
            program.origin.location,
            "only select variables are allowed in on policy update. Set"
            " spec.mutateExistingOnPolicyUpdate=false to disable update policy mode for this"
            f" policy rule: variable {{{{{source}}}}} is not allowed",
            "no request is sent when a policy changes; with spec.background=false this is"
            " a warning",
        )


def _on_policy_update(program: Program, place: str, *, background: bool) -> Iterator[Finding]:
    matcher = parts_of(program).matcher
    if not matcher.listings():
        of_annotation = Phase.EXISTING in program.phases
        field = ANNOTATION_EXISTING if of_annotation else "mutateExistingOnPolicyUpdate"
        yield warning(
            "never-on-policy-update",
            place,
            f"{field} has no effect: filters that list operations apply to requests only,"
            " and a policy update is not a request",
            f"add a filter without operations under match.any, or remove {field}",
        )
        return
    if matcher.operations_listed:
        yield note(
            "partly-on-policy-update",
            place,
            "when the policy changes, filters that list operations are ignored",
        )
    paths = {path for reader in parts_of(program).readers() for path in reader.reads}
    if not background and any(map(reads_user, paths)):
        yield warning(
            "no-user-on-policy-update",
            program.origin.location,
            "the rule reads who sent the request, but also runs when the policy changes:"
            " there is no request then, so the variables of the user fail or are empty",
            "set mutateExistingOnPolicyUpdate: false, or give the variables a default",
        )
    for wanted in _REQUEST_ONLY:
        if any(path[:2] == wanted for path in paths):
            yield note(
                "no-request-on-policy-update",
                program.origin.location,
                f"{'.'.join(wanted)} is empty when the rule runs because the policy changed",
                "give a default, such as {{ " + ".".join(wanted) + " || '' }}",
            )
