import pytest

from reconciler.dialects.kyverno.targets import Target, resolve
from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.context import Context
from reconciler.errors import EvaluationError

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


def test_plain_text_means_itself():
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
def test_a_wildcard_of_the_policy_is_one(pattern):
    found = query(name=pattern, namespace="sh*")
    assert not found.name.exact
    assert found.accepts(thing())
    assert not found.accepts(thing(namespace="other"))


def test_a_wildcard_may_stand_beside_a_variable():
    found = query(name="{{ request.object.metadata.name }}-*")
    assert found.accepts(thing("web-1"))
    assert not found.accepts(thing("wax-1"))


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize("source", ["spec.star", "spec.query", "metadata.labels.tier"])
def test_a_wildcard_out_of_an_object_is_literal(field, source):
    found = getattr(query(**{field: f"{{{{ request.object.{source} }}}}"}), field)
    assert found.exact
    assert not found.accepts("web")
    assert found.accepts(found.text)
    assert found.text in {"*", "w?b", "x*"}


def test_a_wildcard_out_of_an_object_stays_literal_beside_one_of_the_policy():
    found = query(name="{{ request.object.spec.star }}-?")
    assert found.accepts(thing("*-1"))
    assert not found.accepts(thing("web-1"))


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize(
    "text", ["{{ request.object.spec.empty }}", "{{ request.object.metadata.labels.no || '' }}"]
)
def test_what_resolves_to_nothing_is_never_all(field, text):
    with pytest.raises(EvaluationError, match="never means all") as caught:
        query(**{field: text})
    assert f"{PLACE}.{field}" in str(caught.value)


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "kind", "api_version"])
def test_what_does_not_resolve_is_an_error(field):
    with pytest.raises(EvaluationError, match=r"request\.object\.missing"):
        query(**{field: "{{ request.object.missing }}"})


@pytest.mark.parametrize("field", ["api_version", "kind", "uid"])
@pytest.mark.parametrize("source", ["spec.empty", "spec.number", "metadata"])
def test_parts_that_are_no_text_are_refused(field, source):
    with pytest.raises(EvaluationError, match="not to a non-empty string"):
        query(**{field: f"{{{{ request.object.{source} }}}}"})


@pytest.mark.parametrize("source", ["metadata", "metadata.labels"])
def test_a_name_is_not_made_of_a_map(source):
    with pytest.raises(EvaluationError, match="expected a string"):
        query(name=f"{{{{ request.object.{source} }}}}")


def test_a_kind_may_come_out_of_an_object():
    assert query(kind="{{ request.object.spec.kind }}").kind == "Secret"


@pytest.mark.parametrize("field", ["api_version", "kind"])
def test_every_kind_is_never_asked_for_by_an_object(field):
    with pytest.raises(EvaluationError, match="wildcard"):
        query(**{field: "{{ request.object.spec.star }}"})


def test_every_group_may_be_asked_for_by_the_policy():
    assert query(api_version="*").api_version == "*"


def test_a_uid_counts():
    found = query(uid="u1", name="web")
    assert found.accepts(thing(uid="u1"))
    assert not found.accepts(thing(uid="u2"))
    assert not found.accepts(thing())


class TestSelector:
    def test_labels_count(self):
        found = query(selector={"matchLabels": {"app": "web"}}, name="web")
        assert found.selector.server == "app=web"
        assert found.accepts(thing(labels={"app": "web"}))
        assert not found.accepts(thing(labels={"app": "other"}))
        assert not found.accepts(thing())

    def test_expressions_count(self):
        expression = {"key": "app", "operator": "In", "values": ["a", "b"]}
        found = query(selector={"matchExpressions": [expression]})
        assert found.accepts(thing(labels={"app": "b"}))
        assert not found.accepts(thing(labels={"app": "c"}))

    def test_variables_are_replaced(self):
        found = query(selector={"matchLabels": {"app": "{{ request.object.metadata.name }}"}})
        assert found.selector.server == "app=web"

    @pytest.mark.parametrize("value", ["*", "{{ request.object.spec.star }}"])
    def test_it_knows_no_wildcards(self, value):
        found = query(selector={"matchLabels": {"app": value}})
        assert not found.accepts(thing(labels={"app": "web"}))

    def test_a_value_that_no_label_can_have_is_an_error(self):
        with pytest.raises(EvaluationError, match="'web x' is not a valid label value"):
            query(selector={"matchLabels": {"app": "{{ request.object.metadata.name }} x"}})

    def test_what_does_not_make_one_is_an_error(self):
        with pytest.raises(EvaluationError, match=r"targets\[1\]\.selector"):
            query(selector={"matchLabels": "{{ request.object.spec.empty }}"})


class TestNamespacedPolicy:
    @pytest.mark.parametrize("fields", [{}, {"namespace": "own"}, {"name": "*"}])
    def test_it_never_leaves_its_namespace(self, fields):
        found = query(policy_namespace="own", **fields)
        assert (found.namespace.text, found.namespace.exact) == ("own", True)
        assert found.accepts(thing(namespace="own"))
        assert not found.accepts(thing())
        assert not found.accepts({"metadata": {"name": "web"}})

    def test_another_namespace_is_not_taken_from_a_variable(self):
        found = query(policy_namespace="own", namespace="{{ request.object.metadata.namespace }}")
        assert found.namespace.text == "own"


def test_what_has_no_namespace_is_in_none():
    assert not query(namespace="*").accepts({"metadata": {"name": "node", "namespace": None}}) or (
        query(namespace="?*").accepts({"metadata": {"name": "node"}}) is False
    )
    assert not query(namespace="shop").accepts({"metadata": {"name": "node"}})


@pytest.mark.parametrize("value", ["x/secrets/y", "..", "a%2Fb"])
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_a_name_that_would_lead_elsewhere_is_an_error(field, value):
    compiled = compile_template("{{ request.name }}")
    parts = {"api_version": compile_template("v1"), "kind": compile_template("Secret")}
    target = Target(location=PLACE, **parts, **{field: compiled})
    with pytest.raises(EvaluationError, match="no object has such a name"):
        resolve(1, target, Context({"request": {"name": value}}), policy_namespace="")
