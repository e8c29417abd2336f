"""Values of variables and context entries as the engine computes them, with secrets masked."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from reconciler.cli.explain.outline_writer import FAIL, OutlineWriter, shown
from reconciler.cli.output.masking import HIDDEN, Mask
from reconciler.dialects.kyverno.entries import Entry
from reconciler.dialects.kyverno.readers import Readers
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import Context
from reconciler.errors import RetrofitError
from reconciler.languages.jmespath import Expression
from reconciler.services.processing.loading import Loads

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayValue:
    """A value that is safe to show, or the error of its evaluation.

    Attributes:
        facts: Data for programs: ``value`` or ``error``.
    """

    text: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The results of expressions at one point of an explanation."""

    loads: Loads
    context: Context
    mask: Mask

    def on(self, context: Context, mask: Mask) -> "Values":
        """Return the values at another point, with its context and mask."""
        return replace(self, context=context, mask=mask)

    async def knowing(self, entries: Iterable[Entry]) -> "Values":
        """Return the values with a mask that covers the Secrets these context entries read."""
        found = tuple(entries)
        for entry in found:
            # Evaluate first: values that are shown before the load would not be masked.
            await self.get(partial(self._entry, entry.name))
        mask = self.mask.with_loads(self.loads.found).with_entries(found)
        return replace(self, mask=mask)

    async def get(self, work: Callable[[], T]) -> T | RetrofitError:
        """Return the result of an evaluation, or its error."""
        try:
            return await self.loads.evaluate(work)
        except RetrofitError as error:
            return error

    async def display(self, work: Callable[[], Any], *, hidden: bool = False) -> DisplayValue:
        """Return the masked result of an evaluation."""
        value = await self.get(work)
        if isinstance(value, RetrofitError):
            text = self.mask.text(str(value))
            return DisplayValue(text=f"fails: {text}", facts={"error": text})
        if hidden:
            return DisplayValue(text=HIDDEN, facts={"value": HIDDEN})
        value = self.mask.value(value)
        return DisplayValue(text=shown(value), facts={"value": value})

    async def of(self, expression: Expression) -> DisplayValue:
        """Return the masked result of an expression."""
        hidden = self.mask.hides(expression)
        return await self.display(lambda: self.context.search(expression), hidden=hidden)

    async def tell_variables(self, templates: Iterable[Template], writer: OutlineWriter) -> None:
        """Write each variable once, with its value."""
        seen: set[str] = set()
        for expression in (item for template in templates for item in template.expressions):
            if expression.source not in seen:
                seen.add(expression.source)
                result = await self.of(expression)
                text = f"{{{{ {expression.source} }}}} = {result.text}"
                writer.line("variable", text, expression=expression.source, **result.facts)

    async def tell_entries(
        self,
        entries: Iterable[Entry],
        place: str,
        writer: OutlineWriter,
        *,
        but: Collection[Entry] = (),
    ) -> None:
        """Write each context entry with its value, except those in `but`."""
        for index, entry in enumerate(entries):
            if entry in but:
                continue
            where = f"{place.rpartition('.')[2]}[{index}] {entry.name}"
            hidden = (entry.name,) in self.mask.paths
            result = await self.display(partial(self._entry, entry.name), hidden=hidden)
            facts = {"place": f"{place}[{index}]", "name": entry.name, **result.facts}
            if "error" in result.facts:
                writer.answer(FAIL, "entry", f"{where}: {result.facts['error']}", **facts)
            else:
                writer.line("entry", f"{where} = {result.text}", **facts)

    def _entry(self, name: str) -> Any:
        return self.context.view(frozenset({name}))[name]


def templates_of(readers: Readers) -> list[Template]:
    """Return the templates among the readers of a part of a rule."""
    return [reader for reader in readers if isinstance(reader, Template)]
