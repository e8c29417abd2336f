"""Scalars against value patterns."""

import re

from reconciler.dialects.kyverno import pattern
from tests.conformance.units.cases import Case, runs

OPERATORS = {
    "operator.Equal": "",
    "operator.NotEqual": "!",
    "operator.Less": "<",
    "operator.LessEqual": "<=",
    "operator.More": ">",
    "operator.MoreEqual": ">=",
    # Their sign is between the two bounds.
    "operator.InRange": "",
    "operator.NotInRange": "",
}
# Whether an operator accepts a value below the (lower) bound, at it, at the upper, above it.
ACCEPTED = {
    "operator.Equal": (False, True, True, False),
    "operator.NotEqual": (True, False, False, True),
    "operator.Less": (True, False, False, False),
    "operator.LessEqual": (True, True, True, False),
    "operator.More": (False, False, False, True),
    "operator.MoreEqual": (False, True, True, True),
    "operator.InRange": (False, True, True, False),
    "operator.NotInRange": (True, False, False, True),
}


@runs("pattern")
def value_pattern(case: Case) -> None:
    given = case.given
    function, arguments = given["function"], given["args"]
    if function == "operator.GetOperatorFromStringPattern":
        check_operator(case, *arguments)
        return
    if not function.startswith("validate"):
        given.refuse("function", function)
    value, wanted_pattern, *names = arguments
    for name in names:
        if name not in OPERATORS:
            given.refuse("args", name)
        wanted_pattern = f"{OPERATORS[name]}{wanted_pattern}"
    if "result" in case.wanted:
        assert pattern.matches(value, wanted_pattern) is case.wanted["result"]


def check_operator(case: Case, text: str) -> None:
    """Recognise the operator of a text by the values that the text accepts."""
    accepted = case.wanted.one_of("result", ACCEPTED)
    found = re.fullmatch(r"(-?[0-9]+)!?-(-?[0-9]+)|[<>=! ]*(-?[0-9]+)", text)
    if found is not None:
        bounds = [int(bound) for bound in found.groups() if bound]
        probes = (bounds[0] - 1, bounds[0], bounds[-1], bounds[-1] + 1)
        assert tuple(pattern.matches(value, text) for value in probes) == accepted
        return
    # Words have no order, so only equality can be tested.
    operand = text.lstrip("!")
    assert case.wanted["result"] in {"operator.Equal", "operator.NotEqual"}
    assert pattern.matches(operand, text) is accepted[1]
    assert pattern.matches(f"{operand}x", text) is accepted[0]
