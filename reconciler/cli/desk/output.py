"""The output formats of `retrofit apply`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TextIO

from typing_extensions import override

from reconciler.cli.desk.emit import paint, render_yaml, title, unified_diff
from reconciler.cli.desk.file_objects import Key, key_of
from reconciler.cli.desk.session import RuleResult, TriggerRun
from reconciler.cli.desk.summary import mask_of_run, place_of
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.masking import Mask
from reconciler.cli.output.screen import screen_of
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.patch import json_diff

FORMATS: Final = ("diff", "yaml", "json", "patch", "kyverno")
COUNTED: Final = ("diff", "yaml", "kyverno")
"""Formats after which the totals of all results are printed."""
HEADED: Final = ("kyverno",)
"""Formats whose output already covers all results, as that of Kyverno's command does."""
STREAMED: Final = ("diff", "patch")
"""Formats that are complete for each object as soon as it is evaluated."""


class Writer(ABC):
    """Writes the results of runs in one format."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @abstractmethod
    def write(self, run: TriggerRun) -> None:
        """Write a run, or collect it for `close`."""

    @abstractmethod
    def close(self) -> None:
        """Write everything that belongs at the end."""


def writer_of(
    output: str,
    stream: TextIO,
    *,
    rules: int = 0,
    unplaced: AbstractSet[Key] = frozenset(),
    shows_secrets: bool = False,
) -> Writer:
    """Return the writer of a format.

    Args:
        unplaced: Objects that are written without a namespace, as they were read.
        shows_secrets: Whether diffs show the content of Secrets. The other formats are for
            programs, and always hold the unmasked objects.
    """
    match output:
        case "yaml":
            return _Objects(stream, as_json=False, unplaced=unplaced)
        case "json":
            return _Objects(stream, as_json=True, unplaced=unplaced)
        case "patch":
            return _Patches(stream)
        case "kyverno":
            return _Headed(stream, rules=rules)
        case _:
            return _Diffs(stream, shows_secrets=shows_secrets)


class _Diffs(Writer):
    """Writes a unified diff for each change."""

    def __init__(self, stream: TextIO, *, shows_secrets: bool) -> None:
        super().__init__(stream)
        self._screen = screen_of(stream)
        self._shows_secrets = shows_secrets

    @override
    def write(self, run: TriggerRun) -> None:
        mask = Mask() if self._shows_secrets else mask_of_run(run)
        for result in run.results:
            if result.status is RuleStatus.PASS:
                self._show(result, mask)

    @override
    def close(self) -> None:
        self._stream.flush()

    def _show(self, result: RuleResult, mask: Mask) -> None:
        name = title(result.before)
        before, after = result.before, result.after
        if not self._shows_secrets:
            before, after = mask.pair(before, after)
        lines = unified_diff(before, after, names=(name, name))
        head = self._screen.fold(f"{result.policy} / {result.rule}: {place_of(result)}")
        bold = [self._screen.style(line, bold=True) for line in head]
        self._stream.write("\n".join([*bold, *paint(lines, self._screen), "", ""]))


class _Objects(Writer):
    """Writes all triggers and all changed targets in their final state."""

    def __init__(self, stream: TextIO, *, as_json: bool, unplaced: AbstractSet[Key]) -> None:
        super().__init__(stream)
        self._json = as_json
        self._unplaced = unplaced
        self._objects: dict[Key, Mapping[str, Any]] = {}

    @override
    def write(self, run: TriggerRun) -> None:
        self._objects.setdefault(key_of(run.after), run.after)
        if run.after is not run.trigger:
            self._objects[key_of(run.after)] = run.after
        for result in run.results:
            if result.target and result.status is RuleStatus.PASS:
                self._objects[key_of(result.after)] = result.after

    @override
    def close(self) -> None:
        objects = [self._as_read(key, obj) for key, obj in self._objects.items()]
        if self._json:
            listed = {"apiVersion": "v1", "kind": "List", "items": objects}
            self._stream.write(json_of(listed) + "\n")
            return
        for index, obj in enumerate(objects):
            self._stream.write(("---\n" if index else "") + render_yaml(obj))

    def _as_read(self, key: Key, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        if key not in self._unplaced:
            return obj
        meta = {name: value for name, value in obj["metadata"].items() if name != "namespace"}
        return {**obj, "metadata": meta}


class _Headed(Writer):
    """Writes each object that a policy changes below a heading, as Kyverno's command does."""

    def __init__(self, stream: TextIO, *, rules: int) -> None:
        super().__init__(stream)
        self._rules = rules
        self._triggers = 0
        self._blocks: list[str] = []

    @override
    def write(self, run: TriggerRun) -> None:
        self._triggers += 1
        changed = {
            (result.policy, key_of(result.after)): result.after
            for result in run.results
            if result.status is RuleStatus.PASS
        }
        for (policy, (_, kind, namespace, name)), obj in changed.items():
            head = (
                f"mutate policy {policy.rpartition('/')[2]} applied to {namespace}/{kind}/{name}"
            )
            self._blocks.append(f"{head}:\n{render_yaml(obj)}---\n\n")

    @override
    def close(self) -> None:
        head = f"Applying {self._rules} policy rule(s) to {self._triggers} resource(s)...\n\n"
        self._stream.write("".join([head, *self._blocks]))


class _Patches(Writer):
    """Writes a JSON list of changes, each with its patch operations."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._begun = False

    @override
    def write(self, run: TriggerRun) -> None:
        for result in run.results:
            if result.status is RuleStatus.PASS:
                written = json_of(_patch(result))
                self._stream.write(",\n" if self._begun else "[\n")
                self._stream.write("  " + written.replace("\n", "\n  "))
                self._begun = True

    @override
    def close(self) -> None:
        self._stream.write("\n]\n" if self._begun else "[]\n")


def _patch(result: RuleResult) -> dict[str, Any]:
    return {
        "policy": result.policy,
        "rule": result.rule,
        "object": _named(result.before),
        "trigger": _named(result.trigger),
        "patch": json_diff(result.before, result.after),
    }


def _named(obj: Mapping[str, Any]) -> dict[str, str]:
    api_version, kind, namespace, name = key_of(obj)
    found = {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}
    return {field: value for field, value in found.items() if value}
