"""What calls hold in memory: little of an answer that is not read, nothing after a failure."""

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator

import pytest
from aiohttp import web

from reconciler.errors import ClusterError, ResponseTooLarge

PATH = "/api/v1/secrets"
MIB = 1024 * 1024


# From Python 3.12 on, a cancelled future and its error refer to each other until a collection.
timing_out = pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio.timeout has a cycle")


class Held(dict[str, str]):
    """A value of a caller that a weak reference can refer to."""


async def failing(client, **options):
    """Make a call that fails; return its error and a reference to a value of its caller."""
    held = Held()
    reference = weakref.ref(held)
    try:
        await client.request("GET", PATH, **options)
    except ClusterError as error:
        return type(error), reference
    pytest.fail("the call did not fail")


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("status", "options"),
    [
        (200, {"most": 10}),
        (404, {}),
        (409, {}),
        (429, {}),
        (503, {"repeat": False}),
        pytest.param(503, {"timeout": 0.2}, marks=timing_out),
    ],
)
async def test_an_error_keeps_no_object_of_the_caller_in_memory(api, client, status, options):
    api.answer(f"GET {PATH}", (status, b"x" * 100_000))
    error, held = await failing(client, **options)
    assert (error is ResponseTooLarge) == ("most" in options)
    assert held() is None


@timing_out
@pytest.mark.usefixtures("no_collector")
async def test_an_unreachable_server_keeps_no_object_in_memory(open_client, free_address):
    client = await open_client(address=free_address)
    _, held = await failing(client, timeout=0.5)
    assert held() is None


async def test_an_answer_that_nobody_reads_takes_less_than_a_megabyte(api, client):
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(32):
            await response.write(b"x" * MIB)
        return response

    api.answer(f"GET {PATH}", endless)
    async with (
        client.open_session(lambda *_: None) as session,
        session.get(f"{api.address}{PATH}") as response,
    ):
        received = -1
        async with asyncio.timeout(20):
            while received < response.content.total_bytes:
                received = response.content.total_bytes
                # Both ends share this loop: what can be received is after a few turns.
                for _ in range(100):
                    await asyncio.sleep(0)
        assert 0 < received < MIB
