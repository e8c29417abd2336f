"""The parts of an admission request that are recorded, and those that are not."""

from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest

from reconciler.api.meta import LABEL_RECORDED, LABEL_SHARD
from reconciler.api.requestwire import parse_spec, render_spec
from reconciler.api.updaterequest import RequestStatus, UpdateRequest
from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import Projection
from reconciler.requests import naming
from reconciler.requests.draft import (
    AdmissionRequest,
    TooLarge,
    TypeName,
    draft,
    keeps,
    record_trigger,
    same_work,
)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def program(
    *, kinds=("ConfigMap",), patch="{{ request.object.data.mode }}", match=None, exclude=None
):
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p", "uid": "policy-uid", "generation": 4},
        "spec": {
            "rules": [
                {
                    "name": "r",
                    "match": {
                        "any": [
                            {
                                "resources": {
                                    "kinds": list(kinds),
                                    "operations": ["CREATE", "UPDATE", "DELETE"],
                                    **(match or {}),
                                }
                            }
                        ]
                    },
                    **({"exclude": {"any": [{"resources": exclude}]}} if exclude else {}),
                    "mutate": {
                        "targets": [
                            {"apiVersion": "v1", "kind": "Pod", "name": "t", "namespace": "a"}
                        ],
                        "patchStrategicMerge": {"metadata": {"labels": {"x": patch}}},
                    },
                }
            ]
        },
    }
    return compile_policy(policy).programs[0]


def obj(kind="ConfigMap", **rest):
    meta = {"name": "dict", "namespace": "a", "uid": "u", "resourceVersion": "7"}
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {**meta, **rest.pop("metadata", {})},
        **rest,
    }


def request(operation, new=None, old=None, **rest):
    shown = new or old
    return AdmissionRequest(
        uid="request-uid",
        operation=operation,
        kind=TypeName(version="v1", name=shown["kind"]),
        resource=TypeName(version="v1", name=shown["kind"].lower() + "s"),
        name="dict",
        namespace="a",
        user={"username": "jane", "groups": ["devs"]},
        object=new,
        old_object=old,
        info={"uid": "request-uid", "namespace": "a"},
        **rest,
    )


def drafted(found, rule, **limits):
    trigger = record_trigger(found)
    return draft(found, rule, trigger, max_recorded=limits.get("max_recorded", 1 << 20))


def test_a_creation_records_rule_and_trigger_but_nothing_of_the_object():
    found = drafted(request("CREATE", obj(data={"mode": "on", "other": "x"})), program())
    spec = found.spec
    assert found.name == naming.request_name("request-uid", "policy-uid", "r")
    assert found.labels[LABEL_SHARD] == str(naming.shard("u"))
    assert (spec.policy.key, spec.rule, spec.operation) == ("p", "r", "CREATE")
    assert (spec.policy_uid, spec.policy_generation) == ("policy-uid", 4)
    assert (spec.resource.kind, spec.resource.namespace, spec.resource.uid) == (
        "ConfigMap",
        "a",
        "u",
    )
    assert spec.user == {"userInfo": {"username": "jane"}}
    assert spec.request == {}
    assert spec.recorded is None
    assert spec.recorded_secret == ""
    assert found.secret is None


def attempt(new="on", *, user="jane", uid="request-uid", rule=None, old=None, at="u", **more):
    """Return the draft of an attempt at an update that replaces resourceVersion 7."""
    changed = obj(data={"mode": new}, metadata={"uid": at})
    found = request("UPDATE", changed, old or obj(data={"mode": "off"}), **more)
    found = replace(found, uid=uid, user={"username": user}, info={**found.info, "uid": uid})
    return drafted(found, rule or program())


def stored(found):
    return UpdateRequest(
        name=found.name,
        namespace="kyverno",
        uid="stored",
        resource_version="9",
        created=datetime(2026, 6, 1, tzinfo=UTC),
        labels=found.labels,
        spec=found.spec,
        status=RequestStatus(),
    )


def test_attempts_at_one_write_share_a_request():
    # A retry of the API server has another uid, and the changes of the other writer.
    first, second = attempt("a", uid="1"), attempt("b", uid="2", user="other")
    assert first.name == second.name
    assert first.alone == naming.request_name("1", "policy-uid", "r")
    assert second.alone == naming.request_name("2", "policy-uid", "r")


def newer(version):
    return obj(data={"mode": "off"}, metadata={"resourceVersion": version})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"old": newer("8")}, id="another version is replaced"),
        pytest.param({"at": "v"}, id="of another object"),
        pytest.param({"subresource": "status"}, id="of a subresource"),
        pytest.param({"rule": {"uid": "u2"}}, id="of another policy"),
        pytest.param({"rule": {"generation": 5}}, id="of another generation"),
        pytest.param({"rule": {"rule": "s"}}, id="of another rule"),
    ],
)
def test_attempts_at_different_writes_do_not_share_a_request(other):
    rule = program()
    rule = replace(rule, origin=replace(rule.origin, **other.get("rule", {})))
    found = attempt(**(other | {"rule": rule}))
    assert found.alone
    assert found.name != attempt().name


@pytest.mark.parametrize(
    "patch",
    [
        "{{ request.userInfo.username }}",
        "{{ serviceAccountName }}",
        "{{ request.roles }}",
        "{{ to_string(request) }}",
    ],
)
def test_a_rule_that_reads_the_sender_shares_requests_of_the_same_sender_only(patch):
    rule = program(patch=patch)
    name = attempt(user="jane", rule=rule).name
    assert attempt(user="other", rule=rule).name != name
    assert attempt(user="jane", rule=rule).name == name


def test_a_rule_that_reads_the_old_object_shares_requests_of_equal_ones_only():
    rule = program(patch="{{ request.oldObject.data.mode }}")
    forged = obj(data={"mode": "forged"})
    assert attempt(rule=rule).name != attempt(rule=rule, old=forged).name
    assert attempt(rule=rule).name == attempt("b", rule=rule, uid="2").name


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(request("CREATE", obj()), id="a creation"),
        pytest.param(request("DELETE", old=obj()), id="a deletion"),
        pytest.param(request("UPDATE", obj(), obj()), id="nothing changed"),
        pytest.param(
            request(
                "UPDATE", obj("Scale", spec={"replicas": 2}), obj("Scale"), subresource="scale"
            ),
            id="what cannot be read later",
        ),
    ],
)
def test_writes_that_replace_no_readable_version_do_not_share_a_request(found):
    assert drafted(found, program(kinds=("*",))).alone == ""


def test_requests_with_a_recorded_secret_are_not_shared():
    # If the name were used again, the Secret would be deleted with the older request.
    new, old = obj("Secret", data={"k": "bmV3"}), obj("Secret", data={"k": "b2xk"})
    rule = program(kinds=("Secret",), patch="{{ request.oldObject.data.k }}")
    found = drafted(request("UPDATE", new, old), rule)
    assert found.secret is not None
    assert found.alone == ""
    # Nor is the work of two of them known to be the same, as their content is not compared.
    assert same_work(stored(found)) is None


@pytest.mark.parametrize(
    ("patch", "user", "info"),
    [
        ("{{ request.userInfo.username }}", {"username": "jane", "groups": ["devs"]}, {}),
        ("{{ serviceAccountName }}", {"username": "jane"}, {}),
        ("{{ request.uid }}", {"username": "jane"}, {"uid": "request-uid"}),
        (
            "{{ to_string(request) }}",
            {"username": "jane", "groups": ["devs"]},
            {"uid": "request-uid", "namespace": "a"},
        ),
    ],
)
def test_only_request_fields_that_the_rule_reads_are_recorded(patch, user, info):
    spec = drafted(request("CREATE", obj()), program(patch=patch)).spec
    assert spec.user == {"userInfo": user}
    assert spec.request == info


def test_a_draft_is_the_same_after_serialization():
    spec = drafted(request("DELETE", None, obj(data={"mode": "on"})), program()).spec
    assert parse_spec(orjson.loads(orjson.dumps(render_spec(spec)))) == spec


def test_an_update_records_only_what_the_rule_reads_of_the_old_object():
    rule = program(patch="{{ request.oldObject.data.mode }}")
    old = obj(data={"mode": "on", "other": "x"})
    found = drafted(request("UPDATE", obj(data={"mode": "off"}), old), rule)
    assert found.spec.recorded == {"oldObject": {"data": {"mode": "on"}}}


def test_an_update_whose_rule_reads_the_new_object_records_nothing():
    old, new = obj(data={"mode": "on"}), obj(data={"mode": "off"})
    assert drafted(request("UPDATE", new, old), program()).spec.recorded is None


def test_a_deletion_records_the_fields_that_rule_and_match_read():
    old = obj(
        data={"mode": "on", "other": "x"},
        metadata={
            "labels": {"a": "b"},
            "annotations": {"c": "d", LAST_APPLIED: "{...}"},
            "managedFields": [{"manager": "x"}],
        },
    )
    found = drafted(request("DELETE", None, old), program())
    assert found.spec.recorded == {
        "object": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "dict",
                "namespace": "a",
                "uid": "u",
                "labels": {"a": "b"},
            },
            "data": {"mode": "on"},
        }
    }


def test_a_deletion_also_records_fields_read_from_the_old_object():
    rule = program(patch="{{ request.oldObject.data.mode }}{{ request.object.data.more }}")
    found = drafted(request("DELETE", None, obj(data={"mode": "on", "more": "x"})), rule)
    assert found.spec.recorded["object"]["data"] == {"mode": "on", "more": "x"}


def test_only_annotations_that_the_rule_reads_are_kept():
    path = "{{ request.object.metadata.annotations.c }}"
    old = obj(metadata={"annotations": {"c": "d", "e": "f", LAST_APPLIED: "{...}"}})
    found = drafted(request("DELETE", None, old), program(patch=path))
    kept = found.spec.recorded["object"]["metadata"]
    assert kept["annotations"] == {"c": "d"}
    assert kept["name"] == "dict"


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [({"c": "d*"}, {"c": "d"}), ({"x/*": "?"}, {"c": "d", "e": "f", LAST_APPLIED: "{...}"})],
)
@pytest.mark.parametrize("section", ["match", "exclude"])
def test_annotations_that_match_or_exclude_read_are_kept(section, wanted, kept):
    old = obj(metadata={"annotations": {"c": "d", "e": "f", LAST_APPLIED: "{...}"}})
    rule = program(**{section: {"annotations": wanted}})
    found = drafted(request("DELETE", None, old), rule)
    assert found.spec.recorded["object"]["metadata"]["annotations"] == kept


def test_a_recorded_annotation_of_a_secret_is_stored_in_a_secret():
    rule = program(kinds=["Secret"], patch="{{ request.object.metadata.annotations.copy }}")
    old = obj("Secret", metadata={"annotations": {"copy": "aHVu", "other": "x"}})
    found = drafted(request("DELETE", None, old), rule)
    assert found.spec.recorded is None
    assert orjson.loads(found.secret)["object"]["metadata"]["annotations"] == {"copy": "aHVu"}


def test_an_expression_over_the_whole_object_keeps_all_of_it():
    old = obj(data={"mode": "on", "other": "x"}, metadata={"managedFields": [{"manager": "x"}]})
    found = drafted(request("DELETE", None, old), program(patch="{{ to_string(request.object) }}"))
    assert found.spec.recorded["object"] == old


@pytest.mark.parametrize(
    ("subresource", "kept"),
    [("", False), ("status", False), ("scale", True), ("ephemeralcontainers", True)],
)
def test_the_object_of_a_subresource_is_kept_if_it_cannot_be_read_later(subresource, kept):
    new = obj(data={"mode": "on", "other": "x"})
    found = drafted(request("UPDATE", new, new, subresource=subresource), program())
    assert (found.spec.recorded is not None) is kept
    if kept:
        assert found.spec.recorded["object"]["data"] == {"mode": "on"}
    assert found.spec.trigger.subresource == subresource


def test_recorded_data_of_a_secret_is_stored_in_a_secret():
    rule = program(kinds=["Secret"], patch="{{ request.object.data.token }}")
    old = obj("Secret", data={"token": "aHVudGVyMg==", "other": "x"})
    found = drafted(request("DELETE", None, old), rule)
    assert found.spec.recorded is None
    assert found.spec.recorded_secret == naming.recorded_name(found.name)
    assert found.labels[LABEL_RECORDED] == "true"
    assert orjson.loads(found.secret)["object"]["data"] == {"token": "aHVudGVyMg=="}
    assert "aHVudGVyMg" not in orjson.dumps(render_spec(found.spec)).decode()


def test_metadata_of_a_secret_is_recorded_in_the_request():
    rule = program(kinds=["Secret"], patch="{{ request.object.metadata.name }}")
    found = drafted(request("DELETE", None, obj("Secret", data={"token": "x"})), rule)
    assert found.secret is None
    assert LABEL_RECORDED not in found.labels
    assert "data" not in found.spec.recorded["object"]


@pytest.mark.parametrize(
    "path", ["request.object.metadata.annotations", "request.object", "request.oldObject.metadata"]
)
def test_the_last_applied_copy_of_a_secret_is_stored_in_a_secret(path):
    rule = program(kinds=["Secret"], patch=f"{{{{ to_string({path}) }}}}")
    old = obj("Secret", metadata={"annotations": {LAST_APPLIED: '{"data":{"token":"aHVu"}}'}})
    found = drafted(request("DELETE", None, old), rule)
    assert "aHVu" not in orjson.dumps(render_spec(found.spec)).decode()
    assert b"aHVu" in found.secret


def test_recording_more_than_the_limit_is_refused_with_figures():
    old = obj(data={"mode": "x" * 500})
    with pytest.raises(TooLarge, match=r"rule r of policy p reads \d+ bytes .* the 400 that"):
        drafted(request("DELETE", None, old), program(), max_recorded=400)
    assert drafted(request("UPDATE", old, old), program(), max_recorded=10)


def test_the_trigger_of_a_creation_has_a_digest_but_no_version():
    new = obj(metadata={"resourceVersion": ""})
    found = record_trigger(request("CREATE", new))
    assert (found.resource_version, found.unchanged, found.terminating) == ("", False, False)
    assert found.digest == naming.digest(new)


def test_the_trigger_of_an_update_carries_the_version_that_it_replaces():
    found = record_trigger(request("UPDATE", obj(data={"a": "1"}), obj(data={"a": "0"})))
    assert (found.resource_version, found.unchanged) == ("7", False)


def test_an_update_that_changes_nothing_is_recognized():
    one, two = obj(data={"a": "1"}), obj(data={"a": "1"})
    assert record_trigger(request("UPDATE", one, two)).unchanged


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"managedFields": [{"time": "1"}]}, {"managedFields": [{"time": "2"}]}),
        ({"generation": 1}, {"generation": True}),
        ({"generation": 1}, {"generation": 1.0}),
    ],
)
def test_an_update_of_managed_fields_or_of_a_type_is_a_change(old, new):
    found = record_trigger(request("UPDATE", obj(metadata=new), obj(metadata=old)))
    assert not found.unchanged


def test_the_trigger_of_a_deletion_records_whether_it_was_already_terminating():
    old = obj()
    dying = obj(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert not record_trigger(request("DELETE", None, old)).terminating
    assert record_trigger(request("DELETE", None, dying)).terminating
    assert record_trigger(request("DELETE", None, old)).resource_version == "7"


def test_a_trigger_without_uid_still_has_a_shard():
    binding = obj("Binding", metadata={"uid": ""})
    found = drafted(
        request("CREATE", binding, subresource="binding"), program(kinds=["Pod/binding"])
    )
    assert 0 <= int(found.labels[LABEL_SHARD]) < 64


NAME, MODE, OTHER = ("metadata", "name"), ("data", "mode"), ("data", "other")


@pytest.mark.parametrize(
    ("operation", "reads", "kept"),
    [
        ("CREATE", Projection(object=frozenset({OTHER})), True),
        ("CREATE", Projection(request=frozenset({"object", "operation", "name"})), True),
        ("CREATE", Projection(request=frozenset({"userInfo"})), False),
        ("CREATE", Projection(request=None), False),
        ("UPDATE", Projection(object=frozenset({()})), True),
        ("UPDATE", Projection(old_object=frozenset({NAME})), False),
        ("DELETE", Projection(object=frozenset({NAME, (*MODE, "x")})), True),
        ("DELETE", Projection(object=frozenset({OTHER})), False),
        ("DELETE", Projection(old_object=frozenset({OTHER})), False),
        ("DELETE", Projection(object=frozenset({()})), False),
        ("", Projection(request=None, old_object=frozenset({()})), True),
    ],
)
def test_keeps_reports_whether_other_fields_can_still_be_read(operation, reads, kept):
    rule = program()
    old = None if operation in {"CREATE", ""} else obj(data={"mode": "x"})
    new = None if operation == "DELETE" else obj(data={"mode": "y"})
    request = AdmissionRequest(
        uid="r",
        operation=operation,
        kind=TypeName(version="v1", name="ConfigMap"),
        resource=TypeName(version="v1", name="configmaps"),
        name="dict",
        namespace="a",
        object=new,
        old_object=old,
    )
    spec = draft(request, rule, record_trigger(request), max_recorded=1000).spec
    assert keeps(spec, rule, reads) is kept


def test_of_a_subresource_only_fields_that_the_rule_reads_can_still_be_read():
    rule = program()
    request = AdmissionRequest(
        uid="r",
        operation="CREATE",
        kind=TypeName(version="v1", name="Binding"),
        resource=TypeName(version="v1", name="pods"),
        subresource="binding",
        name="dict",
        namespace="a",
        object=obj("Binding", data={"mode": "x"}),
    )
    spec = draft(request, rule, record_trigger(request), max_recorded=1000).spec
    assert keeps(spec, rule, Projection(object=frozenset({MODE})))
    assert not keeps(spec, rule, Projection(object=frozenset({OTHER})))


def test_rules_that_come_first_are_recorded_in_the_request():
    first, second = program(patch="{{ request.oldObject.data.other }}"), program()
    request = AdmissionRequest(
        uid="r",
        operation="UPDATE",
        kind=TypeName(version="v1", name="ConfigMap"),
        resource=TypeName(version="v1", name="configmaps"),
        name="dict",
        namespace="a",
        object=obj(data={"mode": "y"}),
        old_object=obj(data={"mode": "x", "other": "z"}),
    )
    made = draft(request, second, record_trigger(request), max_recorded=1000, unless=[first])
    assert made.spec.recorded == {"oldObject": {"data": {"other": "z"}}}
    assert parse_spec(render_spec(made.spec)).unless == ("r",)
