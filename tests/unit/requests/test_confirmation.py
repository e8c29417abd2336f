import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import RequestSpec, TriggerRecord
from reconciler.requests.confirmation import Presence, confirm, needs_read

STORED, WAITING, GONE = Presence.STORED, Presence.WAITING, Presence.GONE
ABSENT = None
LIVE = {"metadata": {"uid": "u1", "resourceVersion": "8"}}
AS_CARRIED = {"metadata": {"uid": "u1", "resourceVersion": "7"}}
ANOTHER = {"metadata": {"uid": "u2", "resourceVersion": "9"}}
TERMINATING = {"metadata": {**LIVE["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def spec(operation, *, uid="u1", name="n", **record):
    ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace="a", name=name, uid=uid)
    trigger = TriggerRecord(**{"resource_version": "7", **record})
    return RequestSpec(
        policy=policy_named("p"), rule="r", resource=ref, operation=operation, trigger=trigger
    )


@pytest.mark.parametrize(
    ("operation", "record", "live", "presence"),
    [
        ("CREATE", {"resource_version": ""}, ABSENT, WAITING),
        ("CREATE", {"resource_version": ""}, ANOTHER, WAITING),
        ("CREATE", {"resource_version": ""}, LIVE, STORED),
        ("CREATE", {"resource_version": ""}, TERMINATING, STORED),
        ("UPDATE", {}, AS_CARRIED, WAITING),
        ("UPDATE", {}, LIVE, STORED),
        ("UPDATE", {"unchanged": True}, AS_CARRIED, STORED),
        ("UPDATE", {}, ABSENT, GONE),
        ("UPDATE", {}, ANOTHER, GONE),
        ("DELETE", {}, ABSENT, STORED),
        ("DELETE", {}, ANOTHER, STORED),
        ("DELETE", {}, LIVE, WAITING),
        ("DELETE", {}, TERMINATING, STORED),
        ("DELETE", {"terminating": True}, TERMINATING, WAITING),
        ("DELETE", {"terminating": True}, ABSENT, STORED),
        ("CONNECT", {}, LIVE, STORED),
        ("CONNECT", {}, ABSENT, GONE),
        ("", {}, LIVE, STORED),
        ("", {}, ANOTHER, GONE),
        ("", {}, ABSENT, GONE),
    ],
)
def test_a_live_read_determines_whether_the_trigger_was_stored(operation, record, live, presence):
    assert confirm(spec(operation, **record), live) is presence


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", ""])
def test_without_a_uid_any_object_with_the_name_counts(operation):
    assert confirm(spec(operation, uid=""), ANOTHER) is STORED


@pytest.mark.parametrize(
    ("subresource", "name", "read"),
    [
        ("", "n", True),
        ("status", "n", True),
        ("scale", "n", False),
        ("binding", "n", False),
        ("", "", False),
    ],
)
def test_triggers_without_a_readable_object_are_not_read(subresource, name, read):
    assert needs_read(spec("UPDATE", name=name, subresource=subresource)) is read
