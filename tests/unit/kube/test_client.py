"""The client's headers, retries, deadlines, tokens and impersonation."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from reconciler.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    InvalidSetting,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from reconciler.kube.client import connect
from reconciler.kube.decoding import JSON, MERGE_PATCH

PATH = "/api/v1/namespaces/a/configmaps/b"
ROUTE = f"GET {PATH}"
BUSY = (429, {"kind": "Status", "message": "slow down"}, {"Retry-After": "0"})


async def drop(request):
    request.transport.close()
    return web.Response()


async def hang(_request):
    await asyncio.Event().wait()


async def test_a_request_sends_the_given_query_body_and_headers(api, client):
    api.answer(f"PATCH {PATH}", {"kind": "ConfigMap"})
    answer = await client.json(
        "PATCH", PATH, query={"fieldManager": "a b"}, body=b'{"x":1}', content_type=MERGE_PATCH
    )
    assert answer == {"kind": "ConfigMap"}
    (seen,) = api.seen
    assert seen.query == {"fieldManager": "a b"}
    assert seen.body == {"x": 1}
    assert seen.headers["Content-Type"] == MERGE_PATCH
    assert seen.headers["Authorization"] == "Bearer secret"
    assert seen.headers["User-Agent"].startswith("kube-retrofit/")


async def test_watches_take_no_connections_from_other_requests(api, client):
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()

    api.answer("GET /watched", endless)
    api.answer(ROUTE, {})
    async with asyncio.timeout(30), contextlib.AsyncExitStack() as watches:
        for _ in range(300):
            watch = client.stream("/watched", query={}, accept=JSON, idle=60)
            await watches.enter_async_context(watch)
        assert await client.json("GET", PATH) == {}


async def test_the_address_of_the_server_can_have_a_path(api, open_client):
    client = await open_client(prefix="/k8s/clusters/one")
    api.answer(f"GET /k8s/clusters/one{PATH}", {})
    assert await client.json("GET", PATH) == {}


@pytest.mark.parametrize(
    ("method", "failure"),
    [
        ("GET", BUSY),
        ("PATCH", (503, b"busy")),
        ("POST", drop),
        ("PUT", (502, b"busy")),
        ("DELETE", (504, b"busy")),
    ],
)
async def test_temporary_failures_are_retried(api, client, method, failure):
    api.answer(f"{method} {PATH}", failure, {"ok": True})
    assert await client.json(method, PATH, body=b"{}") == {"ok": True}
    assert len(api.calls(f"{method} {PATH}")) == 2


@pytest.mark.parametrize(
    ("failure", "error"),
    [((500, b"x"), Unavailable), ((409, b"x"), Conflict), ((422, b"x"), Invalid)],
)
async def test_other_failures_are_not_retried(api, client, failure, error):
    api.answer(ROUTE, failure)
    with pytest.raises(error):
        await client.json("GET", PATH)
    assert len(api.seen) == 1


async def test_a_forbidden_call_right_after_an_outage_is_retried(api, client):
    """A just started API server refuses every call until its authorizer has loaded the roles."""
    refused = (403, b'{"message": "configmaps is forbidden: User \\"a\\" cannot list"}')
    api.answer(ROUTE, (503, b"busy"), refused, refused, {"ok": True})
    assert await client.json("GET", PATH) == {"ok": True}


async def test_a_forbidden_call_without_an_outage_is_not_retried(api, client):
    api.answer(ROUTE, (403, b"no"), {"ok": True})
    with pytest.raises(Forbidden):
        await client.json("GET", PATH)
    assert len(api.seen) == 1


async def test_the_number_of_retries_is_limited(api, client):
    api.answer(ROUTE, BUSY)
    with pytest.raises(Throttled, match="slow down"):
        await client.json("GET", PATH)
    assert len(api.seen) == 5


async def test_a_caller_can_disable_retries(api, client):
    api.answer(ROUTE, BUSY)
    with pytest.raises(Throttled):
        await client.json("GET", PATH, repeat=False)
    assert len(api.seen) == 1


async def test_a_retry_beyond_the_deadline_is_not_waited_for(api, client):
    api.answer(ROUTE, (429, b"", {"Retry-After": "60"}))
    with pytest.raises(Throttled) as caught:
        await client.json("GET", PATH)
    assert caught.value.retry_after == 60
    assert len(api.seen) == 1


async def test_a_call_has_a_deadline(api, client):
    api.answer(ROUTE, hang)
    with pytest.raises(Unavailable, match=r"within 0\.2s"):
        await client.json("GET", PATH, timeout=0.2)


async def test_a_response_that_is_not_json_counts_as_unavailable(api, client):
    api.answer(ROUTE, b"<html>")
    with pytest.raises(Unavailable, match="not JSON"):
        await client.json("GET", PATH)


async def test_a_refused_connection_counts_as_unavailable(open_client, free_address):
    client = await open_client(address=free_address)
    with pytest.raises(Unavailable, match=f"{free_address} does not answer .connection refused"):
        await client.request("GET", PATH, repeat=False)


async def test_every_call_is_reported(api, client):
    reported = []
    client.on_call = lambda *facts: reported.append(facts[:3])
    api.answer(ROUTE, (503, b""), {})
    await client.request("GET", PATH)
    absent = {"kind": "Status", "message": "x", "details": {"name": "b"}}
    api.answer(f"DELETE {PATH}", (404, absent))
    with pytest.raises(NotFound):
        await client.request("DELETE", PATH)
    assert reported == [
        ("get", "configmaps", 503),
        ("get", "configmaps", 200),
        ("delete", "configmaps", 404),
    ]


def accepts(token):
    async def answer(request):
        good = request.headers.get("Authorization") == f"Bearer {token}"
        return web.json_response({}, status=200 if good else 401)

    return answer


async def test_a_refused_token_is_read_again(api, open_client, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    client = await open_client(tokenFile=str(token))
    token.write_text("new")
    api.answer(ROUTE, accepts("new"))
    assert await client.json("GET", PATH) == {}
    assert len(api.seen) == 2


async def test_a_token_is_read_again_after_a_minute(api, open_client, tmp_path, clock):
    token = tmp_path / "token"
    token.write_text("old")
    client = await open_client(tokenFile=str(token))
    token.write_text("new")
    api.answer(ROUTE, {})
    await client.json("GET", PATH)
    clock.seconds += 61
    await client.json("GET", PATH)
    sent = [seen.headers["Authorization"] for seen in api.seen]
    assert sent == ["Bearer old", "Bearer new"]


async def test_the_last_token_is_used_after_its_file_is_deleted(api, open_client, tmp_path, clock):
    token = tmp_path / "token"
    token.write_text("old")
    client = await open_client(tokenFile=str(token))
    token.unlink()
    clock.seconds += 61
    api.answer(ROUTE, {})
    await client.json("GET", PATH)
    assert api.seen[0].headers["Authorization"] == "Bearer old"


async def test_a_wrong_token_is_unauthorized(api, client):
    api.answer(ROUTE, (401, b""))
    with pytest.raises(Unauthorized, match="expired or wrong"):
        await client.json("GET", PATH)
    assert len(api.seen) == 1


async def test_waiting_for_the_api_server_reports_why_it_is_not_ready(api, client):
    api.answer("GET /readyz", (500, b""), {})
    said = []
    await client.wait_until_served(said.append)
    (sentence,) = said
    assert sentence.startswith("the API server answered 500; trying again in ")


async def test_waiting_for_an_unreachable_api_server_ends_at_the_limit(open_client, free_address):
    client = await open_client(address=free_address)
    said = []
    with pytest.raises(Unavailable, match="connection refused"):
        await client.wait_until_served(said.append, limit=1.5)
    assert said[0].startswith(f"the API server at {free_address} does not answer (connection re")


async def test_waiting_ends_at_once_with_a_wrong_token(api, client):
    api.answer("GET /readyz", (401, b""))
    with pytest.raises(Unauthorized):
        await client.wait_until_served(print)


async def test_waiting_ends_if_the_readiness_check_is_forbidden(api, client):
    api.answer("GET /readyz", (403, b""))
    await client.wait_until_served(print)


@pytest.mark.parametrize("content", [b"", b"[]", b"clusters: [", b"apiVersion: v1"])
async def test_an_unusable_kubeconfig_is_an_invalid_setting(tmp_path, content):
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    with pytest.raises(InvalidSetting):
        await connect(str(file))


async def test_a_missing_kubeconfig_is_an_invalid_setting(tmp_path):
    with pytest.raises(InvalidSetting, match="no kubeconfig"):
        await connect(str(tmp_path / "missing"))


async def test_a_missing_context_is_an_invalid_setting(open_client, tmp_path):
    await open_client()
    with pytest.raises(InvalidSetting, match="elsewhere"):
        await connect(str(tmp_path / "kubeconfig"), "elsewhere")


class TestSpeakingForSomebodyElse:
    WORKER = "system:serviceaccount:kyverno:kyverno-background-controller"

    async def test_each_client_sends_its_own_impersonated_user(self, api, client):
        api.answer(ROUTE, {})
        worker = client.speaking_for(self.WORKER)
        for one in (client, worker, client):
            await one.json("GET", PATH)
        names = [item.headers.get("Impersonate-User") for item in api.seen]
        assert names == [None, self.WORKER, None]

    async def test_writes_as_another_user_are_refused_when_writes_are_not_allowed(
        self, api, client
    ):
        worker = client.speaking_for(self.WORKER)
        client.allow_writes(lambda: False)
        with pytest.raises(ClusterError, match="does not hold the Lease"):
            await worker.request("PUT", PATH, body=b"{}")
        assert not api.seen

    async def test_a_write_waits_for_a_lease_that_is_renewed_a_moment_later(self, api, client):
        api.answer(f"PUT {PATH}", {})
        asked = []
        # As after a pause of the process, in which no other one took the Lease.
        client.allow_writes(lambda: bool(asked) or asked.append("too early"))
        await client.request("PUT", PATH, body=b"{}")
        assert asked == ["too early"]
        assert len(api.seen) == 1

    async def test_the_date_of_a_response_to_another_user_is_recorded(self, api, client):
        api.answer(ROUTE, (200, {}, {"Date": "Mon, 01 Jun 2026 12:00:00 GMT"}))
        await client.speaking_for(self.WORKER).json("GET", PATH)
        assert client.date[0] == "Mon, 01 Jun 2026 12:00:00 GMT"

    async def test_a_missing_right_to_impersonate_is_named(self, api, client):
        said = (
            'serviceaccounts "kyverno-background-controller" is forbidden: User "u" cannot'
            ' impersonate resource "serviceaccounts" in API group "" in the namespace "kyverno"'
        )
        api.answer(ROUTE, (403, {"kind": "Status", "reason": "Forbidden", "message": said}))
        with pytest.raises(Forbidden) as caught:
            await client.speaking_for(self.WORKER).json("GET", PATH)
        assert caught.value.permission == "impersonate serviceaccounts in namespace kyverno"
