from dataclasses import replace

import pytest

from reconciler.engine.context import Context
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.match import Decision
from reconciler.errors import EvaluationError
from tests.unit.engine.rules import Holds, make_exception, make_rule, run_of

OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "1"}}}
MATCH, NO_MATCH, UNDECIDED = Decision.MATCH, Decision.NO_MATCH, Decision.UNDECIDED


def holds(_: Context) -> bool:
    return True


def does_not(_: Context) -> bool:
    return False


def fails(_: Context) -> bool:
    raise EvaluationError("it cannot be compared")


@pytest.mark.parametrize(
    ("matched", "condition", "decidable", "decision"),
    [
        (MATCH, None, True, MATCH),
        (MATCH, holds, True, MATCH),
        (MATCH, does_not, True, NO_MATCH),
        (MATCH, fails, True, UNDECIDED),
        (MATCH, does_not, False, UNDECIDED),
        (NO_MATCH, fails, True, NO_MATCH),
        (UNDECIDED, None, True, UNDECIDED),
        (UNDECIDED, holds, True, UNDECIDED),
        (UNDECIDED, does_not, True, NO_MATCH),
    ],
)
def test_match_and_condition_are_decided_early(matched, condition, decidable, decision):
    run = run_of(make_rule("r", decision=matched, condition=condition), OBJECT)
    assert run.decide_early(lambda _: decidable) is decision


def excepting(condition=None, **labels: str) -> PolicyException:
    conditions = None if condition is None else Holds(test=condition)
    return replace(make_exception("p", "r", **labels), conditions=conditions)


@pytest.mark.parametrize(
    ("exception", "decidable", "decision"),
    [
        (excepting(), True, NO_MATCH),
        (excepting(z="1"), True, MATCH),
        (excepting(holds), True, NO_MATCH),
        (excepting(does_not), True, MATCH),
        # An exception that cannot be evaluated does not apply.
        (excepting(fails), True, MATCH),
        (excepting(holds), False, UNDECIDED),
        (excepting(holds, z="1"), False, MATCH),
        (replace(excepting(), triggers=False), True, MATCH),
        (make_exception("p", "other"), True, MATCH),
    ],
)
def test_exceptions_are_decided_early(exception, decidable, decision):
    run = run_of(make_rule("r"), OBJECT, exception)
    assert run.decide_early(lambda _: decidable) is decision


def test_an_exception_that_may_be_gone_leaves_the_decision_open():
    run = run_of(make_rule("r"), OBJECT, excepting())
    assert run.decide_early(lambda _: True, certain=False) is UNDECIDED
    other = run_of(make_rule("r"), OBJECT, excepting(z="1"))
    assert other.decide_early(lambda _: True, certain=False) is MATCH


def test_names_are_evaluated_once_for_all_steps():
    asked = []

    def team(_: Context) -> str:
        asked.append("team")
        return "blue"

    def read(context: Context) -> bool:
        return bool(context.view(frozenset({"team"}))["team"] == "blue")

    program = make_rule("r", condition=read, names={"team": team})
    run = run_of(program, OBJECT, excepting(read))
    assert run.decide().fires
    assert run.excepted() == ("ns/except",)
    assert asked == ["team"]


def test_a_run_for_another_rule_keeps_the_trigger_but_not_the_names():
    run = run_of(make_rule("r", names={"team": lambda _: "blue"}), OBJECT, excepting())
    other = run.of_rule(make_rule("s", condition=lambda seen: "team" not in seen.deferred))
    assert (other.subject, other.exceptions) == (run.subject, ())
    assert other.decide().fires
