from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef, PolicyRef
from reconciler.api.requestwire import (
    parse_request,
    parse_spec,
    parse_status,
    progress,
    render_spec,
    render_status,
    summary,
)
from reconciler.api.updaterequest import (
    Counts,
    Outcome,
    RequestSpec,
    RequestStatus,
    Source,
    State,
    SweepProgress,
    TargetStatus,
    TriggerRecord,
    parse_time,
    render_time,
)

TEXT = st.text(max_size=8)
REFS = st.builds(ObjectRef, api_version=TEXT, kind=TEXT, namespace=TEXT, name=TEXT, uid=TEXT)
WORD = st.text(min_size=1, max_size=8)
POLICIES = st.builds(PolicyRef, api_version=WORD, kind=WORD, namespace=TEXT, name=WORD)
TREES = st.dictionaries(TEXT, st.integers() | TEXT | st.lists(TEXT), min_size=1, max_size=3)
SPECS = st.builds(
    RequestSpec,
    policy=TEXT.map(policy_named) | POLICIES,
    rule=TEXT,
    resource=REFS,
    source=st.sampled_from(Source),
    operation=TEXT,
    user=st.just({}) | TREES,
    request=st.just({}) | TREES,
    trigger=st.builds(
        TriggerRecord,
        resource_version=TEXT,
        digest=TEXT,
        unchanged=st.booleans(),
        terminating=st.booleans(),
        subresource=TEXT,
    ),
    policy_uid=TEXT,
    policy_generation=st.integers(0, 99),
    recorded=st.none() | st.just({}) | TREES,
    recorded_secret=TEXT,
    sweep=st.booleans(),
)
TIMES = st.none() | st.datetimes(
    datetime(1990, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=-30))]),
)
COUNTS = st.builds(
    Counts,
    patched=st.integers(0, 9),
    unchanged=st.integers(0, 9),
    skipped=st.integers(0, 9),
    failed=st.integers(0, 9),
)
STATUSES = st.builds(
    RequestStatus,
    state=st.sampled_from(State),
    reason=TEXT,
    message=TEXT,
    attempts=st.integers(0, 99),
    next_attempt=TIMES,
    finished=TIMES,
    targets=st.lists(
        st.builds(
            TargetStatus,
            ref=REFS,
            subresource=TEXT,
            outcome=st.sampled_from(Outcome),
            attempts=st.integers(1, 9),
            message=TEXT,
            version_before=TEXT,
            version_after=TEXT,
        ),
        max_size=3,
    ).map(tuple),
    counts=COUNTS,
    missing_permission=TEXT,
    sweep=st.none()
    | st.builds(
        SweepProgress,
        cursor=TEXT,
        done=st.integers(0, 9),
        total=st.integers(-1, 9),
        failed=st.integers(0, 9),
        eta=TEXT,
    ),
    remove_after=TEXT,
)


@given(SPECS)
def test_a_rendered_spec_is_parsed_unchanged(spec):
    assert parse_spec(render_spec(spec)) == spec


@given(STATUSES)
def test_a_rendered_status_is_parsed_unchanged(status):
    stored = {key: value for key, value in render_status(status).items() if value is not None}
    assert parse_status(stored) == status


@given(STATUSES)
def test_a_rendered_status_clears_all_fields_of_an_older_one(status):
    """A merge patch only removes a field if its value is null."""
    assert set(render_status(status)) == set(render_status(RequestStatus()))


@given(TIMES.filter(bool))
def test_a_rendered_time_is_parsed_unchanged(moment):
    assert parse_time(render_time(moment)) == moment
    assert render_time(moment).endswith("Z")


@pytest.mark.parametrize(
    "text", [None, "", 5, "yesterday", "2026-01-01", "2026-01-01T00:00:00", {}]
)
def test_a_text_that_is_not_a_time_is_parsed_as_none(text):
    assert parse_time(text) is None


def test_an_empty_request_is_pending():
    request = parse_request({})
    assert request.status == RequestStatus()
    assert request.status.state is State.PENDING
    assert request.created == datetime.fromtimestamp(0, UTC)


def test_a_request_stored_by_kyverno_is_parsed():
    obj = {
        "metadata": {"name": "ur-abc", "namespace": "kyverno", "labels": None},
        "spec": {
            "requestType": "mutate",
            "policy": "p",
            "rule": "r",
            "resource": {"kind": "ConfigMap", "apiVersion": "v1", "name": "c"},
            "deleteDownstream": False,
            "context": {
                "userInfo": {"userInfo": {"username": "jane"}, "synchronize": False},
                "admissionRequestInfo": {
                    "operation": "UPDATE",
                    "admissionRequest": {"uid": "u", "object": {"kind": "ConfigMap"}},
                },
            },
        },
        "status": {"state": "Failed", "retryCount": 3, "message": "no"},
    }
    request = parse_request(obj)
    assert (request.spec.operation, request.spec.source) == ("UPDATE", Source.ADMISSION)
    assert request.spec.user["userInfo"] == {"username": "jane"}
    assert (request.status.state, request.status.message) == (State.FAILED, "no")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        ({"state": ""}, State.PENDING),
        ({"state": "Unheard"}, State.PENDING),
        ({"state": "Skip", "counts": None, "targets": None, "sweep": None}, State.SKIP),
    ],
)
def test_an_unknown_state_is_read_as_pending(raw, status):
    assert parse_status(raw).state is status


def test_an_unknown_outcome_is_read_as_failed():
    status = parse_status({"targets": [{"kind": "Secret", "name": "s", "outcome": "Odd"}]})
    assert status.targets[0].outcome is Outcome.FAILED


def test_a_rendered_spec_has_no_empty_fields():
    ref = ObjectRef(api_version="v1", kind="ConfigMap", name="c")
    assert render_spec(RequestSpec(policy=policy_named("p"), rule="r", resource=ref)) == {
        "requestType": "mutate",
        "policy": "p",
        "policyRef": {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "p"},
        "rule": "r",
        "resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"},
        "source": "admission",
    }


@pytest.mark.parametrize(
    ("written", "kind", "namespace", "name"),
    [
        ({"policy": "p"}, "ClusterPolicy", "", "p"),
        ({"policy": "shop/p"}, "Policy", "shop", "p"),
        (
            {
                "policy": "shop/p",
                "policyRef": {"apiVersion": "g/v1", "kind": "K", "namespace": "shop", "name": "p"},
            },
            "K",
            "shop",
            "p",
        ),
    ],
)
def test_the_kind_of_a_policy_is_read_from_its_reference_or_its_key(
    written, kind, namespace, name
):
    policy = parse_spec(written).policy
    assert (policy.kind, policy.namespace, policy.name) == (kind, namespace, name)
    assert policy.key == written["policy"]


@pytest.mark.parametrize(
    ("status", "patched", "looked_at"),
    [
        (RequestStatus(), "", ""),
        (RequestStatus(counts=Counts(patched=3, failed=1)), "3/4", ""),
        (RequestStatus(counts=Counts(unchanged=2)), "0/2", ""),
        (RequestStatus(sweep=SweepProgress()), "", "0/?"),
        (RequestStatus(sweep=SweepProgress(done=12, total=50, eta="8s")), "", "12/50 (8s)"),
        (
            RequestStatus(
                sweep=SweepProgress(done=10, total=10), counts=Counts(patched=2, unchanged=7)
            ),
            "2/9",
            "10/10",
        ),
    ],
)
def test_the_summary_and_progress_columns_are_computed_from_the_status(status, patched, looked_at):
    assert (summary(status), progress(status)) == (patched, looked_at)


def entry(manager, *fields):
    status = {f"f:{name}": {} for name in fields}
    return {"manager": manager, "subresource": "status", "fieldsV1": {"f:status": status}}


@pytest.mark.parametrize(
    ("state", "entries", "ended_by"),
    [
        pytest.param("Completed", [entry("kube-retrofit", "state", "finishTime")], "", id="ours"),
        pytest.param("Completed", [entry("kubectl-edit", "state")], "kubectl-edit", id="theirs"),
        pytest.param(
            "Failed",
            [entry("kube-retrofit", "attempts"), entry("kubectl-edit", "state", "finishTime")],
            "kubectl-edit",
            id="theirs with a time",
        ),
        pytest.param(
            "Failed",
            [entry("kube-retrofit", "finishTime"), entry("kubectl-edit", "state")],
            "",
            id="ours and edited",
        ),
        pytest.param("Pending", [entry("kubectl-edit", "state")], "", id="not final"),
        pytest.param("Completed", [], "", id="unknown"),
    ],
)
def test_the_foreign_field_manager_that_ended_a_request_is_reported(state, entries, ended_by):
    obj = {"metadata": {"name": "ur-1", "managedFields": entries}, "status": {"state": state}}
    assert parse_request(obj).ended_by == ended_by


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_outside_the_range_of_utc_is_parsed_as_none(moment):
    assert parse_time(moment) is None


def test_counters_are_limited_so_that_they_can_be_increased_and_stored():
    largest = 2**63 - 1
    raw = {
        "attempts": largest,
        "counts": {"failed": largest},
        "targets": [{"attempts": largest}],
        "sweep": {"done": largest, "matched": largest, "failed": largest},
    }
    status = parse_status(raw)
    (target,) = status.targets
    counted = (status.attempts, status.counts.failed, target.attempts)
    assert all(number + 10**6 < largest for number in counted)
    assert status.sweep is not None
    swept = (status.sweep.done, status.sweep.matched, status.sweep.failed)
    assert all(number + 10**6 < largest for number in swept)
