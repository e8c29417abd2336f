"""Parsing of AdmissionReviews, and the form of responses."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.serving.review import BadReview, allow, deny, parse_review

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def test_a_create_review_is_parsed_completely(make):
    obj = make.thing(data={"a": "1"})
    request = parse_review(make.review(obj=obj, dryRun=True))
    assert (request.operation, request.name, request.namespace) == ("CREATE", "dict", "a")
    assert (request.kind.name, request.kind.api_version) == ("ConfigMap", "v1")
    assert (request.resource.name, request.subresource) == ("configmaps", "")
    assert request.user["username"] == "jane"
    assert request.object == obj
    assert request.old_object is None
    assert request.dry_run
    assert str(request.ref) == "ConfigMap a/dict"


def test_request_info_contains_fields_for_expressions_and_no_payloads(make):
    request = parse_review(make.review(obj=make.thing(data={"a": "1"})))
    assert set(request.info) == {
        "uid",
        "kind",
        "resource",
        "requestKind",
        "requestResource",
        "name",
        "namespace",
        "dryRun",
    }


def test_an_empty_name_is_taken_from_the_object(make):
    assert parse_review(make.review(obj=make.thing(), name="")).name == "dict"


def test_a_review_of_a_namespace_has_an_empty_namespace(make):
    obj = make.thing(kind="Namespace", name="team", namespace="")
    request = parse_review(make.review(obj=obj, namespace="team"))
    assert request.namespace == ""
    assert str(request.ref) == "Namespace team"


def test_on_delete_the_old_object_is_the_subject(make):
    request = parse_review(make.review("DELETE", None, make.thing()))
    assert request.object is None
    assert request.subject["metadata"]["name"] == "dict"
    assert request.ref.uid == "uid-of-dict"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"kind: AdmissionReview", "not JSON"),
        (b"[]", "a JSON array"),
        (b"null", "a JSON null"),
        (b"{}", "got None None"),
        (b'{"apiVersion":"v1","kind":"Pod"}', "got v1 Pod"),
        (b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}', "v1beta1"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "no request"),
    ],
)
def test_a_body_that_is_not_an_admission_review_is_refused_with_the_reason(body, words):
    with pytest.raises(BadReview, match=words):
        parse_review(body)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"uid": ""}, "request.uid"),
        ({"operation": "PATCH"}, "request.operation is 'PATCH'"),
        ({"kind": {"version": "v1"}}, "request.kind.kind"),
        ({"resource": None}, "request.resource.resource"),
        ({"object": "text"}, "request.object is a JSON string"),
        ({"userInfo": [1]}, "request.userInfo is a JSON array"),
        ({"userInfo": {"username": 7}}, "request.userInfo.username is a JSON number"),
        ({"userInfo": {"groups": "a"}}, "request.userInfo.groups is a JSON string"),
        ({"userInfo": {"groups": ["a", None]}}, r"request.userInfo.groups\[1\] is a JSON null"),
        ({"object": {"metadata": {"name": {}}}}, "request.object.metadata.name is a JSON object"),
        ({"object": {"metadata": {"labels": ["a"]}}}, "metadata.labels is a JSON array"),
        ({"oldObject": {"metadata": {"annotations": {"a": 1}}}}, r"annotations\['a'\] is a JSON"),
        ({"oldObject": {"kind": False}}, "request.oldObject.kind is a JSON boolean"),
    ],
)
def test_an_invalid_request_is_refused_with_the_field(make, fields, words):
    with pytest.raises(BadReview, match=words):
        parse_review(make.review(obj=make.thing(), **fields))


@given(json_values)
def test_arbitrary_json_is_refused_as_a_bad_review(value):
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": value}
    for body in (value, review):
        with pytest.raises(BadReview):
            parse_review(orjson.dumps(body))


FIELDS = ["uid", "operation", "kind", "resource", "subResource", "name", "namespace"]
FIELDS += ["userInfo", "object", "oldObject", "dryRun"]


@given(st.sampled_from(FIELDS), json_values)
def test_an_arbitrary_value_of_a_field_causes_no_other_error(field, value):
    request = {
        "uid": "u",
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        field: value,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    with contextlib.suppress(BadReview):
        parse_review(orjson.dumps(review))


def test_responses_are_admission_reviews():
    assert orjson.loads(allow("u")) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u", "allowed": True},
    }
    assert orjson.loads(deny("u", "no", code=422, warnings=("w",)))["response"] == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 422, "message": "no"},
        "warnings": ["w"],
    }
