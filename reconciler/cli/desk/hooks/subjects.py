"""The hooks that the CLI can run: executables, and hooks declared in files."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from reconciler.api.meta import Object, policy_ref
from reconciler.cli.desk.files import SUFFIXES, objects, read_all
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
_KINDS: Final = frozenset((kind.api_version, kind.kind) for kind in HOOK_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of a run.

    Attributes:
        operations: Documents that are not validated yet.
        failure: The reason of the failure; empty on success.
        problems: Further messages about the run.
    """

    operations: Sequence[Any] = ()
    metrics: Sequence[MetricOperation] = ()
    failure: str = ""
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """An executable hook, which may change any object."""

    executable: Executable
    executables: Executables
    jq: Jq
    seconds: float
    confined_to: str = ""
    guard: Protection | None = None

    @property
    def name(self) -> str:
        """Return the path of the executable in its folder."""
        return self.executable.name

    async def config(self) -> HookConfig:
        """Return the configuration that the executable prints."""
        return await config_of(self.executables, self.executable, self.jq)

    async def play(self, contexts: Sequence[Mapping[str, Any]], say: Say) -> Played:
        """Run the executable, and parse the files that it writes."""
        context = render_json(list(contexts), indented=True)
        answer = await self.executables.run(self.executable, context, say, seconds=self.seconds)
        failure = "" if answer.failure is None else str(answer.failure)
        played = Played(failure=failure, problems=tuple(problems_of(answer)))
        try:
            return replace(
                played,
                operations=decode_operations(answer.operations),
                metrics=parse_metrics(answer.metrics),
            )
        except InvalidPolicy:
            if failure:
                return played
            raise


class _Here:
    """An `Isolation` port that evaluates directly: the CLI has no other tenants."""

    async def evaluate(self, work: Callable[[], _T], tenant: str) -> _T:
        del tenant
        return work()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A hook declared in a file by a Hook or ClusterHook."""

    hook: DeclaredHook
    jq: Jq
    guard: Protection = field(default_factory=Protection)

    @property
    def name(self) -> str:
        """Return the kind and name of the hook."""
        return f"{self.hook.ref.kind} {self.hook.ref}"

    @property
    def confined_to(self) -> str:
        """Return the namespace of a Hook, empty for a ClusterHook."""
        return self.hook.confined_to

    async def config(self) -> HookConfig:
        """Return the declared configuration, after compiling its jq programs."""
        await compile_programs(self.hook.programs, self.jq)
        return self.hook.config

    async def play(self, contexts: Sequence[Mapping[str, Any]], say: Say) -> Played:
        """Evaluate the hook's programs."""
        del say
        runs = DeclaredRuns(hook=self.hook, jq=self.jq, isolation=_Here())
        result = await runs.run(self.hook.ref, self.hook.config, contexts)
        failure = "" if result.failure is None else str(result.failure)
        return Played(operations=result.operations, failure=failure)


DeskHook: TypeAlias = Script | Declared
"""A hook that can be run on this machine: `config` and `play` raise all its faults at once."""


def is_declared(path: Path) -> bool:
    """Return whether a file is YAML or JSON with declared hooks, and not executable."""
    return path.suffix in SUFFIXES and path.is_file() and not os.access(path, os.X_OK)


def declared_in(path: Path, name: str = "") -> DeclaredHook:
    """Return the hook that a file declares.

    Args:
        name: The name of the hook, where the file declares several.

    Raises:
        InvalidSetting: The file does not hold exactly one such hook.
        InvalidPolicy: The hook is invalid; the error holds all faults.
    """
    found = [obj for _, obj in objects(read_all([str(path)])) if _is_hook(obj)]
    wanted = [obj for obj in found if name in {"", obj["metadata"]["name"]}]
    if len(wanted) != 1:
        names = ", ".join(sorted(str(policy_ref(obj)) for obj in found))
        said = f"holds {names}: name one with --hook" if found else "no Hook found"
        raise InvalidSetting(f"{path}: {said}")
    obj = wanted[0]
    if obj["kind"] == HOOK_KINDS[0].kind and not obj["metadata"].get("namespace"):
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": "default"}}
    hook = compile_hook(obj)
    if hook.executable:
        raise InvalidSetting(f"{path}: {hook.executable} is an executable: name that file instead")
    return hook


def _is_hook(obj: Object) -> bool:
    return (obj["apiVersion"], obj["kind"]) in _KINDS
