"""Runs one test against a cluster."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.chainsaw.assertions import compare
from tests.conformance.chainsaw.cluster import ApiError, Cluster, Object, Ref
from tests.conformance.chainsaw.loader import parse_duration
from tests.conformance.chainsaw.model import Operation, Step, Test
from tests.conformance.chainsaw.operations import Failure, Objects, bind, expand_or_fail
from tests.conformance.chainsaw.shell import Outcome, Shell

_WAIT = 30.0
_TAIL = 2000
# Two words, as in chainsaw, make the namespace of a test recognisable.
_FIRST = ("brave", "calm", "fair", "keen", "mild", "neat", "quick", "warm")
_SECOND = ("badger", "crane", "finch", "heron", "lynx", "otter", "robin", "wren")


async def run(
    test: Test, cluster: Cluster, shell: Shell, describe: Callable[[], str] = lambda: ""
) -> None:
    """Run a test in its folder and clean up after it, whatever happens.

    Args:
        test: The test to run.
        cluster: The cluster on which the test runs.
        shell: Runs the scripts and commands of the test.
        describe: Returns the state of the cluster. Called if a step failed, before the clean-up.

    Raises:
        Failure: A step or the clean-up did not end as the test requires. The message names the
            step, the operation and the last difference.
    """
    await _Run(test, cluster, shell, describe).run()


@dataclass(slots=True)
class _Run:
    test: Test
    cluster: Cluster
    shell: Shell
    describe: Callable[[], str]
    objects: Objects = field(init=False)
    # Each step with the number of objects that were created before it.
    begun: list[tuple[int, Step]] = field(default_factory=list)

    async def run(self) -> None:
        namespace = self.test.namespace or await self._free_name()
        self.objects = Objects(
            cluster=self.cluster,
            folder=self.test.folder,
            timeouts=self.test.configuration.timeouts,
            namespace=namespace,
            grace=self.test.configuration.grace,
            template=self.test.template,
            bindings={"namespace": namespace, "test": self.test.document},
        )
        problems: list[str] = []
        try:
            await self._make_namespace(namespace)
            for step in self.test.steps:
                await self._step(step)
        except (ApiError, Failure) as problem:
            problems += [str(problem), self.describe()]
        finally:
            await asyncio.sleep(self.test.configuration.delay_before_cleanup)
            problems += await self._clean_up()
        if problems:
            raise Failure("\n".join(filter(None, problems)))

    async def _free_name(self) -> str:
        while True:
            name = f"chainsaw-{secrets.choice(_FIRST)}-{secrets.choice(_SECOND)}"
            # A namespace with this name may still be terminating after an earlier test.
            if await self.cluster.get(_namespace(name)) is None:
                return name

    async def _make_namespace(self, name: str) -> None:
        ref = _namespace(name)
        if await self.cluster.get(ref) is None:
            document: Object = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name},
            }
            await self.cluster.create(ref, document)
            self.objects.created.append(ref)

    async def _step(self, step: Step) -> None:
        outer = self.objects.bindings
        self.begun.append((len(self.objects.created), step))
        try:
            self.objects.bindings = bind(step.bindings, outer)
            await self._operations(step.do)
        except Failure:
            await self._operations(step.catch)
            raise
        finally:
            await self._operations(step.finally_)
            self.objects.bindings = outer

    async def _operations(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            try:
                await self._operation(operation)
            except (Failure, ApiError) as problem:
                raise Failure(f"{operation.place}: {problem}") from problem

    async def _operation(self, operation: Operation) -> None:
        match operation.action:
            case "assert" | "error":
                await self.objects.check(operation)
            case "delete":
                await self.objects.delete(operation)
            case "sleep":
                await asyncio.sleep(parse_duration(operation.arguments["duration"]))
            case "script" | "command" | "wait":
                await self._execute(operation)
            case _:
                await self.objects.write(operation)

    async def _execute(self, operation: Operation) -> None:
        bindings = self.objects.bindings
        arguments = expand_or_fail(operation.arguments.get("args", []), bindings)
        default = self.test.configuration.timeouts.exec if operation.action != "wait" else _WAIT
        # As in Chainsaw, a timeout of 0 is a timeout; it does not stand for the default.
        within = default if operation.timeout is None else operation.timeout
        match operation.action:
            case "script":
                argv = ["sh", "-c", operation.arguments["content"]]
            case "command":
                argv = [operation.arguments["entrypoint"], *arguments]
            case _:
                argv = wait_command(operation.arguments, self.objects.namespace, within)
                within += 5.0
        extra = {"NAMESPACE": self.objects.namespace}
        for entry in operation.arguments.get("env", []):
            extra[entry["name"]] = str(expand_or_fail(entry["value"], bindings))
        outcome = await self.shell.run(argv, self.test.folder, extra, within)
        complaint = judge_outcome(outcome, operation.arguments.get("check"), bindings)
        if complaint is not None:
            raise Failure(complaint)

    async def _clean_up(self) -> list[str]:
        problems: list[str] = []
        for before, step in reversed(self.begun):
            problems += await self._attempt_cleanup(step)
            problems += await self._remove_created(down_to=before)
        return problems + await self._remove_created(down_to=0)

    async def _remove_created(self, *, down_to: int) -> list[str]:
        problems: list[str] = []
        configuration = self.test.configuration
        own = _namespace(self.objects.namespace)
        while len(self.objects.created) > down_to:
            ref = self.objects.created.pop()
            try:
                if ref == own and configuration.fast_delete:
                    await self.cluster.delete(ref)
                else:
                    await self.objects.remove(ref, configuration.timeouts.cleanup)
            except (ApiError, Failure) as problem:
                problems.append(f"clean-up of {ref}: {problem}")
        return problems

    async def _attempt_cleanup(self, step: Step) -> list[str]:
        try:
            self.objects.bindings = bind(step.bindings, self.objects.bindings)
            await self._operations(step.cleanup)
        except Failure as failure:
            return [str(failure)]
        return []


def judge_outcome(outcome: Outcome, check: Any, bindings: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the end of a process, or None if it ended as expected.

    A `check` sees ``$stdout``, ``$stderr`` and ``$error``, and then decides alone.
    """
    said = f"stdout: {outcome.stdout[-_TAIL:]}\nstderr: {outcome.stderr[-_TAIL:]}"
    if check is None:
        return f"{outcome.error}\n{said}" if outcome.error else None
    seen = {"stdout": outcome.stdout, "stderr": outcome.stderr, "error": outcome.error}
    differences = compare(check, None, {**bindings, **seen})
    if not differences:
        return None
    lines = "\n".join(map(str, differences))
    return f"{lines}\nended with {outcome.error or 'success'}\n{said}"


def wait_command(arguments: Mapping[str, Any], namespace: str, within: float) -> list[str]:
    """Return the kubectl command of a wait operation.

    Raises:
        Failure: The operation waits for something that the runner does not support.
    """
    group, _, version = arguments["apiVersion"].rpartition("/")
    # The final dot marks a version of the core group; without it kubectl would read a group.
    kind = f"{arguments['kind']}.{version}.{group}".lower()
    aim = arguments["for"]
    match aim:
        case {"condition": {"name": name, **rest}}:
            state = f"condition={name}" + (f"={rest['value']}" if "value" in rest else "")
        case {"deletion": _}:
            state = "delete"
        case {"jsonPath": {"path": path, "value": value}}:
            state = f"jsonpath={path}={value}"
        case _:
            raise Failure(f"wait for {sorted(aim)} is not known")
    if "name" in arguments:
        chosen = [arguments["name"]]
    elif "selector" in arguments:
        chosen = ["--selector", arguments["selector"]]
    else:
        chosen = ["--all"]
    return [
        "kubectl",
        "wait",
        kind,
        *chosen,
        f"--namespace={arguments.get('namespace', namespace)}",
        f"--for={state}",
        f"--timeout={within:g}s",
    ]


def _namespace(name: str) -> Ref:
    return Ref(api_version="v1", kind="Namespace", name=name)
