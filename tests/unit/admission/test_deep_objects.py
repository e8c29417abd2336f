"""Triggers that are nested too deeply to be recorded in a request."""

import orjson
import pytest

from admission.decide import respond
from reconciler.serving.review import BadReview, parse_review
from tests.unit.admission.test_decide import run

MANY = 9_000
DELETION = {"kinds": ["ConfigMap"], "operations": ["DELETE"]}


def nested(levels, inside=b"1"):
    return b'{"a":' * levels + inside + b"}" * levels


def body(make, operation="CREATE", levels=MANY, inside=b"1", **meta):
    """Return a review of an object whose `spec` has the given number of levels."""
    shown = make.thing(spec="DEEP", metadata=meta)
    old = None if operation == "CREATE" else shown
    text = make.review(operation, None if operation == "DELETE" else shown, old)
    return text.replace(b'"DEEP"', nested(levels, inside))


@pytest.mark.parametrize("levels", [200, 300, 600, 1_100, MANY])
def test_a_deeply_nested_trigger_is_recorded_like_any_other(make, levels):
    intent = run(make.index(make.policy()), body(make, levels=levels, uid="u"))
    (draft,) = intent.drafts
    assert (draft.spec.resource.name, draft.spec.resource.uid) == ("dict", "u")
    assert intent.refused == ()


@pytest.mark.parametrize("levels", [300, MANY])
def test_a_deeply_nested_object_that_matches_no_rule_is_skipped(make, levels):
    index = make.index(make.policy(resources={"kinds": ["ConfigMap"], "names": ["other"]}))
    assert run(index, body(make, levels=levels)) == run(index, body(make, levels=2))


@pytest.mark.parametrize("levels", [300, MANY])
def test_a_precondition_on_a_deeply_nested_field_is_left_to_the_controller(make, levels):
    wanted = {"key": "{{ request.object.spec.a.a }}", "operator": "Equals", "value": "x"}
    index = make.index(make.policy(preconditions={"all": [wanted]}))
    assert run(index, body(make, levels=1)).drafts == ()
    assert len(run(index, body(make, levels=levels)).drafts) == 1


@pytest.mark.parametrize("levels", [300, MANY])
def test_a_change_in_a_deeply_nested_field_is_a_change(make, levels):
    index = make.index(make.policy())
    for inside, unchanged in ((b"1", True), (b"2", False)):
        text = body(make, "UPDATE", levels=levels)
        before, _, after = text.rpartition(nested(levels))
        text = before + nested(levels, inside) + after
        (draft,) = run(index, text).drafts
        assert draft.spec.trigger.unchanged is unchanged


@pytest.mark.parametrize("levels", [300, MANY])
def test_the_upper_levels_of_a_deleted_object_are_recorded(make, levels):
    patch = {"metadata": {"labels": {"x": "{{ request.object.metadata.labels.y }}"}}}
    index = make.index(make.policy(resources=DELETION, patch=patch))
    (draft,) = run(index, body(make, "DELETE", levels=levels, labels={"y": "z"})).drafts
    assert draft.spec.recorded["object"]["metadata"]["labels"] == {"y": "z"}


@pytest.mark.parametrize("levels", [300, MANY])
def test_a_deletion_whose_nested_fields_a_rule_reads_is_refused_with_the_cure(make, levels):
    patch = {"metadata": {"labels": {"x": "{{ request.object.spec.a.a }}"}}}
    index = make.index(make.policy(resources=DELETION, patch=patch))
    intent = run(index, body(make, "DELETE", levels=levels))
    assert intent.drafts == ()
    (text,) = intent.refused
    assert "rule copy of policy set-team reads parts of" in text
    assert "nested more deeply than 250 levels" in text
    assert respond("Fail", intent.refused, ()).code == 422
    assert respond("Ignore", intent.refused, ()).warnings


def test_a_large_deeply_nested_body_is_refused_at_once():
    with pytest.raises(BadReview, match="nested more deeply than 250 levels, and too large"):
        parse_review(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


def test_deeply_nested_invalid_json_is_reported_as_not_json():
    for text in (b"[" * 300, b'{"a":' * 2_000):
        with pytest.raises(BadReview, match="not JSON"):
            parse_review(text)


def test_the_kept_part_of_a_deeply_nested_object_can_be_serialized(make):
    request = parse_review(body(make, levels=MANY))
    assert request.cut
    orjson.dumps({"spec": {"recorded": {"object": request.object}}})
