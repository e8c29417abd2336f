from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.engine.chain import Chain, Group, Step, StepResult, by_policy
from reconciler.engine.context import Context
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.loads import ConfigMapLoad, NeedsLoad
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.program import Program
from reconciler.errors import EvaluationError, RetrofitError
from tests.unit.engine.rules import Says, label, make_exception, make_rule, run_of

LOAD = ConfigMapLoad(namespace="ns", name="settings")


def make_object(**labels: str) -> Object:
    meta = {"name": "c", "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"]["labels"]
    return labels


def alone(*programs: Program) -> tuple[Group, ...]:
    return tuple((program,) for program in programs)


def drive(
    groups: Iterable[Group],
    obj: Object,
    *exceptions: PolicyException,
    ignored: frozenset[str] = frozenset(),
) -> Chain:
    """Run a chain as a driver that leaves out the ignored policies when they fail."""
    chain = Chain(groups=groups, obj=obj)
    for step in chain.steps():
        program = step.program
        result = settled(chain, step, program, exceptions)
        if result.status is RuleStatus.ERROR and result.policy.name in ignored:
            chain.leave_out(result.policy)
    return chain


def settled(
    chain: Chain, step: Step, program: Program, exceptions: Iterable[PolicyException]
) -> StepResult:
    loads: dict[Any, Any] = {}
    while True:
        try:
            result = step.evaluate(lambda seen: run_of(program, seen, *exceptions, loads=loads))
        except NeedsLoad as need:
            loads.update({load: {"data": {"team": "blue"}} for load in need.loads})
            continue
        except RetrofitError as error:
            result = step.failed(error)
        chain.settle(result)
        return result


def reported(chain: Chain) -> list[tuple[str, str, str]]:
    return [(item.policy.key, item.rule, item.status.value) for item in chain.results]


def test_each_rule_sees_the_changes_of_the_one_before():
    given = make_object(a="1")
    chain = drive(
        alone(
            make_rule("first", label(b="1"), match={"a": "1"}),
            make_rule("second", label(c="1"), match={"b": "1"}),
            make_rule(
                "third",
                label(d="1"),
                condition=lambda seen: "c" in labels_of(seen.data["request"]["object"]),
            ),
            make_rule("fourth", label(e="1"), match={"z": "1"}),
        ),
        given,
    )
    assert labels_of(chain.obj) == {"a": "1", "b": "1", "c": "1", "d": "1"}
    assert [item.status for item in chain.results] == ["pass", "pass", "pass", "skip"]
    last = chain.results[-1]
    assert (last.matched, last.fired, last.message) == (False, False, "no label z=1")
    assert given == make_object(a="1")


def test_a_rule_that_changes_nothing_is_reported_as_unchanged():
    chain = drive(alone(make_rule("same", label(a="1"))), make_object(a="1"))
    (result,) = chain.results
    assert (result.status, result.unchanged, result.fired) == (RuleStatus.SKIP, True, True)


def test_rules_of_a_group_are_matched_on_one_object_and_applied_in_sequence():
    group = (
        make_rule("first", label(x="first"), policy="a", match={"go": "1"}),
        make_rule("second", label(go="0"), policy="b", match={"go": "1"}),
        make_rule(
            "third",
            lambda seen, obj: label(y=labels_of(seen.data["request"]["object"])["x"])(seen, obj),
            policy="c",
            match={"go": "1"},
        ),
        make_rule("fourth", label(z="1"), policy="d", match={"x": "first"}),
    )
    chain = drive([group], make_object(go="1"))
    assert labels_of(chain.obj) == {"go": "0", "x": "first", "y": "first"}
    assert not chain.results[-1].matched
    (later,) = alone(make_rule("fifth", label(z="1"), policy="e", match={"x": "first"}))
    assert labels_of(drive([group, later], make_object(go="1")).obj)["z"] == "1"


def test_names_of_a_rule_are_not_visible_to_the_next():
    seen: list[bool] = []

    def note(context: Context, obj: Object) -> Object:
        seen.append("team" in context.view(frozenset({"team"})))
        return obj

    drive(
        alone(make_rule("first", note, names={"team": lambda _: "blue"}), make_rule("next", note)),
        make_object(),
    )
    assert seen == [True, False]


def test_a_step_is_evaluated_again_with_the_data_it_needs():
    def team(context: Context) -> Any:
        if LOAD not in context.loads:
            raise NeedsLoad(LOAD)
        return context.loads[LOAD]["data"]["team"]

    def change(context: Context, obj: Object) -> Object | Any:
        return label(team=context.view(frozenset({"team"}))["team"])(context, obj)

    rules = alone(make_rule("one", label(a="1")), make_rule("two", change, names={"team": team}))
    chain = drive(rules, make_object())
    assert labels_of(chain.obj) == {"a": "1", "team": "blue"}
    assert len(chain.results) == len(rules)


def first_only(*programs: Program) -> tuple[Group, ...]:
    made: list[Program] = []
    for program in programs:
        made.append(replace(program, before=tuple(made)))
    return alone(*made)


def test_apply_rules_one_stops_after_the_first_rule_that_changes_something():
    chain = drive(
        first_only(
            make_rule("same", label(a="1")),
            make_rule("first", label(b="1")),
            make_rule("second", label(c="1")),
        )
        + alone(make_rule("other", label(d="1"), policy="q")),
        make_object(a="1"),
    )
    assert labels_of(chain.obj) == {"a": "1", "b": "1", "d": "1"}
    assert reported(chain) == [
        ("p", "same", "skip"),
        ("p", "first", "pass"),
        ("q", "other", "pass"),
    ]


def test_an_exception_is_matched_on_the_object_as_earlier_rules_left_it():
    chain = drive(
        alone(make_rule("first", label(b="1")), make_rule("second", label(c="1"))),
        make_object(),
        make_exception("p", "second", b="1"),
    )
    assert labels_of(chain.obj) == {"b": "1"}
    skipped = chain.results[-1]
    assert (skipped.status, skipped.matched, skipped.fired) == (RuleStatus.SKIP, True, False)
    assert "ns/except" in skipped.message


def fail(_: Context, __: Object) -> Object:
    raise EvaluationError("no such key: secret").bare("a variable has no value")


def unevaluable(_: Context) -> bool:
    raise EvaluationError("cannot be compared")


@pytest.mark.parametrize(
    "failing",
    [make_rule("bad", fail, policy="b"), make_rule("bad", policy="b", condition=unevaluable)],
)
def test_a_failing_rule_changes_nothing_and_the_next_rules_run(failing):
    rules = alone(
        make_rule("one", label(a="1"), policy="a"),
        make_rule("two", label(b="1"), policy="b"),
        failing,
        make_rule("four", label(d="1"), policy="b"),
        make_rule("five", label(e="1"), policy="c"),
    )
    chain = drive(rules, make_object())
    assert labels_of(chain.obj) == {"a": "1", "b": "1", "d": "1", "e": "1"}
    assert chain.results[2].status is RuleStatus.ERROR

    chain = drive(rules, make_object(), ignored=frozenset({"b"}))
    assert labels_of(chain.obj) == {"a": "1", "e": "1"}
    assert reported(chain) == [
        ("a", "one", "pass"),
        ("b", "two", "pass"),
        ("b", "bad", "error"),
        ("c", "five", "pass"),
    ]
    assert {policy.name for policy in chain.left_out} == {"b"}


def test_the_changes_of_each_failing_policy_that_is_left_out_are_undone():
    rules = alone(
        make_rule("one", label(a="1"), policy="a"),
        make_rule("same", label(a="1"), policy="b"),
        make_rule("bad", fail, policy="b"),
        make_rule("two", label(c="1"), policy="c"),
        make_rule("three", label(c="2"), policy="c"),
        make_rule("bad", fail, policy="c"),
        make_rule("bad", fail, policy="d"),
        make_rule("four", label(e="1"), policy="e"),
    )
    chain = drive(rules, make_object(), ignored=frozenset("bcd"))
    assert labels_of(chain.obj) == {"a": "1", "e": "1"}


def test_an_error_has_a_text_without_values():
    (result,) = drive(alone(make_rule("bad", fail)), make_object()).results
    assert (result.message, result.bare) == ("no such key: secret", "a variable has no value")
    assert result.after == make_object()


def test_a_policy_whose_changes_others_have_seen_cannot_be_left_out():
    chain = drive(
        alone(
            make_rule("one", label(a="1"), policy="a"), make_rule("two", label(b="1"), policy="b")
        ),
        make_object(),
    )
    with pytest.raises(ValueError, match="policy a"):
        chain.leave_out(chain.results[0].policy)


def test_a_rule_with_targets_is_settled_by_the_caller():
    far = make_rule("far", targets=True)
    chain = Chain(
        groups=alone(far, make_rule("near", label(a="1"), before=(far,))), obj=make_object()
    )
    for step in chain.steps():
        chain.settle(
            StepResult(
                program=step.program, status=RuleStatus.SKIP, message="", after={}, fired=True
            )
        )
    assert reported(chain) == [("p", "far", "skip")]
    assert chain.obj == make_object()


def test_policies_are_ordered_by_key_and_rules_as_written():
    rules = [
        make_rule("z", policy="b"),
        make_rule("a", policy="b"),
        make_rule("m", policy="a"),
    ]
    order = [[program.rule for program in group] for group in by_policy(rules)]
    assert order == [["m"], ["z"], ["a"]]


def test_rules_of_a_tier_are_matched_on_one_object_and_lower_tiers_come_first() -> None:
    rules = [
        make_rule("late", label(d="1"), policy="a", tier=1, match={"b": "1", "c": "1"}),
        make_rule("twin", label(c="1"), policy="z", tier=-5),
        make_rule("blind", label(e="1"), policy="z2", tier=-5, match={"c": "1"}),
        make_rule("first", label(b="1"), policy="x"),
    ]
    groups = by_policy(rules)
    order = [[program.rule for program in group] for group in groups]
    assert order == [["first"], ["twin", "blind"], ["late"]]
    chain = drive(groups, make_object())
    assert labels_of(chain.obj) == {"b": "1", "c": "1", "d": "1"}


def test_verdicts_come_last_and_see_the_changes_of_other_rules() -> None:
    rules = [
        make_rule("no", policy="a", tier=0, match={"team": "blue"}, verdict=Says()),
        make_rule("yes", policy="b", tier=0, match={"team": "red"}, verdict=Says()),
        make_rule("paint", label(team="blue"), policy="c", tier=9),
    ]
    chain = drive(by_policy(rules), make_object(team="green"))
    assert reported(chain) == [("c", "paint", "pass"), ("a", "no", "fail"), ("b", "yes", "skip")]
    assert chain.results[1].message == "it belongs to blue"
    assert "blue" not in chain.results[1].bare
    assert chain.results[1].fired
    assert labels_of(chain.obj) == {"team": "blue"}


@pytest.mark.parametrize("made", ["text", None, {"metadata": "text"}, {"metadata": ["x"]}])
def test_a_result_that_is_not_an_object_is_an_error_and_not_passed_on(made: Any) -> None:
    broken = make_rule("break", lambda _context, _obj: made)
    chain = drive(alone(broken, make_rule("next", label(b="1"))), make_object())
    assert reported(chain) == [("p", "break", "error"), ("p", "next", "pass")]
    assert "something that is not an object" in chain.results[0].message
    assert labels_of(chain.obj) == {"b": "1"}
