import pytest

from reconciler.dialects.kyverno.targets import Target, resolve
from reconciler.dialects.kyverno.template import compile_template
from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import Context
from reconciler.errors import EvaluationError

SECRET = "{{ request.object.data.password }}"
PLACE = "spec.rules[0].mutate.targets[1]"
OBJECT = {
    "metadata": {"name": "web", "namespace": "shop", "labels": {"tier": "x*"}},
    "spec": {"star": "*", "query": "w?b", "empty": "", "kind": "Secret", "number": 3},
}


def query(*, policy_namespace="", **fields):
    parts = {"api_version": "v1", "kind": "Secret", **fields}
    target = Target(
        location=PLACE, **{name: compile_template(value) for name, value in parts.items()}
    )
    context = Context({"request": {"object": OBJECT}})
    return resolve(1, target, context, policy_namespace=policy_namespace)


def thing(name="web", namespace="shop", **meta):
    return {"metadata": {"name": name, "namespace": namespace, **meta}}


def test_plain_names_match_exactly():
    found = query(name="web", namespace="shop")
    assert (found.index, found.api_version, found.kind) == (1, "v1", "Secret")
    assert (found.name.text, found.name.exact) == ("web", True)
    assert found.accepts(thing())
    assert not found.accepts(thing("other"))
    assert not found.accepts(thing(namespace="other"))


def test_an_absent_field_restricts_nothing():
    found = query()
    assert (found.name, found.namespace, found.uid, found.selector) == (None, None, "", None)
    assert found.accepts(thing("anything", "anywhere"))
    assert found.accepts({"metadata": {"name": "cluster-wide"}})


@pytest.mark.parametrize("pattern", ["w*", "*", "?eb", "w?b"])
def test_a_wildcard_in_the_policy_matches_many_names(pattern):
    found = query(name=pattern, namespace="sh*")
    assert not found.name.exact
    assert found.accepts(thing())
    assert not found.accepts(thing(namespace="other"))


def test_a_wildcard_can_be_combined_with_a_variable():
    found = query(name="{{ request.object.metadata.name }}-*")
    assert found.accepts(thing("web-1"))
    assert not found.accepts(thing("wax-1"))


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize("source", ["spec.star", "spec.query", "metadata.labels.tier"])
def test_a_wildcard_from_an_object_is_literal(field, source):
    found = getattr(query(**{field: f"{{{{ request.object.{source} }}}}"}), field)
    assert found.exact
    assert not found.accepts("web")
    assert found.accepts(found.text)
    assert found.text in {"*", "w?b", "x*"}


def test_a_wildcard_from_an_object_stays_literal_beside_one_of_the_policy():
    found = query(name="{{ request.object.spec.star }}-?")
    assert found.accepts(thing("*-1"))
    assert not found.accepts(thing("web-1"))


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize(
    "text", ["{{ request.object.spec.empty }}", "{{ request.object.metadata.labels.no || '' }}"]
)
def test_a_field_that_resolves_to_an_empty_text_never_means_all(field, text):
    with pytest.raises(EvaluationError, match="never means all") as caught:
        query(**{field: text})
    assert f"{PLACE}.{field}" in str(caught.value)


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "kind", "api_version"])
def test_a_variable_that_cannot_be_resolved_is_an_error(field):
    with pytest.raises(EvaluationError, match=r"request\.object\.missing"):
        query(**{field: "{{ request.object.missing }}"})


@pytest.mark.parametrize("field", ["api_version", "kind", "uid"])
@pytest.mark.parametrize("source", ["spec.empty", "spec.number", "metadata"])
def test_a_field_that_does_not_resolve_to_a_non_empty_string_is_an_error(field, source):
    with pytest.raises(EvaluationError, match="not to a non-empty string"):
        query(**{field: f"{{{{ request.object.{source} }}}}"})


@pytest.mark.parametrize("source", ["metadata", "metadata.labels"])
def test_a_name_that_resolves_to_a_map_is_an_error(source):
    with pytest.raises(EvaluationError, match="expected a string"):
        query(name=f"{{{{ request.object.{source} }}}}")


def test_a_kind_can_come_from_an_object():
    assert query(kind="{{ request.object.spec.kind }}").kind == "Secret"


@pytest.mark.parametrize("field", ["api_version", "kind"])
def test_a_wildcard_for_kinds_cannot_come_from_an_object(field):
    with pytest.raises(EvaluationError, match="wildcard"):
        query(**{field: "{{ request.object.spec.star }}"})


def test_the_policy_can_use_a_wildcard_for_groups():
    assert query(api_version="*").api_version == "*"


def test_a_uid_must_match():
    found = query(uid="u1", name="web")
    assert found.accepts(thing(uid="u1"))
    assert not found.accepts(thing(uid="u2"))
    assert not found.accepts(thing())


class TestSelector:
    def test_labels_of_a_selector_must_match(self):
        found = query(selector={"matchLabels": {"app": "web"}}, name="web")
        assert found.selector.server == "app=web"
        assert found.accepts(thing(labels={"app": "web"}))
        assert not found.accepts(thing(labels={"app": "other"}))
        assert not found.accepts(thing())

    def test_expressions_of_a_selector_must_match(self):
        expression = {"key": "app", "operator": "In", "values": ["a", "b"]}
        found = query(selector={"matchExpressions": [expression]})
        assert found.accepts(thing(labels={"app": "b"}))
        assert not found.accepts(thing(labels={"app": "c"}))

    def test_variables_in_a_selector_are_replaced(self):
        found = query(selector={"matchLabels": {"app": "{{ request.object.metadata.name }}"}})
        assert found.selector.server == "app=web"

    @pytest.mark.parametrize("value", ["*", "{{ request.object.spec.star }}"])
    def test_a_selector_has_no_wildcards(self, value):
        found = query(selector={"matchLabels": {"app": value}})
        assert not found.accepts(thing(labels={"app": "web"}))

    def test_a_value_that_no_label_can_have_is_an_error(self):
        with pytest.raises(EvaluationError, match="'web x' is not a valid label value"):
            query(selector={"matchLabels": {"app": "{{ request.object.metadata.name }} x"}})

    def test_a_value_that_is_not_a_selector_is_an_error(self):
        with pytest.raises(EvaluationError, match=r"targets\[1\]\.selector"):
            query(selector={"matchLabels": "{{ request.object.spec.empty }}"})


class TestNamespacedPolicy:
    @pytest.mark.parametrize("fields", [{}, {"namespace": "own"}, {"name": "*"}])
    def test_targets_of_a_namespaced_policy_are_in_its_own_namespace(self, fields):
        found = query(policy_namespace="own", **fields)
        assert (found.namespace.text, found.namespace.exact) == ("own", True)
        assert found.accepts(thing(namespace="own"))
        assert not found.accepts(thing())
        assert not found.accepts({"metadata": {"name": "web"}})

    def test_a_variable_cannot_set_another_namespace(self):
        found = query(policy_namespace="own", namespace="{{ request.object.metadata.namespace }}")
        assert found.namespace.text == "own"


def test_only_the_namespace_pattern_star_accepts_a_cluster_scoped_object():
    node = {"metadata": {"name": "node"}}
    assert query(namespace="*").accepts(node)
    assert not query(namespace="?*").accepts(node)
    assert not query(namespace="shop").accepts(node)


@pytest.mark.parametrize("value", ["x/secrets/y", "..", "a%2Fb"])
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_a_name_that_no_object_can_have_is_an_error(field, value):
    compiled = compile_template("{{ request.name }}")
    parts = {"api_version": compile_template("v1"), "kind": compile_template("Secret")}
    target = Target(location=PLACE, **parts, **{field: compiled})
    with pytest.raises(EvaluationError, match="no object has such a name"):
        resolve(1, target, Context({"request": {"name": value}}), policy_namespace="")


@pytest.mark.parametrize(
    ("entries", "confidential"),
    [
        ([("a", SECRET), ("b", "{{ a }}")], True),
        ([("a", SECRET), ("b", "{{ a }}"), ("a", "x")], True),
        ([("a", SECRET), ("a", "x"), ("b", "{{ a }}")], False),
        ([("b", SECRET), ("b", "{{ request.name }}")], False),
    ],
)
def test_a_name_may_reveal_content_through_the_entries_before_each_entry(
    entries: list[tuple[str, str]], confidential: bool
) -> None:
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Secret"]}}]},
        "context": [{"name": name, "variable": {"value": value}} for name, value in entries],
        "mutate": {
            "targets": [
                {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "{{ b }}"}
            ],
            "patchStrategicMerge": {"data": {"x": "y"}},
        },
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    targets = compile_policy(policy).programs[0].targets
    assert targets is not None
    assert targets.named_by_content(0) is confidential
