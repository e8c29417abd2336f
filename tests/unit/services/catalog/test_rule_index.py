"""The rule index finds all rules that may match an admission request, and few others."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.engine.match import Decision, Subject
from reconciler.engine.program import Phase
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.rule_index import Known


def policy(name: str, match: Object, namespace: str = "") -> Object:
    """Return a policy with one rule that changes its trigger."""
    meta: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "generation": 1}
    rule = {
        "name": "r",
        "match": match,
        "mutate": {"patchStrategicMerge": {"metadata": {"annotations": {"a": "b"}}}},
    }
    if namespace:
        meta["namespace"] = namespace
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": meta,
        "spec": {"rules": [rule]},
    }


def filtered(**resources: Any) -> Object:
    return {"resources": {"kinds": ["ConfigMap"], **resources}}


def labelled(**labels: str) -> Object:
    return filtered(selector={"matchLabels": labels})


def homed(**labels: str) -> Object:
    return filtered(namespaceSelector={"matchLabels": labels})


def stored(matches: Mapping[str, Object]) -> PolicyStore:
    store = PolicyStore()
    for name, match in matches.items():
        result = store.apply(policy(name, match))
        assert not isinstance(result, Exception), result
    return store


def known(
    name: str = "c",
    labels: Mapping[str, str] | None = None,
    home: Mapping[str, str] | None = None,
    namespace: str = "a",
) -> Known:
    return Known(
        kind="ConfigMap",
        subresource="",
        namespace=namespace,
        name=name,
        labels=labels,
        namespace_labels=home,
    )


def found(store: PolicyStore, asked: Known) -> list[str]:
    return [item.policy.key for item in store.rules(asked, Phase.ADMISSION)]


class TestLabels:
    @pytest.fixture
    def store(self) -> PolicyStore:
        return stored(
            {
                "any": {"any": [labelled(app="x"), labelled(app="y", tier="web")]},
                "both": {"all": [labelled(app="x"), homed(env="prod")]},
                "home": {"any": [homed(env="prod")]},
                "open": {"any": [labelled(app="x"), filtered()]},
                "rest": {"any": [labelled(app="z"), labelled(app="z*")]},
            }
        )

    @pytest.mark.parametrize(
        ("labels", "home", "expected"),
        [
            ({}, {}, ["open", "rest"]),
            ({"app": "x"}, {}, ["any", "both", "open", "rest"]),
            ({"app": "y"}, {}, ["any", "open", "rest"]),
            ({"tier": "web"}, {}, ["open", "rest"]),
            ({}, {"env": "prod"}, ["home", "open", "rest"]),
            (None, {}, ["any", "both", "open", "rest"]),
            (None, None, ["any", "both", "home", "open", "rest"]),
        ],
    )
    def test_rules_are_found_by_a_label_that_every_match_requires(
        self, store, labels, home, expected
    ):
        assert found(store, known(labels=labels, home=home)) == expected

    def test_a_rule_is_indexed_by_the_rarest_of_its_required_labels(self):
        store = stored({f"p{at}": {"any": [labelled(env="prod", app=str(at))]} for at in range(9)})
        assert found(store, known(labels={"env": "prod", "app": "4"})) == ["p4"]
        assert found(store, known(labels={"env": "prod"})) == []

    def test_turns_on_reports_whether_any_rule_depends_on_a_label(self, store):
        turns_on = store.in_phase(Phase.ADMISSION).turns_on
        assert turns_on("ConfigMap", [("app", "x")])
        assert not turns_on("ConfigMap", [("app", "z")])
        assert not turns_on("Secret", [("app", "x")])


def test_names_and_namespaces_take_precedence_over_labels():
    store = stored(
        {
            "name": {"any": [filtered(names=["c"], selector={"matchLabels": {"a": "b"}})]},
            "place": {"any": [filtered(namespaces=["a"])]},
            "wild": {"any": [{"resources": {"kinds": ["Config*"], "namespaces": ["a"]}}]},
        }
    )
    assert found(store, known(labels={})) == ["name", "place", "wild"]
    assert found(store, known("other", labels={})) == ["place", "wild"]
    assert found(store, known("", labels={}, namespace="b")) == ["name"]
    assert found(store, known(labels={}, namespace="")) == ["name", "place", "wild"]


PARTS: tuple[Object, ...] = (
    labelled(app="x"),
    labelled(app="x", tier="web"),
    labelled(app="*"),
    filtered(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
    homed(env="prod"),
    filtered(namespaceSelector={"matchLabels": {"e*": "prod"}}),
    filtered(names=["c"]),
    filtered(namespaces=["a"], selector={"matchLabels": {"tier": "web"}}),
)


def test_every_matching_rule_is_found():
    matches = {
        f"{form}-{at}": {form: list(pair)}
        for form in ("any", "all")
        for at, pair in enumerate(itertools.combinations_with_replacement(PARTS, 2))
    }
    store = stored(matches)
    every = {item.key: item.in_phase(Phase.ADMISSION)[0] for item in store.policies()}
    for name, namespace, labels, home in itertools.product(
        ("c", "d"),
        ("a", "b"),
        ({}, {"app": "x"}, {"tier": "web"}, {"app": "x", "tier": "web"}),
        ({}, {"env": "prod"}),
    ):
        subject = Subject(
            obj={"metadata": {"name": name, "labels": labels}},
            group="",
            version="v1",
            kind="ConfigMap",
            name=name,
            namespace=namespace,
            operation="CREATE",
            namespace_labels=home,
        )
        meant = [
            key
            for key, program in every.items()
            if program.match.evaluate(subject).decision is not Decision.NO_MATCH
        ]
        asked = found(store, known(name, labels, home, namespace))
        assert [key for key in asked if key in meant] == meant
