"""A one-line summary of a policy's work, and of the reason if it did nothing."""

from collections.abc import Iterator

from reconciler.api.policystatus import PolicyProgress
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.services.catalog.caveats import is_silent, why_silent
from reconciler.services.catalog.settings import Filters


def summarise(progress: PolicyProgress, policy: CompiledPolicy, filters: Filters) -> str:
    """Return the summary line, which avoids repeating numbers that are shown beside it."""
    running = progress.running
    if running.permissions:
        return f"{_requests(running.pending)} for a right: {', '.join(running.permissions)}"
    if running.sweeping:
        return _sweeping(progress)
    if running.pending:
        why = f": {running.waits}" if running.waits else _because(progress.last_error)
        return f"{_requests(running.pending)}{why}"
    return _ended(progress, policy, filters)


def _ended(progress: PolicyProgress, policy: CompiledPolicy, filters: Filters) -> str:
    figures = progress.figures
    if not figures.triggers:
        if figures.skipped_triggers:
            count = _number(figures.skipped_triggers, "trigger")
            return f"{count} came and fired nothing, the last because {progress.last_skip}"
        return "; ".join(_causes(policy, figures.existing, filters))
    if figures.patched or figures.failed:
        parts = (
            (figures.patched, "patched"),
            (figures.unchanged, "unchanged"),
            (figures.skipped, "left out by preconditions or anchors"),
            (figures.failed, "failed"),
        )
        said = ", ".join(f"{count} {what}" for count, what in parts if count)
        triggers = _number(figures.triggers, "trigger")
        return f"{said} after {triggers}{_because(progress.last_error if figures.failed else '')}"
    if figures.unchanged:
        count = _number(figures.unchanged, "target")
        return f"{count} unchanged: as the rules require, or the API server kept no change"
    if figures.skipped:
        count = _number(figures.skipped, "target")
        return f"{count} found, all left out by preconditions or anchors"
    triggers = _number(figures.triggers, "trigger")
    return f"no target found for {triggers}: check namespace, name and selector of the targets"


def _causes(policy: CompiledPolicy, existing: int, filters: Filters) -> Iterator[str]:
    programs = policy.in_background
    causes = {program.rule: _cause(program, existing, filters) for program in programs}
    for cause in dict.fromkeys(causes.values()):
        rules = [rule for rule, text in causes.items() if text == cause]
        if len(rules) == len(programs):
            yield cause
        else:
            word = "rule" if len(rules) == 1 else "rules"
            yield f"{word} {', '.join(rules)}: {cause}"


def _cause(program: Program, existing: int, filters: Filters) -> str:
    if is_silent(program, filters):
        return "; ".join(why_silent(program, filters))
    if not program.on_policy_change:
        return (
            "no trigger yet: only new requests count; without mutateExistingOnPolicyUpdate,"
            " existing objects stay as they are"
        )
    if not program.match.listings():
        return (
            "no trigger yet: only new requests count; a filter that lists operations never fires"
            " on a policy update"
        )
    if not existing:
        return "no object matches: no objects of the matched kinds exist"
    count = _number(existing, "existing object")
    return (
        f"no object matches: {count} looked at, none fits match, exclude and preconditions, or"
        " resourceFilters leave it out"
    )


def _sweeping(progress: PolicyProgress) -> str:
    running = progress.running
    total = "?" if running.total < 0 else str(running.total)
    left = f", {running.eta} left" if running.eta else ""
    looked = f"{running.figures.existing} of {total} existing objects looked at"
    if running.diverted:
        return f"too many requests wait, so one stands for all triggers of a rule; {looked}{left}"
    waits = f"; it waits: {running.waits}" if running.waits else ""
    return f"{looked}{waits or left}"


def _requests(pending: int) -> str:
    return "1 request waits" if pending == 1 else f"{pending} requests wait"


def _because(error: str) -> str:
    return f"; last error: {error}" if error else ""


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
