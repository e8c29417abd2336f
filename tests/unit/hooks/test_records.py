"""Which events share a request, and reading them back from it."""

from typing import Any

import orjson
import pytest

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import ObjectRef, PolicyRef
from reconciler.api.requestwire import parse_request, render_spec
from reconciler.hooks.contexts import STARTUP, Context, ContextType
from reconciler.hooks.records import (
    HookIdentity,
    Record,
    batches,
    compacted,
    contexts_of,
    may_fail,
    passed_of,
    recordable,
    spec_of,
)
from reconciler.installation import REPLACING
from reconciler.requests.adoption import read_hook_request, read_request

REF = PolicyRef(api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name="h")
HOOK = HookIdentity(ref=REF, uid="u", generation=2)


def record(at: int, *, group: str = "", **fields: Any) -> Record:
    obj = {"metadata": {"name": f"cm-{at}"}}
    context = Context(
        type=ContextType.EVENT,
        binding="settings",
        event="Added",
        shown={"object": obj},
        group=group,
    )
    given: dict[str, Any] = {
        "context": context,
        "queue": "main",
        "allow_failure": False,
        "scope": "shop",
        "at": str(at),
        "resource": ObjectRef(api_version="v1", kind="ConfigMap", name=f"cm-{at}"),
        "watched": "d",
    }
    return Record(**(given | fields))


def sizes(records: list[Record], most: int = 1 << 20) -> list[int]:
    return [len(batch) for batch in batches(records, most)]


def test_events_of_a_queue_share_a_request() -> None:
    assert sizes([record(number) for number in range(50)]) == [50]


def test_the_size_of_a_request_is_limited() -> None:
    assert sizes([record(number) for number in range(9)], most=500) == [3, 3, 3]
    assert sizes([record(1), record(2)], most=1) == [1, 1]


def test_another_queue_or_allow_failure_starts_another_request() -> None:
    given = [record(1), record(2, queue="slow"), record(3, queue="slow", allow_failure=True)]
    assert sizes(given) == [1, 1, 1]


def test_a_startup_record_is_alone_in_its_request() -> None:
    start = record(2, context=STARTUP)
    assert sizes([start, record(3), record(4)]) == [1, 2]


def test_only_the_last_of_adjacent_records_of_a_group_is_kept() -> None:
    given = [record(1, group="g"), record(2, group="g"), record(3), record(4, group="g")]
    assert [item.at for item in compacted(given)] == ["2", "3", "4"]


def test_the_recorded_events_are_read_back_from_a_request() -> None:
    records = [record(1), record(2)]
    spec = spec_of(HOOK, records, 7)
    meta = {"name": "hook-1", "namespace": "kyverno"}
    stored = {
        "apiVersion": kinds_of(REPLACING).requests.api_version,
        "metadata": meta,
        "spec": render_spec(spec),
    }
    assert read_request(stored, adopt=True) is None
    request = read_hook_request(stored)
    assert request is not None
    assert request.spec == spec == parse_request(stored).spec
    assert contexts_of(request.spec.recorded or {}) == tuple(item.context for item in records)
    assert not may_fail(request.spec.recorded or {})
    assert [item.version for item in passed_of(request.spec.recorded or {})] == ["1", "2"]


def test_a_manual_request_is_not_a_hook_request() -> None:
    stored = {"spec": {**render_spec(spec_of(HOOK, [record(1)], 7)), "source": "manual"}}
    assert read_hook_request(stored) is None


def test_only_the_name_of_an_object_too_large_for_a_request_is_recorded() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "big", "annotations": {"a": "x"}},
        "data": {"x": "x" * 2_000_000},
    }
    context = Context(type=ContextType.EVENT, binding="settings", shown={"object": obj})
    kept = recordable(record(1, context=context)).context.shown["object"]
    assert kept == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}}


def test_each_record_can_be_encoded_whatever_its_depth() -> None:
    value: Any = 1
    kept = 0
    for _ in range(400):
        value = {"a": value}
        context = Context(type=ContextType.EVENT, binding="x", shown={"filterResult": value})
        (batch,) = batches([record(1, context=context)], 1 << 20)
        spec = spec_of(HOOK, [recordable(item) for item in batch], 7)
        assert orjson.dumps({"spec": render_spec(spec)})
        (stored,) = contexts_of(spec.recorded or {})
        kept += "filterResult" in stored.shown
    assert 200 < kept < 254


@pytest.mark.parametrize(
    "contexts",
    [5, "x", ["x"], [{"type": ["x"]}], [{"type": "Event", "snapshots": 5, "shown": "x"}]],
)
def test_contexts_that_a_person_wrote_are_read_or_left_out(contexts: Any) -> None:
    recorded = {"contexts": contexts}
    assert len(list(passed_of(recorded))) <= 1
    assert len(contexts_of(recorded)) <= 1
