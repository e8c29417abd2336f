"""Runs tests of hooks: compares the result of each step with the expected one."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.cli.desk.emit import title, unified_diff
from reconciler.cli.desk.file_objects import FileObjects, Scopes, key_of
from reconciler.cli.desk.hooks.bindings import HookStage
from reconciler.cli.desk.hooks.effects import SERVERS_OWN, effects_of
from reconciler.cli.desk.hooks.executing import desk_tools, executables_in, faults_of
from reconciler.cli.desk.hooks.subjects import (
    Declared,
    DeskHook,
    Played,
    Script,
    declared_in,
    is_declared,
)
from reconciler.cli.desk.inputs import placed
from reconciler.cli.desk.suite.check import End, Row, TestRun, tidy
from reconciler.cli.desk.suite.hookmodel import HookTest, Step
from reconciler.cli.desk.suite.model import Expected
from reconciler.cli.desk.suite.selector import Selector
from reconciler.engine.patch import equal
from reconciler.errors import InvalidPolicy, NotFound
from reconciler.hooks.operations import after_failure, read_operations
from reconciler.services.ports.jq import Jq

_SECONDS: Final = 60.0
_FORBIDDEN: Final = "executables are run only with --run-hooks"


async def run_hook_test(test: HookTest, selector: Selector, *, allowed: bool) -> TestRun:
    """Run a test.

    Args:
        selector: The selector of rows; its policy is the hook, its rule ``STEP/PART``.
        allowed: Whether the executable may be run.

    Raises:
        InvalidSetting: A file that the test names is missing or unreadable.
    """
    rows: list[Row] = []
    path = test.path.parent / test.hook
    if is_declared(path):
        rows += await _declared_rows(test, path)
    elif not allowed:
        rows += _all_rows(test, End.NOT_RUN, _FORBIDDEN)
    else:
        (executable,) = executables_in(path)
        async with desk_tools() as (executables, jq):
            script = Script(
                executable=executable, executables=executables, jq=jq, seconds=_SECONDS
            )
            rows += [row async for row in _Play(test, script, jq).rows()]
    chosen = {item.location for item in selector.entries([row.expected for row in rows])}
    return TestRun(
        test=test,
        rows=tuple(row for row in rows if row.expected.location in chosen),
        warnings=(),
    )


async def _declared_rows(test: HookTest, path: Path) -> list[Row]:
    try:
        hook = declared_in(path)
    except InvalidPolicy as error:
        return _refused(test, error)
    async with desk_tools() as (_, jq):
        return [row async for row in _Play(test, Declared(hook=hook, jq=jq), jq).rows()]


def _refused(test: HookTest, error: InvalidPolicy) -> list[Row]:
    return _all_rows(test, End.FAILED, "Invalid configuration", "; ".join(faults_of(error)))


def _all_rows(test: HookTest, end: End, reason: str, message: str = "") -> list[Row]:
    return [
        _row(test.hook, step, part, end=end, reason=reason, message=message)
        for step in test.steps
        for part in _parts(step)
    ]


class _Play:
    """Runs the steps of a test in order."""

    def __init__(self, test: HookTest, hook: DeskHook, jq: Jq) -> None:
        self._test = test
        self._hook = hook
        self._jq = jq
        self._file_objects = FileObjects([])
        self._scopes = Scopes()

    async def rows(self) -> AsyncIterator[Row]:
        """Yield a row for each part of each step's expectations."""
        try:
            config = await self._hook.config()
        except InvalidPolicy as error:
            for row in _refused(self._test, error):
                yield row
            return
        stage = HookStage(config, self._jq)
        for step in self._test.steps:
            given = await self._given(stage, step)
            done = await self._run(given)
            for part in _parts(step):
                yield await self._judged(step, part, given, done)

    async def _given(self, stage: HookStage, step: Step) -> list[dict[str, Any]]:
        if step.cluster is None:
            return stage.tick(step.schedule)
        self._file_objects = FileObjects(self._placed(step.cluster))
        return await stage.change(self._file_objects)

    def _placed(self, names: Sequence[str]) -> list[Object]:
        return placed(names, self._scopes, base=self._test.path.parent)

    async def _run(self, given: Sequence[dict[str, Any]]) -> Played:
        """Run the hook if it has binding contexts, and carry out its operations."""
        if not given:
            return Played()
        try:
            played = await self._hook.play(given, lambda _line, _stream: None)
        except InvalidPolicy as error:
            return Played(failure="; ".join(faults_of(error)))
        try:
            operations = read_operations(played.operations)
        except InvalidPolicy as error:
            return Played(failure=played.failure or "; ".join(faults_of(error)))
        done = after_failure(operations) if played.failure else operations
        effects = await effects_of(
            done,
            self._file_objects,
            self._jq,
            confined_to=self._hook.confined_to,
            guard=self._hook.guard,
        )
        errors = [f"{item.operation.type} {item.target}: {item.error}" for item in effects]
        wrong = [said for said, item in zip(errors, effects, strict=True) if item.error]
        return Played(operations=played.operations, failure=played.failure or "; ".join(wrong))

    async def _judged(
        self, step: Step, part: str, given: Sequence[dict[str, Any]], done: Played
    ) -> Row:
        if part == "failure":
            return self._of_failure(step, done)
        if done.failure and part != "contexts" and not step.failure:
            return self._row(step, part, End.FAILED, "The hook failed", done.failure)
        if part == "contexts":
            return self._compared(step, part, step.contexts, list(given))
        if part == "operations":
            return self._compared(step, part, step.operations, list(done.operations))
        wanted = self._placed(step.objects)
        found = [await self._stored(obj) for obj in wanted]
        for obj, stored in zip(wanted, found, strict=True):
            if stored is None:
                return self._row(step, part, End.FAILED, "Not found", f"there is no {title(obj)}")
        return self._compared(step, part, wanted, found)

    def _of_failure(self, step: Step, done: Played) -> Row:
        if step.failure in done.failure and done.failure:
            return self._row(step, "failure", End.PASSED, "Ok", done.failure)
        said = done.failure or "the hook did its work"
        return self._row(step, "failure", End.FAILED, "Want a failure", said)

    def _compared(self, step: Step, part: str, wanted: Any, found: Any) -> Row:
        if equal(tidy(wanted), tidy(found)):
            return self._row(step, part, End.PASSED, "Ok")
        names = (self._test.path.name, f"what {self._test.hook} gave")
        lines = unified_diff({part: tidy(wanted)}, {part: tidy(found)}, names=names)
        return replace(self._row(step, part, End.FAILED, "Diff"), details=tuple(lines))

    def _row(self, step: Step, part: str, end: End, reason: str, message: str = "") -> Row:
        return _row(self._test.hook, step, part, end=end, reason=reason, message=message)

    async def _stored(self, obj: Object) -> Object | None:
        kind = self._file_objects.cluster.exact(obj["apiVersion"], obj["kind"])
        if kind is None:
            return None
        _, _, namespace, name = key_of(obj)
        try:
            found = await self._file_objects.cluster.get(kind, namespace, name)
        except NotFound:
            return None
        # Fields that the API server sets are compared only where the test names them.
        meta = {
            key: value
            for key, value in found["metadata"].items()
            if key not in SERVERS_OWN or key in obj["metadata"]
        }
        return {**found, "metadata": meta}


def _parts(step: Step) -> list[str]:
    parts = {
        "contexts": step.contexts is not None,
        "operations": step.operations is not None,
        "objects": bool(step.objects),
        "failure": bool(step.failure),
    }
    return [name for name, given in parts.items() if given]


def _row(hook: str, step: Step, part: str, *, end: End, reason: str, message: str) -> Row:
    expected = Expected(
        location=f"{step.location}.expect.{part}",
        policy=hook,
        rule=f"{step.name}/{part}",
        result="pass",
    )
    return Row(expected=expected, key=None, end=end, reason=reason, message=message)
