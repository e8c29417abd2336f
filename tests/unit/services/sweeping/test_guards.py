"""What ends or stops a sweep, decided from the results for a chunk of triggers."""

import pytest

from reconciler.api.updaterequest import Reason
from reconciler.requests.lifecycle import Done, Fail, Retry, Skip
from reconciler.services.processing.attempt import Attempt
from reconciler.services.sweeping.guards import before_passing, common_wait


def attempt(disposition):
    return Attempt(disposition=disposition)


def waits(reason, message=""):
    return attempt(Retry(reason=reason, message=message, retry_after=1.0))


ENTRY = waits(Reason.ENTRY_NOT_READY, "first")
DONE, EXCLUDED = attempt(Done()), None
SKIPPED = attempt(Skip(reason=Reason.NO_MATCH, message=""))
FAILED = attempt(Fail(reason=Reason.TARGET_INVALID, message=""))


@pytest.mark.parametrize(
    ("attempts", "found"),
    [
        ([], None),
        ([EXCLUDED], None),
        ([DONE], None),
        ([EXCLUDED, ENTRY, waits(Reason.ENTRY_NOT_READY, "second")], ENTRY),
        ([ENTRY, DONE], None),
        ([ENTRY, SKIPPED], None),
        ([ENTRY, waits(Reason.PATCH_WAR)], None),
    ],
)
def test_a_sweep_waits_only_if_all_its_triggers_wait_for_the_same(attempts, found):
    wanted = None if found is None else found.disposition
    assert common_wait(attempts, Reason.ENTRY_NOT_READY) is wanted


@pytest.mark.parametrize("reason", [Reason.FORBIDDEN, Reason.FAILED])
def test_what_passes_by_itself_is_tried_again_with_all_that_comes_after(reason):
    passing = waits(reason)
    attempts = [DONE, EXCLUDED, FAILED, waits(Reason.CONFLICT), passing, DONE]
    assert before_passing(attempts) == (attempts[:4], passing.disposition)
    assert before_passing(attempts[:4]) == (attempts[:4], None)
