"""Whether a rule needs only the live object, so that its work can be found and done later."""

from collections.abc import Iterator

from reconciler.engine.program import Program
from reconciler.requests.draft import READ_LATER

# Fields that a live object provides as the admission request did, of both objects only the new.
_LIVE = frozenset({"object", "name", "namespace", "kind"})


def why_not_rebuildable(program: Program) -> str:
    """Return why the work of a rule cannot be rebuilt from the existing objects, else empty.

    Where it can, one request may stand for many triggers, and a trigger that was not recorded is
    found by listing the objects. A deletion is never found that way. A rule that acts on one has
    to match the operation, and no such rule can be rebuilt. Nor can one whose kinds cannot be
    listed, whatever it reads.
    """
    if program.changes_trigger:
        return "it acts before its object is stored"
    for item in (*program.before, program):
        for text in _obstacles(item):
            return text
    listings = program.match.listings()
    if not listings or not all(kind.is_listable for item in listings for kind in item.kinds):
        return "the kinds of its match cannot be listed"
    return ""


def _obstacles(program: Program) -> Iterator[str]:
    matcher, reads = program.match, program.projection
    if not program.converges:
        yield "its result depends on how often it runs"
    if matcher.needs.operations:
        yield "its match depends on the operation"
    if matcher.needs.user:
        yield "its match depends on who sent the request"
    payloads = {item.selector.subresource for item in matcher.kinds()} - READ_LATER
    if payloads:
        yield f"it matches the subresource {min(payloads)}"
    if reads.request is None:
        yield "it may read anything of the request"
    elif fields := sorted(reads.request - _LIVE):
        yield f"it reads {fields[0]} of the request"
