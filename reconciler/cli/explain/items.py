"""Explanation of the items of a ModRule, each with the value that its expression returns."""

import math
from collections.abc import Mapping
from typing import Any

from reconciler.cli.explain.outline_writer import FAIL, NO, YES, OutlineWriter, shown
from reconciler.cli.explain.values import Values
from reconciler.dialects.kubemod.items import Item
from reconciler.dialects.kubemod.parts import Items
from reconciler.errors import RetrofitError
from reconciler.languages.gval import UNDEFINED
from reconciler.languages.gval.values import text_of


async def explain_items(
    items: Items, raw: Mapping[str, Any], values: Values, writer: OutlineWriter
) -> None:
    """Write each item with the value of its expression, and whether it holds.

    Args:
        raw: The specification of the rule as written, to quote what values are compared with.
    """
    for item, written in zip(items.items, raw["match"], strict=True):
        await _explain_item(items, item, written, values, writer)


async def _explain_item(
    items: Items, item: Item, written: Mapping[str, Any], values: Values, writer: OutlineWriter
) -> None:
    context = values.context

    def selected() -> Any:
        return _plain(item.select.evaluate(items.seen_by(item, context), context.allowance))

    def why_not() -> str:
        return item.why_not(items.seen_by(item, context), context.allowance)

    # Masking cannot find what an expression has computed from a Secret.
    hidden = bool(values.mask.paths) and item.select.follow is None
    value = await values.display(selected, hidden=hidden)
    reason = await values.get(why_not)
    tests = ", ".join(
        f"{name}: {test if isinstance(test, str) else shown(test)}"
        for name, test in written.items()
        if name != "select"
    )
    words = f"{'' if 'error' in value.facts else '= '}{value.text}{f' ({tests})' if tests else ''}"
    writer.answer(
        FAIL if isinstance(reason, RetrofitError) else NO if reason else YES,
        "item",
        f"{item.location}: {item.select.source} {words}",
        place=item.location,
        select=item.select.source,
        **value.facts,
    )


def _plain(value: Any) -> Any:
    """Return a value of JSON, and what JSON lacks as the text that it is compared as.

    The text of what is undefined is empty, and so its name says more.
    """
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if value is UNDEFINED:
        return UNDEFINED.value
    if isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return text_of(value)
