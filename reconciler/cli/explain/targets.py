"""Explanation of the objects that a rule selects as targets, and of its changes to them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from reconciler.api.meta import Object
from reconciler.cli.desk.emit import title, unified_diff
from reconciler.cli.desk.request import with_values
from reconciler.cli.desk.values import DeskValues
from reconciler.cli.explain.conditions import explain_conditions
from reconciler.cli.explain.details import TargetDetails, details_of
from reconciler.cli.explain.foreach import EditExplanation
from reconciler.cli.explain.object_source import ObjectSource
from reconciler.cli.explain.outline import written_at
from reconciler.cli.explain.outline_writer import FAIL, NO, OPEN, YES, OutlineWriter
from reconciler.cli.explain.values import Values, templates_of
from reconciler.cli.output.words import number
from reconciler.dialects.kyverno.entries import Entry, with_entries
from reconciler.dialects.kyverno.mutation import Edit, ForeachEdit
from reconciler.dialects.kyverno.readers import of_edits
from reconciler.engine.outcome import RuleStatus, TargetChange
from reconciler.engine.run import RuleRun
from reconciler.engine.targets import TargetQuery
from reconciler.errors import ClusterError, RetrofitError
from reconciler.services.processing.selection import SelectedTarget

_MOST = 20
"""The maximum number of objects that are explained, selected or not; others are counted."""

_MARKS = {
    RuleStatus.PASS: YES,
    RuleStatus.SKIP: NO,
    RuleStatus.ERROR: FAIL,
    RuleStatus.FAIL: FAIL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetExplanation:
    """Explains the targets of a rule that fires.

    Attributes:
        policy: The policy as written.
        desk: Given values of variables for targets.
        values: The values at the trigger, with the context entries of the rule.
    """

    run: RuleRun
    policy: Mapping[str, Any]
    object_source: ObjectSource
    desk: DeskValues
    values: Values

    async def tell_trigger(self, writer: OutlineWriter) -> TargetChange:
        """Write how a rule changes its own trigger, and return the change."""
        writer.line("target", "the trigger itself")
        values, obj = self.values, dict(self.run.subject.obj)
        keys = await self.object_source.objects.merge_keys(str(obj.get("apiVersion", "")))
        explanation = EditExplanation(policy=self.policy, keys=keys)
        await explanation.tell(details_of(self.run.program).edits, values, obj, writer.inner)
        work = partial(self.run.change, None, obj, keys=keys)
        return await self._changed(work, values, obj, writer.inner)

    async def tell(self, writer: OutlineWriter) -> None:
        """Write the selected objects, and the result for each."""
        values = self.values
        selection = await self.object_source.objects.finder.select(self.run, values.loads)
        targets: Sequence[TargetDetails] = details_of(self.run.program).targets
        for index, target in enumerate(targets):
            place = target.location.removeprefix(f"{self.run.program.origin.location}.")
            writer.line("target", place, place=target.location)
            inner = writer.inner
            await values.tell_variables(target.templates, inner)
            query = await values.get(partial(self._query, index))
            if isinstance(query, RetrofitError):
                inner.answer(FAIL, "selection", values.mask.text(str(query)))
                continue
            inner.line("selection", f"means {values.mask.text(_described(query))}")
            found = [item for item in selection.found if item.query.index == index]
            await self._objects(found, inner)
            await self._others(query, found, inner)
        errors = map(str, selection.errors)
        for message in (*errors, *(item.message for item in selection.failures)):
            writer.answer(FAIL, "selection", values.mask.text(message))

    def _query(self, index: int) -> TargetQuery:
        found, errors = self.run.queries()
        queries = {query.index: query for query in found}
        if index in queries:
            return queries[index]
        # Each target yields either a query or an error, in the order of the policy.
        raise errors[sum(earlier not in queries for earlier in range(index))]

    async def _objects(self, found: list[SelectedTarget], writer: OutlineWriter) -> None:
        asked = [item for item in found if self.object_source.asked(item)]
        for item in asked[:_MOST]:
            await self._object(item, writer)
        if len(asked) > _MOST:
            text = f"and {len(asked) - _MOST} more that are selected; name one with --target"
            writer.line("more", text, count=len(asked) - _MOST)
        if len(asked) < len(found):
            left = len(found) - len(asked)
            more = number(left, "more object is", "more objects are")
            writer.line("more", f"{more} selected, but not named with --target", count=left)

    async def _object(self, found: SelectedTarget, writer: OutlineWriter) -> None:
        key = found.key
        try:
            obj = await self.object_source.objects.target(found)
        except ClusterError as error:
            text = f"{key.kind.kind} {_place(key.namespace, key.name)}: {error}"
            writer.answer(NO, "object", self.values.mask.text(text))
            return
        if not key.kind.subresource and not found.query.accepts(obj):
            reasons = list(_differences(found.query, obj))
            writer.answer(NO, "object", f"{title(obj)}: {'; '.join(reasons)}", **_facts(obj))
            return
        part = f" ({key.kind.subresource})" if key.kind.subresource else ""
        writer.answer(YES, "object", f"{title(obj)}{part} is selected", **_facts(obj))
        await self._change(found, obj, writer.inner)

    async def _change(self, found: SelectedTarget, obj: Object, writer: OutlineWriter) -> None:
        index = found.query.index
        details = details_of(self.run.program)
        target = details.targets[index]
        given = self.desk.of_target(self.run.program.origin.policy.name, obj)
        run, context = self.run, self.values.context
        if given:
            run = replace(run, context=with_values(context, given))
        if await self._excepted(run, found, obj, writer):
            return
        entries = (*details.target_entries, *target.entries)
        bound = with_entries(run.context.bind(target=obj), entries)
        values = self.values.on(bound, self.values.mask.at(obj, ("target",)))
        values = await values.knowing(entries)
        known = [entry for entry in details.entries if entry not in details.target_entries]
        place = f"{self.run.program.origin.location}.context"
        await values.tell_entries(details.entries, place, writer, but=known)
        await values.tell_entries(target.entries, f"{target.location}.context", writer)
        keys = await self.object_source.objects.merge_keys(str(obj.get("apiVersion", "")))
        held = True
        if target.preconditions is not None:
            raw = written_at(self.policy, target.location).get("preconditions")
            held = await explain_conditions(target.preconditions, raw, values, writer)
        if held:
            explanation = EditExplanation(policy=self.policy, keys=keys)
            await explanation.tell(details.edits, values, obj, writer)
        work = partial(run.change, index, obj, keys=keys)
        await self._changed(work, values, obj, writer)

    async def _changed(
        self, work: Callable[[], TargetChange], values: Values, obj: Object, writer: OutlineWriter
    ) -> TargetChange:
        # Include the Secrets that context entries inside a foreach have read meanwhile.
        values = values.on(values.context, values.mask.with_loads(values.loads.found))
        changed = await values.get(work)
        if isinstance(changed, RetrofitError):
            text = str(changed)
            writer.answer(FAIL, "result", values.mask.text(text))
            return TargetChange(status=RuleStatus.ERROR, message=text, after=obj)
        status = changed.status
        if changed.unchanged:
            writer.answer(YES, "result", "it already is as the rule wants it", status=status)
        else:
            text = values.mask.text(changed.message)
            writer.answer(_MARKS[status], "result", text, status=status)
        if status is RuleStatus.PASS:
            await self._diff(values, obj, changed.after, writer)
        if changed.repeats:
            text = "applied to its own result, the rule would change it again"
            writer.answer(OPEN, "convergence", text)
        return changed

    async def _excepted(
        self, run: RuleRun, found: SelectedTarget, obj: Object, writer: OutlineWriter
    ) -> bool:
        exceptions = [item for item in run.exceptions if item.targets]
        namespace = str(obj["metadata"].get("namespace") or "")
        labels: Mapping[str, str] = {}
        if namespace and any(item.matcher.needs.namespace_labels for item in exceptions):
            labels = await self.object_source.namespace_labels(namespace) or {}
        for item in exceptions:
            # The values that its conditions read are not shown: they may be secret.
            asked = replace(run, exceptions=(item,))
            work = partial(asked.excepted_at, found.key.kind, obj, labels)
            holds = await self.values.get(work) == (item.key,)
            mark = (YES[0], NO[1]) if holds else (NO[0], YES[1])
            writer.answer(mark, "exception", f"PolicyException {item.key}", exception=item.key)
            if holds:
                writer.answer(NO, "result", "an exception is made for this target", status="skip")
                return True
        return False

    async def _diff(
        self, values: Values, obj: Object, changed: Mapping[str, Any], writer: OutlineWriter
    ) -> None:
        edits, mask = details_of(self.run.program).edits, values.mask
        blocks = [edit for edit in edits if isinstance(edit, ForeachEdit)]
        # Variables inside a foreach have a different value for each element.
        flat = [edit for edit in edits if not isinstance(edit, ForeachEdit)]
        inside = mask.with_entries(_entries(blocks))
        showable = not (inside.paths != mask.paths or any(map(mask.concerns, of_edits(blocks))))
        computed = [
            await values.get(partial(values.context.search, expression))
            for template in templates_of(of_edits(flat))
            for expression in template.expressions
            if mask.hides(expression)
        ]
        covering = mask.with_values(computed) if showable else None
        if covering is None:
            text = "the diff is not shown: the patch contains data of a Secret"
            writer.answer(OPEN, "diff", text)
            return
        before, after = covering.pair(obj, changed)
        lines = unified_diff(before, after, names=("before", "after"))
        writer.line("diff", "\n".join(lines))

    async def _others(
        self, query: TargetQuery, found: list[SelectedTarget], writer: OutlineWriter
    ) -> None:
        selected = {(item.key.namespace, item.key.name) for item in found}
        others = [
            obj for obj in await self.object_source.others(query) if _names(obj) not in selected
        ]
        for obj in others[:_MOST]:
            reasons = list(_differences(query, obj)) or ["it is not selected"]
            writer.answer(NO, "object", f"{title(obj)}: {'; '.join(reasons)}", **_facts(obj))
        if len(others) > _MOST:
            text = f"and {len(others) - _MOST} more that are not selected"
            writer.line("more", text, count=len(others) - _MOST)
        if not others and not found:
            writer.answer(NO, "object", self.object_source.absent)


def _entries(edits: Iterable[Edit]) -> Iterator[Entry]:
    for edit in edits:
        if isinstance(edit, ForeachEdit):
            yield from edit.entries
            yield from _entries(edit.edits)


def _facts(obj: Object) -> dict[str, str]:
    meta = obj["metadata"]
    found = {"apiVersion": obj.get("apiVersion"), "objectKind": obj.get("kind")}
    found |= {"namespace": meta.get("namespace"), "name": meta.get("name")}
    return {field: text for field, text in found.items() if text}


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


def _names(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _place(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
