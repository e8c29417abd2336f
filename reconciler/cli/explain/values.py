"""Values of variables and context entries, as the engine gives them, without secrets."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from reconciler.cli.explain.masking import HIDDEN, Mask
from reconciler.cli.explain.page import FAIL, Page, shown
from reconciler.engine.context import Context
from reconciler.engine.entries import Entry
from reconciler.engine.jmes import Expression
from reconciler.engine.variables import Template
from reconciler.errors import RetrofitError
from reconciler.services.lint.reads import Readers
from reconciler.services.loading import Loads

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What expressions give at one point of a story."""

    loads: Loads
    context: Context
    mask: Mask

    def on(self, context: Context, mask: Mask) -> "Values":
        """Return the same at another point."""
        return replace(self, context=context, mask=mask)

    async def get(self, work: Callable[[], T]) -> T | RetrofitError:
        """Return what an evaluation gives, or why it fails."""
        try:
            return await self.loads.evaluate(work)
        except RetrofitError as error:
            return error

    async def written(self, work: Callable[[], Any], *, hidden: bool = False) -> str:
        """Return the result of an evaluation as people read it."""
        value = await self.get(work)
        if isinstance(value, RetrofitError):
            return f"fails: {self.mask.text(str(value))}"
        return HIDDEN if hidden else shown(self.mask.value(value))

    async def tell_variables(self, templates: Iterable[Template], page: Page) -> None:
        """Write each variable once, with its value."""
        seen: set[str] = set()
        for expression in (item for template in templates for item in template.expressions):
            if expression.source not in seen:
                seen.add(expression.source)
                page.line(f"{{{{ {expression.source} }}}} = {await self.of(expression)}")

    async def of(self, expression: Expression) -> str:
        """Return what an expression gives as people read it."""
        hidden = self.mask.hides(expression)
        return await self.written(lambda: self.context.search(expression), hidden=hidden)

    async def tell_entries(self, entries: Iterable[Entry], place: str, page: Page) -> None:
        """Write each context entry with its value."""
        for index, entry in enumerate(entries):
            where = f"{place.rpartition('.')[2]}[{index}] {entry.name}"
            value = await self.get(partial(self._entry, entry.name))
            if isinstance(value, RetrofitError):
                page.answer(FAIL, f"{where}: {self.mask.text(str(value))}")
            else:
                hidden = (entry.name,) in self.mask.paths
                page.line(f"{where} = {HIDDEN if hidden else shown(self.mask.value(value))}")

    def _entry(self, name: str) -> Any:
        return self.context.view(frozenset({name}))[name]


def templates_of(readers: Readers) -> list[Template]:
    """Return the templates among what a part of a rule reads with."""
    return [reader for reader in readers if isinstance(reader, Template)]
