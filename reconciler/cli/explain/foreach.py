"""Explanation of the elements of a foreach, each with the variables of its edits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.cli.explain.conditions import explain_conditions
from reconciler.cli.explain.outline import written_at
from reconciler.cli.explain.outline_writer import FAIL, NO, OutlineWriter, shown
from reconciler.cli.explain.values import Values, templates_of
from reconciler.cli.output.masking import HIDDEN
from reconciler.dialects.kyverno.mutation import Edit, ForeachEdit, apply_edits, bound_elements
from reconciler.dialects.kyverno.readers import of_edits
from reconciler.engine.outcome import Unmet
from reconciler.engine.patch import KeyTable
from reconciler.errors import RetrofitError

_MOST = 20
"""The maximum number of elements that are explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditExplanation:
    """Explains the variables of the edits of a rule; ``policy`` is the policy as written."""

    policy: Mapping[str, Any]
    keys: KeyTable

    async def tell(
        self,
        edits: tuple[Edit, ...],
        values: Values,
        obj: Mapping[str, Any],
        writer: OutlineWriter,
    ) -> None:
        """Write the variables of each edit; edits after a foreach see its changes."""
        for edit in edits:
            if not isinstance(edit, ForeachEdit):
                await values.tell_variables(templates_of(of_edits((edit,))), writer)
                continue
            await self._foreach(edit, values, obj, writer)
            context, before = values.context, obj
            after = await values.get(lambda: apply_edits((edit,), context, before, self.keys))  # noqa: B023
            if not isinstance(after, RetrofitError | Unmet):
                obj = after
                bound = (
                    context.with_object(after)
                    if edit.changes_trigger
                    else context.bind(target=after)
                )
                values = values.on(bound, values.mask)

    async def _foreach(
        self, edit: ForeachEdit, values: Values, obj: Mapping[str, Any], writer: OutlineWriter
    ) -> None:
        result = await values.of(edit.elements)
        source = edit.elements.source
        writer.line("foreach", f"foreach {source} = {result.text}", list=source, **result.facts)
        found = await values.get(lambda: list(bound_elements(edit, values.context)))
        if isinstance(found, RetrofitError):
            writer.inner.answer(FAIL, "foreach", values.mask.text(str(found)))
            return
        for index, context in found[:_MOST]:
            mask = values.mask.at_element(edit.elements, edit.depth)
            await self._element(edit, index, values.on(context, mask), obj, writer.inner)
        if len(found) > _MOST:
            writer.inner.line("more", f"and {len(found) - _MOST} more elements")

    async def _element(
        self,
        edit: ForeachEdit,
        index: int,
        values: Values,
        obj: Mapping[str, Any],
        writer: OutlineWriter,
    ) -> None:
        values = await values.knowing(edit.entries)
        mask = values.mask
        hidden = ("element",) in mask.paths
        element = HIDDEN if hidden else mask.value(values.context.data["element"])
        writer.line("element", f"element {index} = {shown(element)}", index=index, value=element)
        inner = writer.inner
        await values.tell_entries(edit.entries, f"{edit.location}.context", inner)
        if edit.preconditions is not None:
            raw = written_at(self.policy, edit.location).get("preconditions")
            held = await explain_conditions(edit.preconditions, raw, values, inner)
            if not held:
                inner.answer(NO, "decision", "the element is left out: preconditions not met")
                return
        await self.tell(edit.edits, values, obj, inner)
