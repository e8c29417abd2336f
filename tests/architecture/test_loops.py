"""Repeated work of the services runs in `services.jobs.repeat`: one cadence, one backoff.

A function that waits in a loop of its own has to be listed here, with its reason.
"""

import ast
from collections.abc import Iterator

from tests.architecture.conftest import ROOT, sources

WAITS = {"sleep", "wait"}
LOOPS = {
    ("services/jobs.py", "repeat"): "it is the one",
    ("services/processing/dispatch.py", "_try_suspects"): "ends with the first list",
    ("services/processing/dispatch.py", "drain"): "ends when nothing is in work",
    ("services/processing/backlog_publisher.py", "_late"): "gives way some turns, and bounded",
    ("services/processing/lanes.py", "_work"): "hot path: rounds of one target, and bounded",
    ("services/hooks/recorder.py", "stored"): "waits for the recorder's own writes, which repeat",
    ("services/hooks/running.py", "_step"): "ends with what a plan creates, and bounded",
    ("services/rollout/webhook_writer.py", "register"): "ends when nothing changed meanwhile",
    ("services/catalog/globalcontext/keeping.py", "_begun"): "ends when an entry has begun",
    ("services/catalog/globalcontext/projections.py", "value"): "ends with what is evaluated",
    ("services/catalog/globalcontext/sources.py", "run"): "an entry's data is its problem too",
    ("services/catalog/globalcontext/sources.py", "_follow"): "gives way between two objects",
    ("services/catalog/globalcontext/sources.py", "_refresh"): "as often as the entry says",
}


def waiting_loops(module: ast.Module) -> Iterator[str]:
    """Yield the functions that wait in a loop of their own."""
    for function in ast.walk(module):
        if isinstance(function, ast.AsyncFunctionDef):
            for loop in ast.walk(function):
                if isinstance(loop, ast.While | ast.For | ast.AsyncFor) and any(
                    map(waits, ast.walk(loop))
                ):
                    yield function.name
                    break


def waits(node: ast.AST) -> bool:
    return isinstance(node, ast.Await) and any(
        isinstance(item, ast.Attribute) and item.attr in WAITS for item in ast.walk(node)
    )


def test_no_service_waits_in_a_loop_of_its_own() -> None:
    found = {
        (path.relative_to(ROOT / "reconciler").as_posix(), name)
        for path in sources("reconciler/services")
        for name in waiting_loops(ast.parse(path.read_text()))
    }
    assert found - LOOPS.keys() == set()
    assert LOOPS.keys() - found == set(), "these are gone: take them off the list"


def test_a_planted_loop_is_found() -> None:
    planted = "async def run():\n    while True:\n        await asyncio.sleep(1)\n"
    assert list(waiting_loops(ast.parse(planted))) == ["run"]
