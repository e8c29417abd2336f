"""Validation of an edit to a policy that has open aggregate requests.

An aggregate request stands for admitted triggers that are found by listing. An edit after which
the objects alone do not determine what the rule does would lose these triggers.
"""

import asyncio
from collections.abc import Iterator

from admission.checks import UNAVAILABLE, ValidationDeps, refuse
from admission.decide import AdmissionResponse
from reconciler.api.meta import Object
from reconciler.clock import Deadline
from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import CompiledPolicy, Phase
from reconciler.errors import ClusterError, InvalidPolicy
from reconciler.requests.rebuild import why_not_rebuildable
from reconciler.services.recording.diversion import open_aggregate

CONFLICT = 409


async def check_aggregates(
    policy: Object, old: Object, deps: ValidationDeps, deadline: Deadline
) -> AdmissionResponse | None:
    """Return the refusal of an edit that would lose triggers, or None if it is safe.

    Args:
        policy: New version; it compiles.
        old: Stored version.
    """
    lines: list[str] = []
    try:
        async with deps.turn(deadline):
            before, after = await asyncio.to_thread(
                lambda: (compile_policy(old), compile_policy(policy))
            )
        async with asyncio.timeout(deadline.left):
            for rule, reason in _no_longer_listed(before, after):
                if name := await open_aggregate(deps.requests, before.uid, rule):
                    lines.append(
                        f"rule {rule}: UpdateRequest {name} represents admitted triggers that"
                        " are found by listing the objects, which is no longer possible after"
                        f" this change ({reason}): wait until it is Completed, or delete it to"
                        " give up those triggers"
                    )
    except InvalidPolicy:
        # A policy that did not compile has no triggers.
        return None
    except (TimeoutError, ClusterError) as error:
        text = str(error) or f"no answer within {deadline.seconds:g} s"
        message = (
            f"whether triggers of its rules still wait cannot be checked now: {text}; try again"
        )
        return refuse(policy, [message], code=UNAVAILABLE)
    return refuse(policy, lines, code=CONFLICT) if lines else None


def _no_longer_listed(before: CompiledPolicy, after: CompiledPolicy) -> Iterator[tuple[str, str]]:
    """Yield the rules whose triggers an edit makes impossible to list, with the reason."""
    for program in before.in_phase(Phase.TRIGGERED):
        new = after.program(program.rule)
        if (
            new is not None
            and not why_not_rebuildable(program)
            and (reason := why_not_rebuildable(new))
        ):
            yield program.rule, reason
