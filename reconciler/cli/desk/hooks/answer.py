"""The command `retrofit hooks answer`: the response of a hook to a review in a file."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import orjson

from reconciler.api.meta import Object, PolicyRef
from reconciler.cli.desk.file_objects import FileObjects, Scopes
from reconciler.cli.desk.files import NamedPath, read_all
from reconciler.cli.desk.hooks.bindings import DeskBindings
from reconciler.cli.desk.hooks.executing import (
    config_of,
    confirm,
    desk_tools,
    executables_in,
    faults_of,
    hook_env_option,
    yes_option,
)
from reconciler.cli.desk.hooks.report import Report
from reconciler.cli.desk.inputs import placed
from reconciler.cli.output.exits import FINDINGS
from reconciler.cli.output.masking import Mask, mask_of
from reconciler.cli.output.screen import warn
from reconciler.clock import SystemClock
from reconciler.engine.patch.rfc6902 import EVANPHX4, apply_operations, compile_operations
from reconciler.errors import EvaluationError, InvalidPolicy, InvalidSetting
from reconciler.execution.discovery import Executable
from reconciler.execution.executables import Answer, Executables
from reconciler.execution.runs import ExecutableRuns, RunLabels
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.contexts import SnapshotOf
from reconciler.hooks.declared import HOOKS
from reconciler.hooks.metrics import HookMetrics
from reconciler.hooks.ports import HookRef, Reply, RunFailure
from reconciler.hooks.responses import ResponseFiles
from reconciler.services.hooks.answering import (
    AdmissionAnswers,
    AnsweredHook,
    AskedBinding,
    ConversionAnswers,
    ConversionFailed,
    HookCalls,
    Verdict,
)
from reconciler.services.ports.jq import Jq
from reconciler.serving.review import (
    CONVERSION,
    KIND,
    BadReview,
    decode_admission,
    decode_conversion,
)

_Said = TypeVar("_Said")

_REF: Final = PolicyRef(
    api_version=HOOKS.api_version, kind=HOOKS.kind, namespace="default", name="hook"
)
_EPILOG: Final = """\b
Examples:
  retrofit hooks answer hooks/team-label.sh --review review.yaml
  retrofit hooks answer hooks/convert.py --review review.json -t objs/ --yes
"""


@click.command("answer", epilog=_EPILOG)
@click.argument("path", metavar="HOOK", type=NamedPath(path_type=Path))
@click.option(
    "--review",
    "review",
    required=True,
    metavar="FILE",
    help="An AdmissionReview or ConversionReview, as the API server sends it.",
)
@click.option("--binding", default="", metavar="NAME", help="The binding to call.")
@click.option(
    "--target-resource",
    "-t",
    "targets",
    multiple=True,
    metavar="FILE",
    help="Objects of the cluster, for snapshots.",
)
@click.option("--show-secrets", is_flag=True, help="Show the content of Secrets.")
@hook_env_option
@yes_option
def answer(
    path: Path,
    review: str,
    binding: str,
    targets: tuple[str, ...],
    *,
    show_secrets: bool,
    added: tuple[str, ...],
    yes: bool,
) -> None:
    """Run a hook for a review, and show its answer.

    The command also shows the input and the output of the hook.
    Time limit and failure policy are those of the binding. The command does not check whether
    the rules of the binding select the request.

    \b
    Exit code:
      0  the hook answered, whatever the answer
      1  it failed, or gave no answer
      2  could not run: wrong usage, a missing file, no such binding
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    asked = _review(review)
    besides = placed(targets, Scopes())
    if path.is_dir():
        raise InvalidSetting(f"{path}: it is a folder; name one hook")
    (executable,) = executables_in(path)
    confirm(path, yes=yes)
    mask = Mask() if show_secrets else mask_of([*_objects(asked["request"]), *besides])
    report = Report(sys.stdout, mask)

    async def play() -> bool:
        async with desk_tools(added) as (executables, jq):
            desk = _Desk(executables, executable, jq, report)
            return await desk.play(asked, binding, FileObjects(besides))

    if not asyncio.run(play()):
        sys.exit(FINDINGS)


def _review(name: str) -> dict[str, Any]:
    found = list(read_all([name]))
    if len(found) != 1:
        raise InvalidSetting(f"{name}: expected one review, found {len(found)} documents")
    (document,) = found
    value = document.value
    kind = value.get("kind") if isinstance(value, Mapping) else None
    try:
        body = orjson.dumps(value)
        return decode_conversion(body) if kind == CONVERSION else decode_admission(body)
    except BadReview as error:
        known = f"write an {KIND} or a {CONVERSION}"
        raise InvalidSetting(f"{document.place}: {error}; {known}") from error


def _objects(request: Mapping[str, Any]) -> list[Object]:
    found = [request.get("object"), request.get("oldObject"), *(request.get("objects") or ())]
    return [item for item in found if isinstance(item, dict)]


@dataclass(frozen=True, slots=True)
class _Shown:
    """Runs the hook as in a cluster, and prints its binding contexts first."""

    runs: ExecutableRuns
    report: Report

    async def ask(
        self,
        hook: HookRef,
        config: HookConfig,
        contexts: Sequence[Mapping[str, Any]],
        read: Callable[[ResponseFiles], _Said],
        *,
        seconds: float,
    ) -> Reply[_Said]:
        self.report.contexts([dict(item) for item in contexts])
        return await self.runs.ask(hook, config, contexts, read, seconds=seconds)


@dataclass(slots=True)
class _Watched:
    """Observes runs: prints the hook's output, and records failures."""

    name: str
    report: Report
    failures: list[RunFailure] = field(default_factory=list)

    def said(self, _run: RunLabels, line: str, stream: str) -> None:
        self.report.line(line, stream)

    def noticed(self, _run: RunLabels, problem: str) -> None:
        warn(f"{self.name}: {problem}")

    def ended(
        self, _run: RunLabels, _answer: Answer, _seconds: float, failure: RunFailure | None
    ) -> None:
        if failure is not None:
            self.failures.append(failure)
            warn(f"{self.name} failed: {failure}")


@dataclass(frozen=True, slots=True)
class _Taken:
    """Provides the snapshots of the objects of files."""

    taken: SnapshotOf

    def of(self, _hook: HookRef) -> SnapshotOf:
        return self.taken

    def problem(self, _hook: HookRef, _bindings: Sequence[str]) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class _Desk:
    executables: Executables
    executable: Executable
    jq: Jq
    report: Report

    async def play(
        self, review: Mapping[str, Any], binding: str, file_objects: FileObjects
    ) -> bool:
        """Run the hook for a review; return whether it answered."""
        try:
            config = await config_of(self.executables, self.executable, self.jq)
        except InvalidPolicy as error:
            for line in faults_of(error):
                warn(f"{self.executable.name}: {line}")
            return False
        watched = _Watched(self.executable.name, self.report)
        runs = ExecutableRuns(
            executables=self.executables,
            known={_REF: self.executable},
            metrics=HookMetrics(),
            observer=watched,
        )
        calls = HookCalls(
            answers=_Shown(runs, self.report),
            snapshots=_Taken(await DeskBindings(config, self.jq, file_objects).snapshots()),
            turns=asyncio.Semaphore(1),
            clock=SystemClock(),
        )
        hook = AnsweredHook(ref=_REF, name=self.executable.name, config=config)
        if review["kind"] == CONVERSION:
            return await self._convert(calls, hook, review)
        asked = _named(hook, binding)
        verdict = await AdmissionAnswers(calls=calls, namespace="").review(asked, review)
        return self._show(verdict, asked, review["request"]) and not watched.failures

    def _show(self, verdict: Verdict, asked: AskedBinding, request: Mapping[str, Any]) -> bool:
        answer = verdict.answer
        said = "allowed" if answer.allowed else f"refused ({verdict.code}): {answer.message}"
        self.report.answer(said, refused=not answer.allowed, warnings=answer.warnings)
        obj = request.get("object")
        if not answer.allowed or not answer.patch:
            return True
        if not asked.mutating:
            warn(f"{self.executable.name}: its patch is left out: the webhook is validating")
            return True
        try:
            operations = compile_operations(list(answer.patch), location="patch")
            self.report.change(obj or {}, apply_operations(obj, operations, profile=EVANPHX4))
        except (InvalidPolicy, EvaluationError) as error:
            warn(f"{self.executable.name}: the API server cannot apply its patch: {error}")
            return False
        return True

    async def _convert(
        self, calls: HookCalls, hook: AnsweredHook, review: Mapping[str, Any]
    ) -> bool:
        if not hook.converters:
            raise InvalidSetting("the hook has no kubernetesCustomResourceConversion binding")
        before = review["request"]["objects"]
        try:
            after = await ConversionAnswers(calls=calls).convert(hook.converters, review)
        except ConversionFailed as error:
            self.report.answer(f"not converted: {error}", refused=True)
            return False
        self.report.answer("converted", refused=False)
        for old, new in zip(before, after, strict=True):
            self.report.change(old, new)
        return True


def _named(hook: AnsweredHook, name: str) -> AskedBinding:
    found = [item for item in hook.asked if name in {"", item.binding.name}]
    if len(found) == 1:
        return found[0]
    known = ", ".join(item.binding.name for item in hook.asked)
    if not known:
        raise InvalidSetting("the hook has no kubernetesValidating or kubernetesMutating binding")
    raise InvalidSetting(f"name the binding to call with --binding, one of {known}")
