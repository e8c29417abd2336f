"""The program that writes a Pod's node when the Pod is bound, for rules that read the node."""

from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.dialects.kubemod import KUBEMOD
from reconciler.engine.context import request_context
from reconciler.engine.match import Decision, Subject
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import SHIPPED
from reconciler.engine.program import Phase, Program
from tests.unit.dialects.kubemod.modrules import POD, make_pod, modrule

BINDING: Object = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "web-1", "namespace": "shop"},
    "target": {"kind": "Node", "name": "n1"},
}
ASKS = {"ref.kubemod.io/inject-node-ref": "true"}
ZONE: dict[str, Any] = {
    "type": "Patch",
    "match": [POD, {"select": "$.syntheticRefs.node.metadata.labels.zone"}],
    "patch": [{"op": "add", "path": "/metadata/labels/zone", "value": "x"}],
}


def programs(*match: Any, **fields: Any) -> tuple[Program, ...]:
    given = {**ZONE, **({"match": [POD, *match]} if match else {}), **fields}
    return KUBEMOD.compile(modrule(**given)).programs


def on_binding(namespace: str = "shop", **fields: Any) -> Program:
    _, program = programs(**fields, namespace=namespace)
    return program


def subject(namespace: str = "shop", **labels: str) -> Subject:
    return Subject(
        obj=BINDING,
        group="",
        version="v1",
        kind="Pod",
        subresource="binding",
        name="web-1",
        namespace=namespace,
        operation="CREATE",
        namespace_labels=labels,
    )


def made(obj: Object, binding: Object = BINDING) -> Any:
    """Return the Pod after its binding is stored."""
    context = request_context(
        operation="CREATE",
        obj=binding,
        old_object=None,
        name="web-1",
        namespace="shop",
        kind=("", "v1", "Pod"),
        user_info=None,
    )
    program = on_binding()
    assert program.targets is not None
    ((query,), errors) = program.targets.queries(context)
    assert not errors
    assert query.namespace is not None
    assert query.name is not None
    named = (query.api_version, query.kind, query.namespace.text, query.name.text)
    assert named == ("v1", "Pod", "shop", "web-1")
    return program.mutation.apply(0, context, obj, SHIPPED)


def asking(**fields: Any) -> Object:
    found = make_pod(**fields)
    return {**found, "metadata": {**found["metadata"], "annotations": ASKS}}


def node_of(obj: Any) -> str | None:
    assert not isinstance(obj, Unmet)
    found: str | None = obj["metadata"]["annotations"].get("ref.kubemod.io/nodename")
    return found


@pytest.mark.parametrize(
    ("item", "count"),
    [
        ({"select": "$.syntheticRefs.node.metadata.labels.zone"}, 2),
        ({"select": "$.syntheticRefs"}, 2),
        ({"select": '$.metadata.annotations["ref.kubemod.io/nodename"]'}, 2),
        ({"select": "$.syntheticRefs.namespace.metadata.name"}, 1),
        ({"select": "$.metadata.name"}, 1),
    ],
)
def test_only_rules_that_read_the_node_get_a_program_on_bindings(item: Object, count: int) -> None:
    assert len(programs(item)) == count


def test_a_rule_that_matches_no_pods_gets_no_program_on_bindings() -> None:
    rule = [{"select": "$.kind", "matchValue": "Deployment"}, ZONE["match"][1]]
    assert len(KUBEMOD.compile(modrule(**{**ZONE, "match": rule})).programs) == 1
    assert len(programs(namespace="kubemod-system")) == 1
    assert len(programs(namespace="kubemod-system", targetNamespaceRegex=".*")) == 2


def test_the_binding_program_matches_the_namespaces_of_its_rule() -> None:
    program = on_binding()
    assert program.phases == {Phase.TRIGGERED}
    assert program.match.evaluate(subject()).decision is Decision.MATCH
    assert program.match.evaluate(subject("other")).decision is Decision.NO_MATCH
    ignored = {"admission.kubemod.io/ignore": "true"}
    assert program.match.evaluate(subject(**ignored)).decision is Decision.NO_MATCH
    fitting = on_binding("kubemod-system", targetNamespaceRegex="^sh")
    assert fitting.match.evaluate(subject()).decision is Decision.MATCH
    assert fitting.match.evaluate(subject("other")).decision is Decision.NO_MATCH
    (change, _) = programs()
    assert change.match.evaluate(subject()).decision is Decision.NO_MATCH


def test_the_node_is_written_on_pods_that_request_it() -> None:
    once = made(asking())
    assert node_of(once) == "n1"
    assert made(once) == once
    unasked = made(make_pod())
    assert isinstance(unasked, Unmet)
    assert "inject-node-ref" in unasked.reason


def test_the_node_in_the_pod_spec_wins_over_the_node_of_the_binding() -> None:
    assert node_of(made(asking(spec={"nodeName": "n2", "containers": []}))) == "n2"


@pytest.mark.parametrize("name", ["", "../secrets/x", 1, None])
def test_an_invalid_node_name_is_not_written(name: Any) -> None:
    assert isinstance(made(asking(), {**BINDING, "target": {"name": name}}), Unmet)


def test_the_binding_program_needs_rights_on_pods_where_the_rule_applies() -> None:
    for namespace, place, fields in (
        ("shop", "shop", {}),
        ("kubemod-system", "", {"targetNamespaceRegex": ".*"}),
    ):
        program = on_binding(namespace, **fields)
        assert program.targets is not None
        (need,) = program.targets.target_rights()
        assert (need.kind, need.namespaces, need.named) == ("Pod", (place,), True)
