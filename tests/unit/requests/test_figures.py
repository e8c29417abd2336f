"""What a request contributes to the figures of its policy."""

from dataclasses import replace

import pytest

from reconciler.api.meta import ObjectRef, PolicyRef
from reconciler.api.policystatus import Figures
from reconciler.api.updaterequest import (
    Counts,
    Reason,
    RequestSpec,
    RequestStatus,
    State,
    SweepProgress,
)
from reconciler.requests.figures import share

COUNTS = Counts(patched=3, unchanged=2, skipped=1)
DONE = Figures(patched=3, unchanged=2, skipped=1)


def shared(status, *, sweep=False):
    policy = PolicyRef(api_version="kyverno.io/v1", kind="ClusterPolicy", name="p")
    trigger = ObjectRef(api_version="v1", kind="ConfigMap", namespace="a", name="t")
    spec = RequestSpec(policy=policy, rule="r", resource=trigger, sweep=sweep)
    return share(spec, status)


@pytest.mark.parametrize(
    ("state", "reason", "failed", "part"),
    [
        (State.PENDING, "", 2, {}),
        (State.COMPLETED, Reason.APPLIED, 0, {"triggers": 1}),
        # A trigger that failed before any target counts as one failure.
        (State.FAILED, Reason.TARGET_FAILED, 0, {"triggers": 1, "failed": 1}),
        (State.FAILED, Reason.TARGET_FAILED, 4, {"triggers": 1, "failed": 4}),
        (State.SKIP, Reason.NO_MATCH, 0, {"skipped_triggers": 1}),
        (State.SKIP, Reason.RULE_GONE, 0, {}),
    ],
)
def test_a_request_counts_its_trigger_when_it_ends(state, reason, failed, part):
    status = RequestStatus(state=state, reason=reason, counts=replace(COUNTS, failed=failed))
    assert shared(status) == replace(DONE, **part)


def test_a_sweep_counts_the_triggers_that_no_request_of_their_own_counts():
    progress = SweepProgress(done=9, matched=6, failed=2)
    status = RequestStatus(sweep=progress, counts=COUNTS)
    assert shared(status, sweep=True) == replace(DONE, triggers=4, existing=9)
    assert shared(RequestStatus(), sweep=True) == Figures()
