"""Requests that a Kyverno stored, and how kube-retrofit reads them."""

import json

import pytest

from reconciler.api.updaterequest import Source, State
from reconciler.requests.adoption import is_ours, read_request
from reconciler.requests.confirmation import Presence, confirm

TRIGGER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "palette", "namespace": "shop", "uid": "u-1", "resourceVersion": "7"},
    "data": {"colour": "blue"},
}
BEFORE = {**TRIGGER, "data": {"colour": "red"}}
USER = {"username": "jane", "groups": ["painters"]}


def stored(operation="UPDATE", new=TRIGGER, old=BEFORE, **spec):
    carried = {
        "uid": "a-1",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "palette",
        "namespace": "shop",
        "operation": operation,
        "userInfo": USER,
        "object": new,
        "oldObject": old,
        "options": {"kind": "UpdateOptions"},
    }
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "UpdateRequest",
        "metadata": {
            "name": "ur-x7k2p",
            "namespace": "kyverno",
            "creationTimestamp": "2026-06-01T12:00:00Z",
            "labels": {"mutate.updaterequest.kyverno.io/policy-name": "paint"},
        },
        "spec": {
            "requestType": "mutate",
            "policy": "paint",
            "rule": "walls",
            "deleteDownstream": False,
            "resource": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "namespace": "shop",
                "name": "palette",
                "uid": "u-1",
            },
            "context": {
                "userInfo": {"userInfo": USER, "clusterRoles": ["view"], "synchronize": False},
                "admissionRequestInfo": {"operation": operation, "admissionRequest": carried},
            },
            **spec,
        },
        "status": {"state": "Pending"},
    }


def adopted(obj):
    request = read_request(obj, adopt=True)
    assert request is not None
    return request


def test_a_request_of_kyverno_is_skipped_unless_adopted():
    assert read_request(stored(), adopt=False) is None
    assert not is_ours(stored())


@pytest.mark.parametrize("adopt", [False, True])
def test_own_requests_are_recognized_by_label_or_source(adopt):
    by_label = stored()
    by_label["metadata"]["labels"] = {"app": "paint", "kube-retrofit.dev/shard": "3"}
    for obj in (by_label, stored(source="manual")):
        request = read_request(obj, adopt=adopt)
        assert request is not None
        assert request.spec.recorded is None


@pytest.mark.parametrize("kind", ["generate", "cel-mutate", "cel-generate"])
def test_other_request_types_are_always_skipped(kind):
    assert read_request(stored(requestType=kind), adopt=True) is None
    assert read_request(stored(requestType=kind, source="manual"), adopt=True) is None


def test_an_update_is_read_and_confirmed_like_an_own_request():
    spec = adopted(stored()).spec
    assert (spec.policy.key, spec.rule, spec.operation) == ("paint", "walls", "UPDATE")
    assert spec.source is Source.ADMISSION
    assert spec.user == {"userInfo": USER, "roles": [], "clusterRoles": ["view"]}
    assert spec.recorded == {"oldObject": BEFORE}
    assert set(spec.request) == {"uid", "kind", "resource", "name", "namespace", "operation"}
    assert spec.trigger.resource_version == "7"
    assert not spec.trigger.unchanged
    assert confirm(spec, TRIGGER) is Presence.WAITING
    moved = {**TRIGGER, "metadata": {**TRIGGER["metadata"], "resourceVersion": "8"}}
    assert confirm(spec, moved) is Presence.STORED


def test_the_roles_of_the_user_are_kept():
    obj = stored()
    obj["spec"]["context"]["userInfo"]["roles"] = ["shop:painter"]
    assert adopted(obj).spec.user["roles"] == ["shop:painter"]


def test_an_update_without_a_version_is_confirmed_by_the_version_of_the_old_object():
    new = {**TRIGGER, "metadata": {"name": "palette", "namespace": "shop", "uid": "u-1"}}
    assert confirm(adopted(stored(new=new)).spec, TRIGGER) is Presence.WAITING


def test_an_update_that_changed_nothing_is_marked_as_unchanged():
    assert adopted(stored(old=TRIGGER)).spec.trigger.unchanged


def test_a_creation_is_confirmed_by_its_uid():
    spec = adopted(stored("CREATE", old=None)).spec
    assert spec.recorded is None
    assert confirm(spec, TRIGGER) is Presence.STORED
    assert confirm(spec, None) is Presence.WAITING


def test_a_deletion_keeps_the_deleted_object():
    spec = adopted(stored("DELETE", new=None)).spec
    assert spec.recorded == {"object": BEFORE}
    assert confirm(spec, None) is Presence.STORED


def test_the_deletion_of_a_terminating_object_is_stored_once_it_is_gone():
    ending = {"metadata": {**BEFORE["metadata"], "deletionTimestamp": "2026-06-01T12:00:00Z"}}
    spec = adopted(stored("DELETE", new=None, old=ending)).spec
    assert confirm(spec, ending) is Presence.WAITING
    assert confirm(spec, None) is Presence.STORED


def test_a_subresource_keeps_its_object():
    obj = stored("CREATE", new={"kind": "Binding", "target": {"name": "n"}}, old=None)
    obj["spec"]["context"]["admissionRequestInfo"]["admissionRequest"]["subResource"] = "binding"
    spec = adopted(obj).spec
    assert spec.recorded == {"object": {"kind": "Binding", "target": {"name": "n"}}}
    assert spec.trigger.subresource == "binding"


def test_a_request_of_a_policy_change_has_no_admission_request():
    spec = adopted(stored(context={"userInfo": {}, "admissionRequestInfo": {}})).spec
    assert (spec.source, spec.operation) == (Source.POLICY_CHANGE, "")
    assert (spec.user, spec.request, spec.recorded) == ({}, {}, None)


def test_an_admission_request_stored_as_text_is_read():
    obj = stored()
    info = obj["spec"]["context"]["admissionRequestInfo"]
    info["admissionRequest"] = json.dumps(info["admissionRequest"])
    assert adopted(obj).spec == adopted(stored()).spec
    for text in ("{", "[1]"):
        info["admissionRequest"] = text
        assert adopted(obj).spec.source is Source.POLICY_CHANGE


def test_the_state_of_an_adopted_request_is_read():
    obj = stored()
    obj["status"] = {}
    assert adopted(obj).status.state is State.PENDING
    obj["status"] = {"state": "Failed", "retryCount": 2, "message": "no"}
    assert adopted(obj).status.state is State.FAILED


@pytest.mark.parametrize(
    "fields",
    [
        {"old": [TRIGGER]},
        {"new": "an object", "operation": "DELETE"},
        {"old": {"metadata": {"labels": 7}}},
    ],
)
def test_values_that_are_not_objects_are_kept_without_failing_the_list(fields):
    request = read_request(stored(**fields), adopt=True)
    assert request is not None
    assert fields.get("old", fields.get("new")) in (request.spec.recorded or {}).values()


def test_a_subresource_that_is_not_a_string_does_not_fail_the_list():
    obj = stored()
    obj["spec"]["context"]["admissionRequestInfo"]["admissionRequest"]["subResource"] = ["a"]
    assert read_request(obj, adopt=True) is not None


def test_objects_that_are_nested_too_deeply_do_not_fail_the_list():
    deep = TRIGGER
    for _ in range(100_000):
        deep = {**TRIGGER, "data": deep}
    request = adopted(stored(new=deep, old=deep))
    assert not request.spec.trigger.unchanged
    assert (request.spec.recorded or {})["oldObject"] is deep


def test_an_admission_request_that_is_nested_too_deeply_does_not_fail_the_list():
    obj = stored()
    deep = "[" * 100_000 + "]" * 100_000
    obj["spec"]["context"]["admissionRequestInfo"]["admissionRequest"] = deep
    request = adopted(obj)
    assert (request.spec.source, request.spec.recorded) == (Source.ADMISSION, {"object": deep})
