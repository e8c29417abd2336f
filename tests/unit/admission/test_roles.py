"""The roles of users while role bindings are added, changed and deleted."""

from admission.roles import RoleIndex, Roles


def binding(name, role, *subjects, namespace="", kind="ClusterRole"):
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "metadata": meta,
        "roleRef": {"kind": kind, "name": role},
        "subjects": [
            dict(zip(("kind", "namespace", "name"), item, strict=True)) for item in subjects
        ],
    }


JANE = {"username": "jane", "groups": ["devs", "system:authenticated"]}


def test_bindings_of_the_user_and_of_groups_give_roles():
    index = RoleIndex()
    index.on_event("ADDED", binding("a", "view", ("Group", "", "devs")))
    index.on_event("ADDED", binding("b", "edit", ("User", "", "jane"), namespace="x"))
    index.on_event("ADDED", binding("c", "pods", ("User", "", "jane"), namespace="x", kind="Role"))
    index.on_event("ADDED", binding("d", "admin", ("User", "", "joe"), ("Group", "", "ops")))
    assert index.of(JANE) == Roles(roles=("x:pods",), cluster_roles=("edit", "view"))
    assert index.of({}) == Roles()


def test_a_service_account_is_matched_by_its_user_name():
    index = RoleIndex()
    index.on_event("ADDED", binding("a", "view", ("ServiceAccount", "ns", "robot")))
    assert index.of({"username": "system:serviceaccount:ns:robot"}).cluster_roles == ("view",)
    assert index.of({"username": "robot"}) == Roles()


def test_roles_follow_changed_and_deleted_bindings():
    index = RoleIndex()
    index.on_event("ADDED", binding("a", "view", ("User", "", "jane")))
    index.on_event("ADDED", binding("a", "own", ("User", "", "jane"), namespace="x", kind="Role"))
    index.on_event("MODIFIED", binding("a", "view", ("User", "", "joe")))
    assert index.of(JANE) == Roles(roles=("x:own",))
    index.on_event("DELETED", {"metadata": {"name": "a", "namespace": "x"}})
    assert index.of(JANE) == Roles()
    assert index.of({"username": "joe"}).cluster_roles == ("view",)
    index.on_event("DELETED", {"metadata": {"name": "a"}})
    index.on_event("DELETED", {"metadata": {"name": "never seen"}})
    assert index == RoleIndex()


def test_a_binding_without_subjects_gives_no_roles():
    index = RoleIndex()
    index.on_event("ADDED", binding("a", "view"))
    assert index.of(JANE) == Roles()
