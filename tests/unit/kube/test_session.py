"""The HTTP session for another library: the current credentials, and a report of each response."""

import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from reconciler.kube.client import Client
from tests.unit.kube.conftest import Api

PATH = "/apis/kyverno.io/v1/policies"
ROUTE = f"GET {PATH}"


@pytest.fixture
async def answers(
    client: Client, api: Api
) -> AsyncIterator[tuple[aiohttp.ClientSession, list[tuple[str, str]]]]:
    heard = []
    async with client.open_session(lambda call, problem: heard.append((str(call), problem))) as it:
        yield it, heard


async def get(session, api, query=""):
    async with session.get(f"{api.address}{PATH}{query}") as response:
        return response.status


def sent(api):
    return [call.headers["Authorization"] for call in api.seen]


async def test_a_session_sends_the_authorization_header_of_the_kubeconfig(client, api):
    api.answer(ROUTE, {})
    async with client.open_session(lambda *_: None) as session:
        assert await get(session, api) == 200
    assert sent(api) == ["Bearer secret"]


async def test_a_rotated_token_is_used_from_the_next_request_on(api, clock, open_client, tmp_path):
    token = tmp_path / "token"
    token.write_text("first")
    client = await open_client(tokenFile=str(token))
    api.answer(ROUTE, {})
    async with client.open_session(lambda *_: None) as session:
        await get(session, api)
        token.write_text("second")
        clock.seconds += 61
        await get(session, api)
    assert [call.headers["Authorization"] for call in api.seen] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_a_refused_token_is_read_again_at_once(api, open_client, tmp_path):
    token = tmp_path / "token"
    token.write_text("first")
    client = await open_client(tokenFile=str(token))
    token.write_text("second")
    api.answer(ROUTE, (401, {}), {})
    async with client.open_session(lambda *_: None) as session:
        assert await get(session, api) == 200
    assert [call.headers["Authorization"] for call in api.seen] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_a_session_sends_user_and_password(api, open_client):
    client = await open_client(username="u", password="p")
    api.answer(ROUTE, {})
    async with client.open_session(lambda *_: None) as session:
        await get(session, api)
    assert sent(api) == ["Basic dTpw"]


async def test_responses_are_reported_with_their_call_and_problem(answers, api):
    session, heard = answers
    api.answer(ROUTE, {}, (403, {"kind": "Status", "message": "no"}))
    await get(session, api, "?watch=true")
    assert await get(session, api) == 403
    assert heard == [
        ("watch policies.kyverno.io", ""),
        (
            "list policies.kyverno.io",
            "list policies.kyverno.io: no; grant: list policies.kyverno.io",
        ),
    ]


async def test_a_failed_connection_is_reported(free_address, open_client):
    heard = []
    client = await open_client(address=free_address)
    async with client.open_session(lambda _, problem: heard.append(problem)) as session:
        with contextlib.suppress(OSError):
            await session.get(f"{free_address}{PATH}")
    (problem,) = heard
    assert "connection refused" in problem


async def test_the_beginning_of_an_event_is_left_out_if_its_end_never_arrives(client, api):
    event = b'{"type":"ADDED","object":{}}\n'
    api.answer(ROUTE, (200, event + event[:20]))
    async with (
        client.open_session(lambda *_: None) as session,
        session.get(f"{api.address}{PATH}?watch=true") as response,
    ):
        # The library would end with the error of its parser.
        assert [part async for part in response.content.iter_chunked(1000)] == [event]
