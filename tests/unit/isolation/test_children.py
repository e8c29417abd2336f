"""Slow evaluations run in a child process, which can neither block nor crash its parent."""

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import Context
from reconciler.errors import EvaluationError, Interrupted
from reconciler.isolation import ChildProcesses, Limits

MIB = 1024 * 1024
linux = pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells what a parent has")


def burn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def children():
    """Return the PIDs of forked children; processes of control planes run another program."""
    own = Path("/proc/self/cmdline").read_bytes()
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed if Path(f"/proc/{pid}/cmdline").read_bytes() == own]


async def test_the_event_loop_continues_while_a_child_works():
    async def longest_pause():
        longest, before = 0.0, time.monotonic()
        while not working.done():
            await asyncio.sleep(0.01)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        return longest

    def work():
        burn(1.0)
        return os.getpid()

    working = asyncio.create_task(ChildProcesses().evaluate(work, "a"))
    assert await longest_pause() < 0.5
    assert await working != os.getpid()


async def test_a_child_works_on_a_copy_of_the_data_of_its_parent():
    known = {"n": 1}

    def work():
        known["n"] += 1
        return known

    assert await ChildProcesses().evaluate(work, "a") == {"n": 2}
    assert known == {"n": 1}


async def test_a_child_has_no_file_pipe_or_socket_of_its_parent(tmp_path):
    with (tmp_path / "open").open("w") as file, socket.socket() as server:
        pipe = os.pipe()
        numbers = [file.fileno(), server.fileno(), *pipe]

        def work():
            still_open = []
            for number in numbers:
                with contextlib.suppress(OSError):
                    os.fstat(number)
                    still_open.append(number)
            return still_open

        assert await ChildProcesses().evaluate(work, "a") == []
        for number in numbers:
            os.fstat(number)
        for end in pipe:
            os.close(end)


async def test_a_child_has_no_file_above_the_limit_of_open_files():
    """A limit may be set later; and macOS often has none, so that it cannot be the last number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as server:
        high = fcntl.fcntl(server, fcntl.F_DUPFD_CLOEXEC, 200)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        try:
            with pytest.raises(RuntimeError, match="OSError"):
                await ChildProcesses().evaluate(lambda: os.fstat(high), "a")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            os.close(high)


async def test_the_deadline_ends_a_child():
    before = time.monotonic()
    with pytest.raises(Interrupted, match="took longer than"):
        await ChildProcesses(Limits(seconds=0.2)).evaluate(lambda: burn(30), "a")
    assert time.monotonic() - before < 5
    assert_none_left()


async def test_a_child_that_is_killed_is_distinguished_from_a_rule_that_fails():
    def work():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Interrupted, match="was ended by SIGKILL"):
        await ChildProcesses().evaluate(work, "a")
    assert_none_left()


@linux
async def test_the_memory_limit_ends_an_evaluation_but_not_the_process():
    limits = Limits(memory=64 * MIB)
    with pytest.raises(EvaluationError, match="needs more than 64 MiB of memory"):
        # More memory than the parent can have freed and still have mapped.
        await ChildProcesses(limits).evaluate(lambda: len(bytearray(2048 * MIB)), "a")
    assert await ChildProcesses(limits).evaluate(lambda: len(bytearray(MIB)), "a") == MIB


async def test_a_result_above_the_limit_is_an_error():
    limits = Limits(answer=MIB)
    with pytest.raises(EvaluationError, match="larger than 1 MiB"):
        await ChildProcesses(limits).evaluate(lambda: "x" * 2 * MIB, "a")
    assert len(await ChildProcesses(limits).evaluate(lambda: "x" * (MIB - 100), "a")) == MIB - 100


async def test_an_internal_error_names_its_place_and_quotes_no_values():
    def work():
        return {}["a secret value"]

    with pytest.raises(RuntimeError, match="KeyError") as raised:
        await ChildProcesses().evaluate(work, "a")
    assert "in work" in str(raised.value)
    assert "KeyError: 'a secret value'" not in str(raised.value)


@linux
async def test_a_cancelled_evaluation_leaves_no_child():
    working = asyncio.create_task(ChildProcesses().evaluate(lambda: burn(30), "a"))
    await asyncio.sleep(0)
    assert len(children()) == 1
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert_none_left()


async def test_tenants_take_turns():
    apart, order = ChildProcesses(), []

    async def one(tenant):
        await apart.evaluate(lambda: burn(0.05), tenant)
        order.append(tenant)

    await asyncio.gather(*(one("many") for _ in range(8)), one("other"))
    # The other tenant's evaluation does not wait for all those that were queued before it.
    assert order.index("other") < 6


def assert_none_left():
    if sys.platform == "linux":
        assert children() == []


TARGETS = (
    {"namespace": "a", "name": "one"},
    {"namespace": "a*", "selector": {"matchLabels": {"app": "{{ request.object.x }}"}}},
    {"namespace": "a", "name": "{{ request.object.y }}"},
)
POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "p", "uid": "u", "generation": 1},
    "spec": {
        "rules": [
            {
                "name": "r",
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "mutate": {
                    "targets": [{"apiVersion": "v1", "kind": "Secret", **it} for it in TARGETS],
                    "patchStrategicMerge": {"data": {"a": "b"}},
                },
            }
        ]
    },
}


async def test_targets_found_in_a_child_equal_those_found_in_the_parent():
    (program,) = compile_policy(POLICY).programs
    context = Context({"request": {"object": {"x": "it"}}})
    found, errors = await ChildProcesses().evaluate(lambda: program.targets.queries(context), "a")
    exact, selected = found
    assert exact.accepts({"metadata": {"name": "one", "namespace": "a"}})
    assert not exact.accepts({"metadata": {"name": "two", "namespace": "a"}})
    labelled = {"metadata": {"namespace": "ab", "labels": {"app": "it"}}}
    assert selected.accepts(labelled)
    assert not selected.accepts({"metadata": {"namespace": "ab", "labels": {"app": "item"}}})
    here, same = program.targets.queries(context)
    assert (exact.name.text, selected.selector.server) == (
        here[0].name.text,
        here[1].selector.server,
    )
    assert [(str(it), it.without_values) for it in errors] == [
        (str(it), it.without_values) for it in same
    ]


async def test_a_child_that_cannot_be_started_is_interrupted(without_descriptors):
    processes = ChildProcesses()
    with pytest.raises(Interrupted, match="Too many open files"), without_descriptors():
        await processes.evaluate(lambda: 1, "a")
    assert await processes.evaluate(lambda: 1, "a") == 1
