"""Drafts that no admission request caused: sweeps, catch-up, and retries of failed requests."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.api.meta import LABEL_RECORDED, ObjectRef
from reconciler.api.updaterequest import RequestSpec, Source, UpdateRequest
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.requests.naming import labels, recorded_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDraft:
    """A request to store, without its name."""

    labels: Mapping[str, str]
    spec: RequestSpec


def sweep_draft(policy: CompiledPolicy, program: Program, source: Source) -> RequestDraft:
    """Return the request to run a rule on all existing triggers."""
    draft = _draft(policy, program, policy.ref.as_object(policy.uid), source)
    return replace(draft, spec=replace(draft.spec, sweep=True))


def aggregate_draft(policy: CompiledPolicy, program: Program) -> RequestDraft:
    """Return the aggregate request for the first trigger that is not recorded itself."""
    draft = sweep_draft(policy, program, Source.CATCH_UP)
    return replace(draft, spec=replace(draft.spec, sequence=1))


def catch_up_draft(policy: CompiledPolicy, program: Program, trigger: ObjectRef) -> RequestDraft:
    """Return the request to run a rule on an object as it is now."""
    return _draft(policy, program, trigger, Source.CATCH_UP)


def _draft(
    policy: CompiledPolicy, program: Program, trigger: ObjectRef, source: Source
) -> RequestDraft:
    spec = RequestSpec(
        policy=policy.ref,
        rule=program.rule,
        resource=trigger,
        source=source,
        policy_uid=policy.uid,
        policy_generation=policy.generation,
    )
    marks = labels(policy=policy.key, source=source, trigger_uid=trigger.uid)
    return RequestDraft(labels=marks, spec=spec)


def retry_draft(failed: UpdateRequest, name: str) -> RequestDraft:
    """Return the request that redoes the work of a failed one, which stays unchanged.

    Args:
        name: Name of the request that the draft is for.
    """
    secret = recorded_name(name) if failed.spec.recorded_secret else ""
    spec = replace(failed.spec, source=Source.MANUAL, sequence=0, recorded_secret=secret)
    marks = labels(policy=spec.policy.key, source=spec.source, trigger_uid=spec.resource.uid)
    return RequestDraft(labels=marks | ({LABEL_RECORDED: "true"} if secret else {}), spec=spec)
