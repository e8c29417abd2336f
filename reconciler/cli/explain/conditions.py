"""Explanation of preconditions, each with the values of its two sides."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from reconciler.cli.explain.outline_writer import FAIL, NO, YES, OutlineWriter, shown
from reconciler.cli.explain.values import DisplayValue, Values
from reconciler.cli.output.masking import HIDDEN
from reconciler.dialects.kyverno.preconditions import Condition, Conditions
from reconciler.dialects.kyverno.preconditions.operands import Operand
from reconciler.engine.values.wildcard import literal
from reconciler.errors import RetrofitError


async def explain_conditions(
    conditions: Conditions, raw: Any, values: Values, writer: OutlineWriter
) -> bool:
    """Write each condition with the values of its sides; return whether all together hold.

    Args:
        raw: The conditions as written in the policy, to quote them.
        values: The values at the point of evaluation.
    """
    for condition, written, place in _pairs(conditions, raw):
        key = await _side(condition.key, written.get("key"), values)
        value = await _side(condition.value, written.get("value"), values)
        operator = written.get("operator", "")
        text = f"{place}: {key.text}  {operator}  {value.text}"
        holds = await values.get(partial(condition.evaluate, values.context))
        failed = isinstance(holds, RetrofitError)
        writer.answer(
            FAIL if failed else YES if holds else NO,
            "precondition",
            text,
            place=place,
            operator=operator,
            sides=[key.facts, value.facts],
        )
    decision = await values.get(partial(conditions.evaluate, values.context))
    return not isinstance(decision, RetrofitError) and decision.passed


async def _side(operand: Operand, raw: Any, values: Values) -> DisplayValue:
    templates = operand.templates
    words = raw if isinstance(raw, str) else shown(raw)
    if all(template.constant for template in templates):
        return DisplayValue(text=shown(raw), facts={"written": raw, "value": raw})
    if any(values.mask.hides(template) for template in templates):
        result = DisplayValue(text=HIDDEN, facts={"value": HIDDEN})
    else:
        result = await values.display(lambda: _plain(operand.resolve(values.context)))
    return DisplayValue(text=f"{words} = {result.text}", facts={"written": raw, **result.facts})


def _plain(value: Any) -> Any:
    """Return an operand without the escapes that resolving adds to wildcards in data."""
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _pairs(conditions: Conditions, raw: Any) -> Iterator[tuple[Condition, Mapping[str, Any], str]]:
    lists = {"": raw} if isinstance(raw, list) else {f".{form}": raw[form] for form in raw or ()}
    for form, written in lists.items():
        compiled = conditions.any or () if form == ".any" else conditions.all
        for index, item in enumerate(written or ()):
            yield compiled[index], item, f"preconditions{form}[{index}]"
