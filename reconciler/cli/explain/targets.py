"""Which objects the targets of a rule mean, and what the rule makes of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from reconciler.api.meta import Kind, Object
from reconciler.cli.desk.emit import title, unified_diff
from reconciler.cli.desk.stock import Stock
from reconciler.cli.explain.conditions import explain_conditions
from reconciler.cli.explain.page import FAIL, NO, OPEN, YES, Page
from reconciler.cli.explain.values import Values, templates_of
from reconciler.engine.edits import Edit, ForeachEdit
from reconciler.engine.entries import with_entries
from reconciler.engine.evaluate import change
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.program import Program
from reconciler.engine.targets import Target, TargetQuery, resolve
from reconciler.errors import ClusterError, RetrofitError
from reconciler.services.lint.reads import of_edits
from reconciler.services.selection import Found

_MOST = 20
"""Objects of the right kind that are named although they are not selected."""

_MARKS = {RuleStatus.PASS: YES, RuleStatus.SKIP: NO, RuleStatus.ERROR: FAIL}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStory:
    """Tells about the targets of a rule that fires.

    Attributes:
        raw: The rule as written.
        values: At the trigger, with the entries of the rule.
    """

    program: Program
    raw: Mapping[str, Any]
    stock: Stock
    values: Values

    async def tell(self, page: Page) -> None:
        """Write which objects are selected and what happens to each."""
        values = self.values
        selection = await self.stock.finder.select(self.program, values.context, values.loads)
        for index, target in enumerate(self.program.targets):
            page.head(f"mutate.targets[{index}]")
            await values.tell_variables(target.templates, page.inner)
            query = await values.get(partial(self._query, index, target))
            if isinstance(query, RetrofitError):
                page.inner.answer(FAIL, values.mask.text(str(query)))
                continue
            page.inner.line(f"means {_described(query)}")
            found = [item for item in selection.found if item.query.index == index]
            for item in found:
                await self._object(item, page.inner)
            await self._others(query, found, page.inner)
        for message in (*selection.errors, *(item.message for item in selection.failures)):
            page.answer(FAIL, values.mask.text(message))

    def _query(self, index: int, target: Target) -> TargetQuery:
        home = self.program.origin.namespace
        return resolve(index, target, self.values.context, policy_namespace=home)

    async def _object(self, found: Found, page: Page) -> None:
        key = found.key
        try:
            obj = await self.stock.read(key.kind, key.namespace, key.name)
        except ClusterError as error:
            page.answer(NO, f"{key.kind.kind} {_place(key.namespace, key.name)}: {error}")
            return
        if not key.kind.subresource and not found.query.accepts(obj):
            page.answer(NO, f"{title(obj)}: {'; '.join(_differences(found.query, obj))}")
            return
        part = f" ({key.kind.subresource})" if key.kind.subresource else ""
        page.answer(YES, f"{title(obj)}{part} is selected")
        await self._change(found.query.index, obj, page.inner)

    async def _change(self, index: int, obj: Object, page: Page) -> None:
        target = self.program.targets[index]
        mask = self.values.mask.at(obj, ("target",)).with_entries(target.entries)
        bound = with_entries(self.values.context.bind(target=obj), target.entries)
        values = self.values.on(bound, mask)
        await values.tell_entries(target.entries, f"{target.location}.context", page)
        held = True
        if target.preconditions is not None:
            raw = self.raw["mutate"]["targets"][index].get("preconditions")
            held = await explain_conditions(
                target.preconditions, raw, "preconditions", values, page
            )
        if held:
            await self._variables(values, page)
        context = self.values.context
        changed = await values.get(lambda: change(self.program, index, context, obj))
        if isinstance(changed, RetrofitError):
            page.answer(FAIL, mask.text(str(changed)))
            return
        page.answer(_MARKS[changed.status], mask.text(changed.message))
        if changed.status is RuleStatus.PASS:
            await self._diff(values, obj, changed.after, page)
        if changed.repeats:
            page.answer(OPEN, "applied to its own result, the rule would change it again")

    async def _diff(
        self, values: Values, obj: Object, changed: Mapping[str, Any], page: Page
    ) -> None:
        edits, mask = self.program.edits, values.mask
        blocks = [edit for edit in edits if isinstance(edit, ForeachEdit)]
        if any(mask.concerns(reader) for reader in of_edits(blocks)):
            page.answer(OPEN, "the diff is not shown: the patch is made of what a Secret holds")
            return
        computed = [
            await values.get(partial(values.context.search, expression))
            for template in templates_of(of_edits(_flat(edits)))
            for expression in template.expressions
            if mask.hides(expression)
        ]
        before, after = mask.with_values(computed).pair(obj, changed)
        page.diff(unified_diff(before, after, names=("before", "after")))

    async def _variables(self, values: Values, page: Page) -> None:
        edits = self.program.edits
        await values.tell_variables(templates_of(of_edits(_flat(edits))), page)
        for edit in edits:
            if isinstance(edit, ForeachEdit):
                page.line(f"foreach {edit.elements.source} = {await values.of(edit.elements)}")

    async def _others(self, query: TargetQuery, found: list[Found], page: Page) -> None:
        selected = {(item.key.namespace, item.key.name) for item in found}
        kinds = {
            _resource(kind)
            for kind in await self.stock.cluster.find(query.api_version, query.kind)
        }
        others = [
            obj
            for obj in self.stock.objects.values()
            if self._resource_of(obj) in kinds and _names(obj) not in selected
        ]
        for obj in others[:_MOST]:
            page.answer(NO, f"{title(obj)}: {'; '.join(_differences(query, obj))}")
        if len(others) > _MOST:
            page.line(f"and {len(others) - _MOST} more that are not selected")
        if not others and not found:
            page.answer(NO, "no object of this kind was given; give some with --target")

    def _resource_of(self, obj: Object) -> tuple[str, str] | None:
        kind = self.stock.cluster.exact(obj["apiVersion"], obj["kind"])
        return None if kind is None else _resource(kind)


def _flat(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    # Inside of a foreach variables have another value for each element.
    return tuple(edit for edit in edits if not isinstance(edit, ForeachEdit))


def _described(query: TargetQuery) -> str:
    parts = [f"{query.api_version} {query.kind}"]
    if query.name is not None:
        parts.append(f"named {query.name.text}")
    if query.uid:
        parts.append(f"with uid {query.uid}")
    if query.namespace is not None:
        parts.append(f"in namespace {query.namespace.text}")
    if query.selector is not None:
        parts.append(f"with labels {query.selector.server or 'that the selector asks for'}")
    return ", ".join(parts)


def _differences(query: TargetQuery, obj: Object) -> Iterator[str]:
    meta = obj["metadata"]
    for field, pattern in (("name", query.name), ("namespace", query.namespace)):
        if pattern is not None and not pattern.accepts(meta.get(field) or ""):
            yield f"its {field} is not {pattern.text}"
    if query.uid and meta.get("uid") != query.uid:
        yield "its uid is another"
    if query.selector is not None and not query.selector.accepts(meta.get("labels") or {}):
        yield f"its labels are not {query.selector.server or 'those of the selector'}"


def _resource(kind: Kind) -> tuple[str, str]:
    return kind.group, kind.plural


def _names(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _place(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
