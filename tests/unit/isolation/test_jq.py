"""jq programs in worker processes: their results, limits and isolation."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from reconciler.errors import EvaluationError, Interrupted, InvalidPolicy
from reconciler.isolation import jqworker
from reconciler.isolation.jq import JqLimits, JqWorkers

MIB = 1024 * 1024


@pytest.fixture
async def workers() -> AsyncIterator[JqWorkers]:
    made = JqWorkers(workers=1, limits=JqLimits(seconds=0.1, memory=64 * MIB, answer=1000))
    yield made
    await made.close()


async def one(workers: JqWorkers, program: str, value: object = None) -> list[object]:
    (found,) = await workers.evaluate(program, [value])
    if isinstance(found, EvaluationError):
        raise found
    return found


async def test_results_are_in_the_order_of_the_inputs(workers: JqWorkers) -> None:
    found = await workers.evaluate(".a[]", [{"a": [index, -index]} for index in range(300)])
    assert found == [[index, -index] for index in range(300)]


async def test_an_input_that_cannot_be_encoded_does_not_affect_the_others(
    workers: JqWorkers,
) -> None:
    found = await workers.evaluate("type", [1, nested(2000), nested(250), "x"])
    assert [found[0], found[2], found[3]] == [["number"], ["object"], ["string"]]
    assert isinstance(found[1], EvaluationError)


async def test_a_result_that_cannot_be_decoded_is_an_error(workers: JqWorkers) -> None:
    program = "if . == 1 then reduce range(5000) as $i (1; [.]) else . end"
    found = await workers.evaluate(program, [1, 2])
    assert isinstance(found[0], EvaluationError)
    assert found[1] == [2]


def nested(levels: int) -> dict[str, object]:
    made: dict[str, object] = {}
    for _ in range(levels):
        made = {"a": made}
    return made


async def test_an_input_that_ends_the_worker_does_not_affect_the_others(
    workers: JqWorkers,
) -> None:
    program = 'if . == 1 then repeat(.) elif . == 2 then error("no") else . end'
    found = await workers.evaluate(program, [0, 1, 2, 3])
    assert [found[0], found[3]] == [[0], [3]]
    assert "takes more than 0.1 s" in str(found[1]) or "memory" in str(found[1])
    assert str(found[2]) == "the jq program failed: no"


@pytest.mark.parametrize("program", ["def f: f; f", "[range(1e9)]", '"a" * 1e9', "[range(1000)]"])
async def test_a_program_that_takes_too_much_time_or_memory_is_an_error(
    workers: JqWorkers, program: str
) -> None:
    with pytest.raises(EvaluationError):
        await one(workers, program)
    assert await one(workers, ". + 1", 1) == [2]


async def test_a_program_that_cannot_be_compiled_is_refused_with_its_location(
    workers: JqWorkers,
) -> None:
    with pytest.raises(InvalidPolicy, match=r"^here: .*nothing/0 is not defined"):
        await workers.compile("nothing", location="here")
    await workers.compile(".a", location="here")


async def test_a_program_cannot_read_the_environment(
    workers: JqWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "secret")
    assert await one(workers, "[env, $ENV]") == [[{}, {}]]


def test_a_worker_cannot_open_files(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('"secret"')
    # `check_program` refuses this program; even without that check it reads nothing.
    program = f'import "data" as $data {{search: "{tmp_path}"}}; $data'
    request = json.dumps({"program": program, "inputs": ["null"]}).encode()
    done = subprocess.run(
        [sys.executable, "-I", jqworker.__file__, "2", str(64 * MIB), "1000"],
        input=len(request).to_bytes(4, "big") + request,
        capture_output=True,
        check=True,
        timeout=60,
    )
    # The worker sends an empty frame first, when it is ready.
    assert json.loads(done.stdout[10:]).keys() == {"error"}


async def test_a_number_that_json_cannot_represent_is_an_error(workers: JqWorkers) -> None:
    for program in ("nan", "[infinite]", "{a: (-1 | sqrt)}", "1e308 * 10", '"nan" | tonumber'):
        with pytest.raises(EvaluationError):
            await one(workers, program)


async def test_the_keys_of_created_objects_are_sorted(workers: JqWorkers) -> None:
    made = "{b: {d: 1, c: 2}, a: 1}"
    assert await one(workers, f"{made} | tojson") == ['{"a":1,"b":{"c":2,"d":1}}']
    assert await one(workers, f"{made} | [to_entries[].key]") == [["a", "b"]]
    assert await one(workers, f"{made} | with_entries(.key |= . + .) | keys") == [["aa", "bb"]]


async def test_a_program_that_halts_returns_its_results_so_far(workers: JqWorkers) -> None:
    assert await one(workers, "1, halt, error") == [1]
    assert await one(workers, "halt") == []
    assert await one(workers, ".", "again") == ["again"]


@pytest.mark.parametrize("program", ["leaf_paths", "toarray", "date", "pow10"])
async def test_functions_that_gojq_lacks_are_not_defined(workers: JqWorkers, program: str) -> None:
    with pytest.raises(InvalidPolicy, match="is not defined"):
        await workers.compile(program, location="p")


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells which children there are")
async def test_a_worker_killed_from_outside_is_an_interruption() -> None:
    made = JqWorkers(workers=1)
    try:
        assert await one(made, ".", "first") == ["first"]
        (worker,) = children()
        waiting = asyncio.create_task(made.evaluate("reduce range(1e8) as $i (0; $i)", [None]))
        await asyncio.sleep(0)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(Interrupted):
            await waiting
        assert await one(made, ".", "again") == ["again"]
    finally:
        await made.close()


def children() -> list[int]:
    """Return the PIDs of this process's jq workers."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed if b"jqworker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_a_program_that_ends_several_workers_is_not_evaluated_further(
    workers: JqWorkers,
) -> None:
    program = "if . == 1 then reduce range(1e9) as $i (0; $i) else . end"
    found = await workers.evaluate(program, [1, 0, 1, 0, 1, 0, 0])
    ended = [isinstance(answer, EvaluationError) for answer in found]
    assert ended == [True, False, True, False, True, True, True]


async def test_a_cancelled_evaluation_leaves_no_result_for_the_next_caller(
    workers: JqWorkers,
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await workers.evaluate("repeat(.)", [1, 2])
    assert await one(workers, ".", "mine") == ["mine"]


async def test_an_evaluation_that_is_cancelled_twice_returns_its_worker(
    workers: JqWorkers,
) -> None:
    evaluation = asyncio.create_task(workers.evaluate("repeat(.)", [1]))
    # It waits for the answer of its worker.
    await asyncio.wait([evaluation], timeout=0.2)
    while not evaluation.done():
        evaluation.cancel()
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await one(workers, ".", "mine") == ["mine"]


async def test_a_worker_is_killed_if_nobody_waits_for_its_end() -> None:
    made = JqWorkers(workers=1)
    assert await one(made, ".", "first") == ["first"]
    (worker,) = children()
    os.kill(worker, signal.SIGSTOP)
    closing = asyncio.create_task(made.close())
    await asyncio.wait([closing], timeout=0.2)
    closing.cancel()
    try:
        # Its end is awaited, too: a loop that is closed before that leaves its pipes open.
        await asyncio.wait({closing}, timeout=10)
        assert closing.cancelled()
        assert children() == []
    finally:
        for left in children():
            os.kill(left, signal.SIGKILL)


async def test_a_worker_that_cannot_be_started_is_interrupted(
    workers: JqWorkers, without_descriptors: Callable[[], AbstractContextManager[None]]
) -> None:
    with pytest.raises(Interrupted, match="no process"), without_descriptors():
        await workers.evaluate(".", [1])
    assert await one(workers, ".", "mine") == ["mine"]
