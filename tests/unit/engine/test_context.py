import pytest

from reconciler.dialects.kyverno.parts import with_images
from reconciler.engine.context import Context, request_context, service_account
from reconciler.languages.jmespath import MissingKey, compile_expression

POD = {
    "kind": "Pod",
    "metadata": {"name": "new"},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]},
}
OLD = {"kind": "Pod", "metadata": {"name": "old"}}


def request(operation="UPDATE", **changes):
    given = {
        "operation": operation,
        "obj": POD,
        "old_object": OLD,
        "name": "new",
        "namespace": "shop",
        "kind": ("", "v1", "Pod"),
        "user_info": {"username": "system:serviceaccount:build:bot", "groups": ["g"]},
    }
    return request_context(**{**given, **changes})


def search(source, context):
    return context.search(compile_expression(source))


def test_the_context_of_a_request_has_all_of_its_fields():
    context = request(roles=["shop:r"], cluster_roles=("c",), extra={"uid": "u1", "dryRun": False})
    expected = {
        "request.object.metadata.name": "new",
        "request.oldObject.metadata.name": "old",
        "request.operation": "UPDATE",
        "request.name": "new",
        "request.namespace": "shop",
        "request.kind": {"group": "", "version": "v1", "kind": "Pod"},
        "request.userInfo.groups[0]": "g",
        "request.roles": ["shop:r"],
        "request.clusterRoles": ["c"],
        "request.uid": "u1",
        "request.dryRun": False,
        "serviceAccountName": "bot",
        "serviceAccountNamespace": "build",
    }
    assert {source: search(source, context) for source in expected} == expected


def test_the_context_without_a_user_has_no_user_info():
    context = request(user_info=None)
    assert search("serviceAccountName", context) == ""
    with pytest.raises(MissingKey):
        search("request.userInfo", context)


@pytest.mark.parametrize(
    ("username", "expected"),
    [
        ("system:serviceaccount:ns:name", ("ns", "name")),
        ("system:serviceaccount:ns", ("", "")),
        ("system:serviceaccount:ns:name:more", ("", "")),
        ("ann", ("", "")),
        (None, ("", "")),
    ],
)
def test_a_service_account_is_parsed_from_the_user_name(username, expected):
    assert service_account({"username": username}) == expected


def test_the_object_of_a_deletion_is_the_deleted_object():
    context = request("DELETE", obj=None)
    assert search("request.object.metadata.name", context) == "old"
    assert search("request.oldObject.metadata.name", context) == "old"
    assert search("request.object.metadata.name", context.bind(element=1)) == "old"


def test_a_deletion_that_is_bound_later_provides_the_object_as_well():
    request_value = {"operation": "DELETE", "object": None, "oldObject": OLD}
    context = Context({}).bind(request=request_value)
    assert search("request.object.metadata.name", context) == "old"
    assert request_value["object"] is None


def test_binding_does_not_change_the_earlier_context():
    before = request()
    after = before.bind(element={"x": 1}, elementIndex=0)
    assert search("element.x", after) == 1
    assert after.bind(element=2).data["element"] == 2
    assert "element" not in before.data
    assert after.data["request"] is before.data["request"]


def test_images_are_computed_on_demand():
    context = with_images(request())
    assert search("images.containers.c.tag", context) == "1"
    assert "images" not in context.data
    assert "images" not in search("@", context)
    assert search("images", context.bind(images="own")) == "own"


def test_other_kinds_have_no_images():
    with pytest.raises(MissingKey):
        search("images", with_images(request(obj={"kind": "ConfigMap"})))
    with pytest.raises(MissingKey):
        search("images", with_images(Context({})))
