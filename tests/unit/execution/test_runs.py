"""The port that runs executables, and its reports."""

from pathlib import Path

import pytest

from reconciler.api.meta import PolicyRef
from reconciler.execution.executables import Answer, Executables
from reconciler.execution.runs import ExecutableRuns, RunLabels
from reconciler.hooks.config import load_config
from reconciler.hooks.metrics import HookMetrics
from reconciler.hooks.ports import HookRef, RunFailure, RunResult
from tests.linux import linux
from tests.unit.execution.conftest import SECONDS, script

pytestmark = linux

REF = PolicyRef(
    api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name="some.hook.sh"
)
CONFIG = load_config(
    "{configVersion: v1, kubernetes: [{name: pods, kind: Pod, queue: slow, allowFailure: true}]}"
)
CONTEXTS = [{"binding": "pods", "type": "Event", "watchEvent": "Added"}, {"binding": "pods"}]
SEEN = RunLabels(
    hook="some/hook.sh", binding="pods", queue="slow", event="Added", allow_failure=True
)


class Seen:
    def __init__(self) -> None:
        self.lines: list[tuple[RunLabels, str, str]] = []
        self.problems: list[str] = []
        self.ends: list[tuple[RunLabels, RunFailure | None]] = []

    def said(self, run: RunLabels, line: str, stream: str) -> None:
        self.lines.append((run, line, stream))

    def noticed(self, run: RunLabels, problem: str) -> None:
        self.problems.append(problem)

    def ended(
        self, run: RunLabels, answer: Answer, seconds: float, failure: RunFailure | None
    ) -> None:
        assert answer.ended is not None
        assert seconds > 0
        self.ends.append((run, failure))


class World:
    def __init__(self, executables: Executables, folder: Path) -> None:
        self.seen, self.metrics = Seen(), HookMetrics()
        self._executables, self._folder = executables, folder

    async def run(self, *lines: str, ref: HookRef = REF) -> RunResult:
        runs = ExecutableRuns(
            executables=self._executables,
            known={REF: script(self._folder, *lines)},
            metrics=self.metrics,
            observer=self.seen,
            seconds=SECONDS,
        )
        return await runs.run(ref, CONFIG, CONTEXTS)


@pytest.fixture
def world(executables: Executables, tmp_path: Path) -> World:
    return World(executables, tmp_path)


async def test_the_file_with_the_contexts_is_indented_as_by_the_original(world: World) -> None:
    """Hooks search it for lines, and print it."""
    result = await world.run("cat $BINDING_CONTEXT_PATH")
    assert result.failure is None
    assert [line for _, line, _ in world.seen.lines] == [
        "[",
        "  {",
        '    "binding": "pods",',
        '    "type": "Event",',
        '    "watchEvent": "Added"',
        "  },",
        "  {",
        '    "binding": "pods"',
        "  }",
        "]",
    ]


async def test_a_run_returns_its_operations_and_is_reported(world: World) -> None:
    result = await world.run(
        'grep -o Added "$BINDING_CONTEXT_PATH"',
        'echo "operation: Delete" > $KUBERNETES_PATCH_PATH',
        'echo \'{"name":"n","add":2}\' > $METRICS_PATH',
    )
    assert result == RunResult(operations=[{"operation": "Delete"}])
    assert world.seen.lines == [(SEEN, "Added", "stdout")]
    assert world.seen.ends == [(SEEN, None)]
    assert 'n{hook="some/hook.sh"} 2.0\n' in world.metrics.exposition()


async def test_a_failed_run_returns_its_operations_but_records_no_metrics(world: World) -> None:
    result = await world.run(
        'echo "operation: MergePatch" > $KUBERNETES_PATCH_PATH',
        'echo \'{"name":"n","add":2}\' > $METRICS_PATH',
        "echo no >&2; exit 2",
    )
    assert result == RunResult(
        operations=[{"operation": "MergePatch"}],
        failure=RunFailure(reason="no", exit_code=2),
    )
    assert world.seen.ends == [(SEEN, result.failure)]
    assert world.metrics.exposition() == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("echo '{' > $METRICS_PATH", "metrics[0]: is not a complete JSON object"),
        ("echo '{\"a\": [' > $KUBERNETES_PATCH_PATH", "operations: "),
    ],
)
async def test_output_that_cannot_be_parsed_fails_the_run(
    world: World, line: str, said: str
) -> None:
    result = await world.run(line)
    assert str(result.failure).startswith(said)


async def test_problems_that_do_not_fail_a_run_are_reported(world: World) -> None:
    await world.run(
        'echo \'{"name":"n","set":1}{"name":"n","add":1}\' > $METRICS_PATH', "sleep 9 &"
    )
    assert world.seen.problems == [
        "it left processes behind, which were ended",
        "n is already a gauge and cannot also be a counter",
    ]


async def test_a_missing_executable_fails_the_run(world: World) -> None:
    gone = PolicyRef(
        api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name="gone.sh"
    )
    assert str((await world.run(ref=gone)).failure) == "its executable no longer exists"
