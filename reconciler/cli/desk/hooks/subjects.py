"""A hook at the desk: an executable, or what a file declares."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from reconciler.api.meta import Object, policy_ref
from reconciler.cli.desk.files import objects, read_all
from reconciler.cli.desk.hooks.executing import config_of
from reconciler.errors import InvalidPolicy, InvalidSetting
from reconciler.execution.discovery import Executable
from reconciler.execution.executables import Executables, Say
from reconciler.execution.runs import problems_of
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.declared import HOOK_KINDS, DeclaredHook, compile_hook
from reconciler.hooks.metrics import MetricOperation, parse_metrics
from reconciler.hooks.operations import decode_operations
from reconciler.hooks.values import render_json
from reconciler.services.catalog.protection import Protection
from reconciler.services.hooks.compiling import compile_programs
from reconciler.services.hooks.declarative import DeclaredRuns
from reconciler.services.ports.jq import Jq

_T = TypeVar("_T")
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_KINDS: Final = frozenset((kind.api_version, kind.kind) for kind in HOOK_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a run gave.

    Attributes:
        operations: Documents, not looked at yet.
        failure: Empty where it went well.
        problems: What else is to be said of the run.
    """

    operations: Sequence[Any] = ()
    metrics: Sequence[MetricOperation] = ()
    failure: str = ""
    problems: Sequence[str] = ()


class DeskHook(Protocol):
    """A hook that can be run."""

    @property
    def name(self) -> str:
        """Return what people know it by."""
        ...

    @property
    def confined_to(self) -> str:
        """Return the namespace that its operations do not leave, empty where there is none."""
        ...

    @property
    def guard(self) -> Protection | None:
        """Return what tells what its operations do not change, None where nothing does."""
        ...

    async def config(self) -> HookConfig:
        """Return what it is bound to.

        Raises:
            InvalidPolicy: It cannot be used; all places.
        """
        ...

    async def play(self, contexts: Sequence[Mapping[str, Any]], say: Say) -> Played:
        """Run it once.

        Args:
            contexts: What it is given.
            say: Takes the lines that it prints.

        Raises:
            InvalidPolicy: What it answers cannot be read; all places.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """An executable."""

    executable: Executable
    executables: Executables
    jq: Jq
    seconds: float
    confined_to: str = ""
    guard: Protection | None = None

    @property
    def name(self) -> str:
        """Return its path in its folder."""
        return self.executable.name

    async def config(self) -> HookConfig:
        """Return what it prints."""
        return await config_of(self.executables, self.executable, self.jq)

    async def play(self, contexts: Sequence[Mapping[str, Any]], say: Say) -> Played:
        """Start it, and read what it leaves behind."""
        answer = await self.executables.run(
            self.executable, render_json(list(contexts)), say, seconds=self.seconds
        )
        failure = "" if answer.failure is None else str(answer.failure)
        try:
            operations = decode_operations(answer.operations)
            metrics = parse_metrics(answer.metrics)
        except InvalidPolicy:
            if failure:
                return Played(failure=failure, problems=tuple(problems_of(answer)))
            raise
        return Played(
            operations=operations,
            metrics=metrics,
            failure=failure,
            problems=tuple(problems_of(answer)),
        )


class _Here:
    """The `Isolation` port: nobody else waits at the desk."""

    async def evaluate(self, work: Callable[[], _T], tenant: str) -> _T:
        """Return what the work gives."""
        del tenant
        return work()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A Hook or ClusterHook of a file."""

    hook: DeclaredHook
    jq: Jq
    guard: Protection = field(default_factory=Protection)

    @property
    def name(self) -> str:
        """Return its kind and name."""
        return f"{self.hook.ref.kind} {self.hook.ref}"

    @property
    def confined_to(self) -> str:
        """Return its namespace, where it has one."""
        return self.hook.confined_to

    async def config(self) -> HookConfig:
        """Return what it declares, its jq programs compiled."""
        await compile_programs(self.hook.programs, self.jq)
        return self.hook.config

    async def play(self, contexts: Sequence[Mapping[str, Any]], say: Say) -> Played:
        """Evaluate it."""
        del say
        runs = DeclaredRuns(hook=self.hook, jq=self.jq, isolation=_Here())
        result = await runs.run(self.hook.ref, self.hook.config, contexts)
        failure = "" if result.failure is None else str(result.failure)
        return Played(operations=result.operations, failure=failure)


def is_declared(path: Path) -> bool:
    """Return whether a file declares hooks, and is none itself."""
    return path.suffix in _SUFFIXES and path.is_file() and not os.access(path, os.X_OK)


def declared_in(path: Path, name: str = "") -> DeclaredHook:
    """Return the hook of a file.

    Args:
        path: Of it.
        name: Which, where it holds several.

    Raises:
        InvalidSetting: There is none, or not only one.
        InvalidPolicy: It cannot be read, with all places.
    """
    found = [obj for _, obj in objects(read_all([str(path)])) if _is_hook(obj)]
    wanted = [obj for obj in found if name in {"", obj["metadata"]["name"]}]
    if len(wanted) != 1:
        names = ", ".join(sorted(str(policy_ref(obj)) for obj in found))
        said = f"holds {names}: name one with --hook" if found else "no Hook is in there"
        raise InvalidSetting(f"{path}: {said}")
    obj = wanted[0]
    if obj["kind"] == HOOK_KINDS[0].kind and not obj["metadata"].get("namespace"):
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": "default"}}
    hook = compile_hook(obj)
    if hook.executable:
        raise InvalidSetting(f"{path}: {hook.executable} is an executable: run that itself")
    return hook


def _is_hook(obj: Object) -> bool:
    return (obj["apiVersion"], obj["kind"]) in _KINDS
