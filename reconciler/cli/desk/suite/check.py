"""Runs tests of policies: compares the results of rules with the expected ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from reconciler.api.meta import Object
from reconciler.cli.desk.cue import cue_of
from reconciler.cli.desk.emit import title, unified_diff
from reconciler.cli.desk.file_objects import FileObjects, Key, Scopes, key_of
from reconciler.cli.desk.files import objects, read_all, read_one
from reconciler.cli.desk.inputs import placed, read_exceptions
from reconciler.cli.desk.operations import word_of
from reconciler.cli.desk.policies import PolicySet, compile_all
from reconciler.cli.desk.session import NO_TARGET, RuleResult, Session, TriggerRun
from reconciler.cli.desk.suite.answers import answers_of
from reconciler.cli.desk.suite.hookmodel import HookTest
from reconciler.cli.desk.suite.model import Expected, TestFile
from reconciler.cli.desk.suite.selector import EVERY_ROW, Selector
from reconciler.cli.desk.values import DeskValues, copies_of, read_user, read_values
from reconciler.cli.output.words import nearest
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.patch import equal

NO_MATCH = "the rule does not match it, or finds no target"


class End(StrEnum):
    """The outcome of a row."""

    PASSED = "Pass"
    FAILED = "Fail"
    EXCLUDED = "Excluded"
    NOT_RUN = "Not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One expected result for one object.

    Attributes:
        key: The key of the object; None where the row concerns no object.
        operation: The operation of the request; empty where the rule was not evaluated.
        details: The lines of a diff; may be empty.
    """

    expected: Expected
    key: Key | None
    end: End
    reason: str
    message: str = ""
    operation: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """A test with its rows."""

    __test__ = False

    test: TestFile | HookTest
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]

    @property
    def idle(self) -> tuple[Expected, ...]:
        """The entries of ``results`` that tested nothing, because all their rows were excluded."""
        tested = {row.expected.location for row in self.rows if row.end is not End.EXCLUDED}
        found = {row.expected.location: row.expected for row in self.rows}
        return tuple(item for place, item in found.items() if place not in tested)


async def run_test(
    test: TestFile,
    operation: str | None = None,
    selector: Selector = EVERY_ROW,
    *,
    cue: str = "",
) -> TestRun:
    """Run a test.

    Args:
        selector: The selector of rows; other rows are ignored.
        operation: The operation of rows that name none; None for that of `operation_for`.
        cue: The command that evaluates CUE programs; empty where none is named.

    Raises:
        InvalidSetting: A file that the test names is missing or unreadable.
    """
    folder = test.path.parent
    stage = _stage(test, folder, operation, cue)
    runs: dict[str, list[TriggerRun]] = {}
    chosen = selector.entries(test.expected)
    for expected in chosen:
        if expected.operation not in runs:
            session = stage.session
            runs[expected.operation] = [
                await session.run(item, expected.operation) for item in stage.triggers
            ]
    rows = [
        row
        for expected in chosen
        for row in _Checker(stage, folder, runs[expected.operation], expected).rows()
        if selector.accepts(row.key)
    ]
    return TestRun(test=test, rows=tuple(rows), warnings=stage.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The loaded inputs of a test."""

    scopes: Scopes
    policies: PolicySet
    triggers: tuple[Object, ...]
    targets: frozenset[Key]
    session: Session
    warnings: tuple[str, ...]


def _stage(test: TestFile, folder: Path, operation: str | None, cue: str) -> _Stage:
    scopes = Scopes()
    values = _values(test, folder)
    files = test.files
    policies = compile_all(objects(read_all(files["policies"], base=folder)), values)
    listed = placed(files["resources"], scopes, base=folder)
    triggers: dict[Key, Object] = {}
    repeated = [
        title(item) for item in listed if triggers.setdefault(key_of(item), item) is not item
    ]
    targets = placed(files["targetResources"], scopes, base=folder)
    others = placed(files["clusterResources"], scopes, base=folder)
    session = Session(
        policies=policies.compiled,
        file_objects=FileObjects(
            [*triggers.values(), *targets, *others, *values.namespaces],
            answers_of(test, folder),
            cue_of(cue),
        ),
        values=values,
        user=None if not test.user else read_user(*read_one(test.user, base=folder)),
        operation=operation,
        exceptions=read_exceptions(files["exceptions"], base=folder),
        chained=False,
    )
    return _Stage(
        scopes=scopes,
        policies=policies,
        triggers=tuple(triggers.values()),
        targets=frozenset(map(key_of, targets)),
        session=session,
        warnings=tuple(
            f"{test.path}: resources has {name} more than once: the first counts"
            for name in dict.fromkeys(repeated)
        ),
    )


def _values(test: TestFile, folder: Path) -> DeskValues:
    if test.values is not None:
        return read_values(test.values, f"{test.path}: values", head=False)
    if test.variables:
        return read_values(*read_one(test.variables, base=folder))
    return DeskValues()


@dataclass(frozen=True, slots=True)
class _Checker:
    """Checks one entry of ``results``."""

    stage: _Stage
    folder: Path
    runs: list[TriggerRun]
    expected: Expected
    manifest: dict[Key, Object] = field(default_factory=dict)

    def rows(self) -> Iterator[Row]:
        """Yield a row for each object that the entry concerns."""
        if unknown := self._not_run():
            yield self._row(None, End.NOT_RUN, unknown)
            return
        for item in self.stage.policies.refused:
            if item.name == self.expected.policy:
                yield self._row(None, End.FAILED, "Invalid policy", item.message)
                return
        if misspelt := self._misspelt():
            yield self._row(None, End.FAILED, "Not found", misspelt)
            return
        if self.expected.patched:
            listed = placed(self.expected.patched, self.stage.scopes, base=self.folder)
            self.manifest.update({key_of(item): item for item in listed})
        keys = self._keys()
        found = [
            row
            for run in self.runs
            if key_of(run.trigger) in keys
            for row in self._of_trigger(run)
        ]
        found += [row for key in keys for row in self._of_target(key)]
        # Objects that are missing from patchedResources count only if there are no other rows.
        counted = [row for row in found if row.end is not End.EXCLUDED or not row.message]
        yield from counted or found
        yield from self._absent()

    def _not_run(self) -> str:
        if self.expected.unsupported:
            return self.expected.unsupported
        name, rule = self.expected.policy, self.expected.rule
        for item in self.stage.policies.refused:
            if item.name == name and item.foreign:
                return item.message
        operation = self._others().get(rule)
        return (
            f"{rule} is a {operation} rule; only mutate rules are evaluated" if operation else ""
        )

    def _misspelt(self) -> str:
        """Return the error in the names of the policy and rule, empty where both exist."""
        name, rule = self.expected.policy, self.expected.rule
        compiled = self.stage.policies.compiled
        named = [policy for policy in compiled if policy.key.rpartition("/")[2] == name]
        if not named:
            known = {policy.key.rpartition("/")[2] for policy in compiled}
            known.update(policy.name for policy in self.stage.policies.refused)
            return f"the test has no policy {name}{nearest(name, known)}"
        rules = {program.rule for policy in named for program in policy.programs}
        if rule and rule not in rules:
            rules.update(self._others())
            return f"the policy {name} has no rule {rule}{nearest(rule, rules)}"
        return ""

    def _others(self) -> dict[str, str]:
        """Return the operations of the policy's rules that are not mutate rules."""
        others, name = self.stage.policies.other_rules, self.expected.policy
        # The first one counts where a rule has several.
        return {rule: what for key, rule, what in others[::-1] if key.rpartition("/")[2] == name}

    def _absent(self) -> Iterator[Row]:
        """Yield a failed row for each name that matches no trigger and no target."""
        known = [*(key_of(item) for item in self.stage.triggers), *self.stage.targets]
        for item in self.expected.objects:
            if any(item.means(key) for key in known):
                continue
            wanted = f"{item.namespace}/{item.name}" if item.namespace else item.name
            kin = [key for key in known if item.kind in ("", key[1])]
            hint = nearest(wanted, {f"{key[2]}/{key[3]}" for key in kin} | {key[3] for key in kin})
            text = f"the test has no {item.kind or 'object'} {wanted}{hint}"
            yield self._row(None, End.FAILED, "Not found", text)

    def _keys(self) -> list[Key]:
        triggers = dict.fromkeys(key_of(run.trigger) for run in self.runs)
        known = triggers | dict.fromkeys(
            key_of(result.before)
            for result in self._at_targets()
            if result.status is RuleStatus.PASS
        )
        # An unchanged target counts only if the entry names it.
        if not self.expected.objects:
            return list(known)
        return self._wanted(known) or self._wanted(self.stage.targets)

    def _wanted(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if any(item.means(key) for item in self.expected.objects)]

    def _results(self, run: TriggerRun) -> Iterator[RuleResult]:
        for result in run.results:
            if self._concerns(result) and result.message != NO_TARGET:
                yield result

    def _concerns(self, result: RuleResult) -> bool:
        return result.policy.rpartition("/")[2] == self.expected.policy and (
            not self.expected.rule or result.rule in copies_of(self.expected.rule)
        )

    def _at_targets(self) -> Iterator[RuleResult]:
        for run in self.runs:
            for result in self._results(run):
                if result.target and key_of(result.before) in self.stage.targets:
                    yield result

    def _of_trigger(self, run: TriggerRun) -> Iterator[Row]:
        found = list(self._results(run))
        if not found:
            others = (word_of(it.operation.name) for it in run.others if self._concerns(it))
            yield self._untouched(key_of(run.trigger), next(others, ""))
        for result in found:
            yield self._judged(run.by_policy[result.policy], run.trigger, result)

    def _of_target(self, key: Key) -> Iterator[Row]:
        found = [result for result in self._at_targets() if key_of(result.before) == key]
        changed = [result for result in found if result.status is RuleStatus.PASS]
        is_trigger = any(key_of(run.trigger) == key for run in self.runs)
        if not found and not is_trigger:
            yield self._untouched(key)
        for result in changed or ([] if is_trigger else found):
            yield self._judged(result.after, result.before, result)

    def _untouched(self, key: Key, operation: str = "") -> Row:
        # With result skip, a row expects that the rule does not apply to the object.
        wanted = self.expected.result == "skip"
        end, reason = (End.PASSED, f"Ok: {NO_MATCH}") if wanted else (End.EXCLUDED, NO_MATCH)
        return replace(self._row(key, end, reason), operation=operation)

    def _judged(
        self, after: Mapping[str, Any], before: Mapping[str, Any], result: RuleResult
    ) -> Row:
        row = self._compared(after, before, result)
        return replace(row, operation=word_of(result.operation.name))

    def _compared(
        self, after: Mapping[str, Any], before: Mapping[str, Any], result: RuleResult
    ) -> Row:
        key, expected = key_of(before), self.expected
        failed: Row | None = None
        if expected.patched:
            wanted = self.manifest.get(key_of(after))
            if wanted is None:
                text = f"{', '.join(expected.patched)} has no {key[1]} {key[3]}"
                if not expected.demands_all and expected.result != "fail":
                    return self._row(key, End.EXCLUDED, "nothing to compare with", text)
                failed = self._row(key, End.FAILED, "Resource error", text)
            elif not equal(tidy(after), tidy(wanted)):
                names = (", ".join(expected.patched), "what the policy made")
                details = unified_diff(tidy(wanted), tidy(after), names=names)
                failed = self._row(key, End.FAILED, "Resource diff", details=details)
        if failed is None and result.status != expected.result:
            reason = f"Want {expected.result}, got {result.status}"
            failed = self._row(key, End.FAILED, reason, result.message)
        if failed is None:
            return self._row(key, End.PASSED, "Ok", result.message)
        if expected.result == "fail":
            # Mutate rules have no result fail: the row expects that one of the checks fails.
            return replace(failed, end=End.PASSED, reason=f"Ok: {failed.reason}", details=())
        return failed

    def _row(
        self,
        key: Key | None,
        end: End,
        reason: str,
        message: str = "",
        details: Iterable[str] = (),
    ) -> Row:
        return Row(
            expected=self.expected,
            key=key,
            end=end,
            reason=reason,
            message=message,
            details=tuple(details),
        )


def tidy(value: Any) -> Any:
    """Return a value without nulls, empty maps and empty lists, which count as absent."""
    if isinstance(value, dict):
        found = {key: tidy(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [item for item in map(tidy, value) if item not in (None, {}, [])]
    return value
