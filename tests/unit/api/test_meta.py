import pytest

from reconciler.api.meta import Kind, ObjectRef, ref_of, resource_version, split_api_version


@pytest.mark.parametrize(
    ("group", "subresource", "api_version", "resource"),
    [
        ("", "", "v1", "things"),
        ("apps", "", "apps/v1", "things.apps"),
        ("apps", "scale", "apps/v1", "things.apps/scale"),
        ("", "status", "v1", "things/status"),
    ],
)
def test_a_kind_has_the_names_used_in_manifests_and_rbac(
    group, subresource, api_version, resource
):
    kind = Kind(
        group=group,
        version="v1",
        kind="Thing",
        plural="things",
        namespaced=True,
        subresource=subresource,
    )
    assert (kind.api_version, kind.resource) == (api_version, resource)
    assert split_api_version(kind.api_version) == (group, "v1")


@pytest.mark.parametrize(("namespace", "text"), [("a", "Secret a/s"), ("", "Secret s")])
def test_a_reference_is_written_as_kind_namespace_and_name(namespace, text):
    assert str(ObjectRef(api_version="v1", kind="Secret", namespace=namespace, name="s")) == text


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"name": None, "uid": None}}]
)
def test_missing_metadata_is_read_as_empty(obj):
    assert ref_of(obj) == ObjectRef(api_version="", kind="", name="")
    assert resource_version(obj) == ""


def test_a_reference_is_built_from_an_object():
    meta = {"name": "s", "namespace": "a", "uid": "u", "resourceVersion": "7"}
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    assert ref_of(obj) == ObjectRef(
        api_version="v1", kind="Secret", namespace="a", name="s", uid="u"
    )
    assert resource_version(obj) == "7"
