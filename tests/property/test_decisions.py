"""Laws of the parts of a rule that decide: wildcards, scalars, conditions, match."""

import fnmatch
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.dialects.kyverno import pattern
from reconciler.dialects.kyverno.match import compile_match
from reconciler.dialects.kyverno.preconditions import compile_conditions
from reconciler.dialects.kyverno.preconditions.operators import OPERATORS
from reconciler.engine.context import Context
from reconciler.engine.match import Decision, Subject, UserInfo
from reconciler.engine.values import scalars
from reconciler.engine.values.wildcard import (
    compile_any,
    compile_wildcard,
    escape,
    literal,
    matches,
)

texts = st.text("ab*?-.\n", max_size=8)
json_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
json_values = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(texts, st.text("ab-.\n", max_size=10))
def test_wildcards_agree_with_the_shell(wild: str, text: str) -> None:
    wanted = fnmatch.fnmatchcase(text, wild)
    assert matches(wild, text) is wanted
    assert compile_wildcard(wild)(text) is wanted


@given(texts, texts)
def test_escaped_text_matches_only_itself(one: str, other: str) -> None:
    assert literal(escape(one)) == one
    assert matches(escape(one), other) is (one == other)


@given(st.lists(texts, max_size=4), texts)
def test_several_wildcards_match_what_any_of_them_matches(patterns: list[str], text: str) -> None:
    assert compile_any(patterns)(text) is any(matches(one, text) for one in patterns)


@given(st.text("+-.0123456789eEinumkKMGTPhs", max_size=12))
def test_parsers_of_scalars_never_raise(text: str) -> None:
    scalars.parse_duration(text)
    scalars.parse_quantity(text)
    scalars.parse_semver(text)
    scalars.parse_int(text)
    scalars.parse_float(text)


@given(st.integers(-(10**6), 10**6), st.sampled_from(["n", "u", "m", "", "k", "Ki", "Mi", "G"]))
def test_a_quantity_is_its_number_times_its_unit(number: int, unit: str) -> None:
    one, many = scalars.parse_quantity(f"1{unit}"), scalars.parse_quantity(f"{number}{unit}")
    assert one is not None
    assert many is not None
    assert many.nano == number * one.nano


@given(json_values, json_values)
def test_operators_return_a_boolean_for_all_values(key: Any, value: Any) -> None:
    assert {type(operator(key, value)) for operator in OPERATORS.values()} == {bool}


@given(json_values.filter(lambda key: key is not None), json_values)
def test_not_equals_is_the_opposite_of_equals(key: Any, value: Any) -> None:
    assert OPERATORS["Equals"](key, value) is not OPERATORS["NotEquals"](key, value)


@given(json_values, json_values)
def test_in_and_not_in_operators_never_both_hold(key: Any, value: Any) -> None:
    scalar = not isinstance(key, list)
    if scalar:
        assert not (OPERATORS["AnyIn"](key, value) and OPERATORS["AnyNotIn"](key, value))
    if scalar or key:
        assert not (OPERATORS["AllIn"](key, value) and OPERATORS["AllNotIn"](key, value))


@given(json_values, json_values)
def test_patterns_return_a_boolean_for_all_values(resource: Any, wanted: Any) -> None:
    assert pattern.match_pattern(resource, wanted) in (True, False)
    assert pattern.matches(resource, wanted) in (True, False)


@given(st.text(min_size=1), st.text(min_size=1))
def test_data_is_never_a_pattern(one: str, other: str) -> None:
    key, value = "{{ request.object.one }}", ["{{ request.object.other }}"]
    raw = [{"key": key, "operator": "AnyIn", "value": value}]
    conditions = compile_conditions(raw, location="preconditions")
    context = Context({"request": {"object": {"one": one, "other": other}}})
    assert conditions.evaluate(context).passed is (one == other)


parts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"kinds": st.sampled_from([["Pod"], ["*"], ["v1/Node"], ["P*", "apps/v1/Deployment"]])},
    optional={
        "names": st.lists(st.sampled_from(["a", "b*", "?"]), max_size=2),
        "namespaces": st.lists(st.sampled_from(["x", "y*"]), max_size=2),
        "operations": st.lists(st.sampled_from(["CREATE", "DELETE"]), max_size=2),
        "namespaceSelector": st.just({"matchLabels": {"env": "prod"}}),
    },
)
filters = st.fixed_dictionaries(
    {"resources": parts},
    optional={"roles": st.just(["x:r"]), "subjects": st.just([{"kind": "User", "name": "u*"}])},
)
blocks = st.tuples(st.sampled_from(["any", "all"]), st.lists(filters, min_size=1, max_size=3)).map(
    lambda pair: {pair[0]: pair[1]}
)


@given(
    match=blocks,
    exclude=st.none() | blocks,
    kind=st.sampled_from(["Pod", "Node", "Deployment"]),
    name=st.sampled_from(["a", "bb", "ccc"]),
    operation=st.sampled_from(["", "CREATE", "DELETE"]),
    username=st.sampled_from(["", "user"]),
    roles=st.sampled_from([(), ("x:r",)]),
    labels=st.sampled_from([{}, {"env": "prod"}]),
)
def test_further_data_never_reverses_a_decision(
    *,
    match: Any,
    exclude: Any,
    kind: str,
    name: str,
    operation: str,
    username: str,
    roles: tuple[str, ...],
    labels: dict[str, str],
) -> None:
    matcher = compile_match(match, exclude, location="spec.rules[0]")

    def decide(known_roles: tuple[str, ...] | None, known: dict[str, str] | None) -> Decision:
        user = UserInfo(username=username, roles=known_roles) if username else None
        return matcher.evaluate(
            Subject(
                obj={"metadata": {"name": name}},
                group="",
                version="v1",
                kind=kind,
                name=name,
                namespace="x",
                operation=operation,
                user=user,
                namespace_labels=known,
            )
        ).decision

    final = decide(roles, labels)
    assert final is not Decision.UNDECIDED
    for early in (decide(None, None), decide(None, labels), decide(roles, None)):
        assert early in (final, Decision.UNDECIDED)
