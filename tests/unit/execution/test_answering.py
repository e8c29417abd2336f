"""Scripts that answer admission and conversion reviews: the response, however they behave."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.meta import PolicyRef
from reconciler.clock import SystemClock
from reconciler.execution.executables import Answer, Executables
from reconciler.execution.runs import ExecutableRuns, RunLabels
from reconciler.hooks.config import load_config
from reconciler.hooks.metrics import HookMetrics
from reconciler.hooks.ports import RunFailure
from reconciler.services.hooks.answering import (
    AdmissionAnswers,
    AnsweredHook,
    ConversionAnswers,
    ConversionFailed,
    HookCalls,
    Verdict,
)
from reconciler.services.hooks.snapshots import HookSnapshots
from tests.linux import linux
from tests.unit.execution.conftest import script

pytestmark = linux

REF = PolicyRef(
    api_version="kube-retrofit.dev/v1alpha1", kind="Hook", namespace="shop", name="hook.sh"
)
ANSWER = "echo '{\"allowed\": true}' > $VALIDATING_RESPONSE_PATH"


class Heard:
    """A `RunObserver` that keeps the problems and the ends of runs."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.ends: list[tuple[RunLabels, RunFailure | None]] = []

    def said(self, run: RunLabels, line: str, stream: str) -> None:
        pass

    def noticed(self, run: RunLabels, problem: str) -> None:
        self.problems.append(problem)

    def ended(
        self, run: RunLabels, answer: Answer, seconds: float, failure: RunFailure | None
    ) -> None:
        self.ends.append((run, failure))


class World:
    def __init__(self, executables: Executables, folder: Path) -> None:
        self.heard = Heard()
        self.metrics = HookMetrics()
        # A short grace period as in the program, since the API server does not wait longer.
        self._executables = replace(executables, limits=replace(executables.limits, grace=0.1))
        self._folder = folder

    def calls(self, lines: Sequence[str], parallel: int) -> HookCalls:
        runs = ExecutableRuns(
            executables=self._executables,
            known={REF: script(self._folder, *lines)},
            metrics=self.metrics,
            observer=self.heard,
        )
        return HookCalls(
            answers=runs,
            snapshots=HookSnapshots({REF: ()}),
            turns=asyncio.Semaphore(parallel),
            clock=SystemClock(),
        )

    def hook(self, config: str) -> AnsweredHook:
        return AnsweredHook(ref=REF, name="some/hook.sh", config=load_config(config))

    async def review(
        self,
        *lines: str,
        policy: str = "Fail",
        field: str = "kubernetesValidating",
        seconds: int = 20,
        parallel: int = 4,
        **request: Any,
    ) -> Verdict:
        (asked,) = self.hook(
            f"""
            configVersion: v1
            {field}:
            - name: a.example.com
              failurePolicy: {policy}
              timeoutSeconds: {seconds}
              rules:
              - {{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}}
            """
        ).asked
        answers = AdmissionAnswers(calls=self.calls(lines, parallel), namespace="shop")
        request = {"uid": "1", "namespace": "a", "object": {"kind": "Pod"}, **request}
        return await answers.review(asked, {"kind": "AdmissionReview", "request": request})

    async def convert(self, *lines: str, objects: Sequence[Any] = ()) -> list[Any]:
        hook = self.hook(
            """
            configVersion: v1
            kubernetesCustomResourceConversion:
            - name: up
              crdName: crontabs.g
              conversions:
              - {fromVersion: v1, toVersion: v2}
              - {fromVersion: v2, toVersion: g/v3}
            """
        )
        answers = ConversionAnswers(calls=self.calls(lines, 4))
        request = {"uid": "1", "desiredAPIVersion": "g/v3", "objects": list(objects)}
        review = {"kind": "ConversionReview", "request": request}
        return await answers.convert(hook.converters, review)


@pytest.fixture
def world(executables: Executables, tmp_path: Path) -> World:
    return World(executables, tmp_path)


async def test_a_script_reads_the_review_and_its_response_is_returned(world: World) -> None:
    verdict = await world.review(
        'grep -q \'"binding": "a.example.com"\' "$BINDING_CONTEXT_PATH" || exit 1',
        'grep -q \'"kind": "AdmissionReview"\' "$BINDING_CONTEXT_PATH" || exit 2',
        'test "$ADMISSION_RESPONSE_PATH" = "$VALIDATING_RESPONSE_PATH" || exit 3',
        'echo \'{"name": "n", "set": 1}\' > $METRICS_PATH',
        'echo \'{"allowed":false, "message": "no", "warnings": ["w"]}\'> $ADMISSION_RESPONSE_PATH',
    )
    answer = verdict.answer
    assert (answer.allowed, answer.message, answer.warnings) == (False, "no", ("w",))
    assert verdict.code == 403
    ((run, failure),) = world.heard.ends
    assert (run.binding, run.queue, failure) == ("a.example.com", "", None)
    assert 'n{hook="some/hook.sh"} 1.0\n' in world.metrics.exposition()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("echo token >&2; exit 3",), "hook some/hook.sh failed (exit 3); see the log"),
        (("echo token >&2; kill -9 $$",), "hook some/hook.sh failed (ended by SIGKILL); see the"),
        (("echo '{' > $METRICS_PATH", ANSWER), "failed ($METRICS_PATH"),
    ],
)
async def test_the_failure_policy_decides_when_a_hook_fails(
    world: World, lines: Sequence[str], said: str
) -> None:
    refused = await world.review(*lines)
    assert not refused.answer.allowed
    assert refused.code == 500
    assert said.partition(" (")[0] in refused.answer.message
    passed = await world.review(*lines, policy="Ignore")
    assert passed.answer.allowed
    (warning,) = passed.answer.warnings
    assert warning.startswith("not reviewed: hook some/hook.sh failed (")
    assert "token" not in f"{refused.answer}{passed.answer}"


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("true",), "$VALIDATING_RESPONSE_PATH: is empty"),
        (("echo '{\"allowed' > $VALIDATING_RESPONSE_PATH",), "is not JSON"),
        (("echo '{\"allowed\": 1}' > $VALIDATING_RESPONSE_PATH",), "expected true or false"),
    ],
)
async def test_a_successful_hook_without_a_valid_response_refuses(
    world: World, lines: Sequence[str], said: str, policy: str
) -> None:
    verdict = await world.review(*lines, policy=policy)
    assert not verdict.answer.allowed
    assert said in verdict.answer.message
    ((_, failure),) = world.heard.ends
    assert failure is not None


async def test_a_response_file_that_is_not_regular_is_a_failure(world: World) -> None:
    lines = 'rm "$VALIDATING_RESPONSE_PATH"; mkfifo "$VALIDATING_RESPONSE_PATH"'
    verdict = await world.review(lines)
    assert "is no longer a regular file" in verdict.answer.message


async def test_a_hook_that_takes_too_long_is_ended_in_time(world: World) -> None:
    begun = asyncio.get_running_loop().time()
    verdict = await world.review("trap '' TERM; sleep 60 & wait; wait", seconds=1)
    assert asyncio.get_running_loop().time() - begun < 5
    assert "took longer than 0.5 s" in verdict.answer.message


async def test_waiting_for_a_free_process_counts_towards_the_timeout(world: World) -> None:
    verdict = await world.review(ANSWER, seconds=1, parallel=0, policy="Ignore")
    assert verdict.answer.allowed
    assert "no process was free for 0.5 s" in verdict.answer.warnings[0]


async def test_operations_of_an_admission_hook_are_dropped_and_reported(world: World) -> None:
    verdict = await world.review("echo 'operation: Create' > $KUBERNETES_PATCH_PATH", ANSWER)
    assert verdict.answer.allowed
    assert world.heard.problems == ["its operations are left out: a webhook changes nothing"]


@pytest.mark.parametrize(
    "request_",
    [
        {"namespace": "kube-system"},
        {"namespace": "shop"},
        {
            "namespace": "",
            "name": "kube-system",
            "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        },
    ],
)
async def test_no_hook_is_run_for_objects_in_system_namespaces(
    world: World, request_: dict[str, Any]
) -> None:
    verdict = await world.review("exit 1", **request_)
    assert verdict.answer.allowed
    assert world.heard.ends == []


STEP = """
given=$(tr -d ' \\n' < "$BINDING_CONTEXT_PATH")
to=$(echo "$given" | sed 's/.*"toVersion":"\\([^"]*\\)".*/\\1/') && to=${to#g/}
objects=$(echo "$given" | sed 's/.*"objects":\\(\\[.*\\]\\),"uid".*/\\1/')
echo "{\\"convertedObjects\\": $objects}" | sed "s#g/v[12]#g/$to#g" > $CONVERSION_RESPONSE_PATH
"""


def crontab(version: str, name: str) -> dict[str, Any]:
    return {"apiVersion": f"g/{version}", "kind": "CronTab", "metadata": {"name": name}}


async def test_objects_of_several_versions_are_converted_in_separate_chains(world: World) -> None:
    objects = [crontab("v1", "a"), crontab("v3", "b"), crontab("v2", "c"), crontab("v1", "d")]
    found = await world.convert(STEP, objects=objects)
    assert found == [crontab("v3", name) for name in "abcd"]
    # One run per conversion step, for all objects of its version together.
    assert len(world.heard.ends) == 3


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("exit 4",), "hook some/hook.sh failed (exit 4); see the log"),
        (("true",), "gave no valid answer: $CONVERSION_RESPONSE_PATH: is empty"),
        (("echo '{\"failedMessage\": \"it is broken\"}' > $CONVERSION_RESPONSE_PATH",), "it is"),
        (("echo '{}' > $CONVERSION_RESPONSE_PATH",), "has 0 objects, expected 1"),
        (
            ("echo '{\"convertedObjects\": [{}]}' > $CONVERSION_RESPONSE_PATH",),
            "convertedObjects[0]: expected an object with metadata",
        ),
    ],
)  # fmt: skip
async def test_a_failed_conversion_is_refused_with_the_reason(
    world: World, lines: Sequence[str], said: str
) -> None:
    with pytest.raises(ConversionFailed, match=r".") as caught:
        await world.convert(*lines, objects=[crontab("v1", "a")])
    assert said in str(caught.value)


async def test_a_missing_conversion_is_reported_with_the_available_ones(world: World) -> None:
    with pytest.raises(ConversionFailed, match="no hook converts g/v9 to g/v3; available: v1"):
        await world.convert("true", objects=[crontab("v9", "a")])
