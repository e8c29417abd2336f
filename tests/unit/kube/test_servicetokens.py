"""Tokens for calls of services: asked for once, kept in memory, and never shown."""

import asyncio
from collections.abc import Callable

import pytest

from reconciler.engine.loads import ServiceLoad, TokenSource
from reconciler.errors import Invalid, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.loader import KubeLoader
from reconciler.kube.servicetokens import ServiceTokens
from tests.unit.kube.conftest import Api, StillClock

ASKED = "POST /token"


@pytest.fixture
def loader(client: Client) -> KubeLoader:
    return KubeLoader(client, ["127.0.0.1"], timeout=5.0)


@pytest.fixture
def load(api: Api) -> Callable[..., ServiceLoad]:
    """Return what asks the stand-in with a token."""

    def asked(user: str = "u", path: str = "/token", seconds: float = 60.0) -> ServiceLoad:
        source = TokenSource(
            url=f"{api.address}{path}", username=user, password="p4ss", seconds=seconds
        )
        return ServiceLoad(method="GET", url=f"{api.address}/answer", token=source)

    return asked


async def test_a_token_is_asked_for_once_and_sent(api: Api, loader, load):
    api.answer(ASKED, {"token": "t0ken"})
    api.answer("GET /answer", {"a": 1})
    found = await asyncio.gather(*(loader.load(load()) for _ in range(4)))
    assert found == [{"a": 1}] * 4
    (seen,) = api.calls(ASKED)
    assert seen.headers["Authorization"] == "Basic dTpwNHNz"
    sent = {call.headers["Authorization"] for call in api.calls("GET /answer")}
    assert sent == {"Bearer t0ken"}
    assert "p4ss" not in repr(load())


async def test_each_user_has_a_token(api: Api, loader, load):
    api.answer(ASKED, {"token": "one"}, {"token": "two"})
    api.answer("GET /answer", {})
    for user in ("u", "v", "u"):
        await loader.load(load(user))
    sent = [call.headers["Authorization"] for call in api.calls("GET /answer")]
    assert sent == ["Bearer one", "Bearer two", "Bearer one"]


async def test_a_token_that_is_not_taken_any_more_is_asked_for_again(api: Api, loader, load):
    api.answer(ASKED, {"token": "old"}, {"token": "new"})
    api.answer("GET /answer", {"a": 1}, (401, {}), {"a": 2})
    assert await loader.load(load()) == {"a": 1}
    assert await loader.load(load()) == {"a": 2}
    assert len(api.calls(ASKED)) == 2


async def test_who_never_takes_a_token_is_asked_twice(api: Api, loader, load):
    api.answer(ASKED, {"token": "t0ken"})
    api.answer("GET /answer", (401, {"why": "p4ss"}))
    with pytest.raises(Invalid, match=r"service 127\.0\.0\.1: HTTP 401") as caught:
        await loader.load(load())
    assert len(api.calls("GET /answer")) == 2
    assert "t0ken" not in str(caught.value)
    assert "p4ss" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ({"tocken": "p4ss"}, Invalid, "answers without one"),
        ({"token": ""}, Invalid, "answers without one"),
        ({"token": "x" * 20_000}, Invalid, "answers without one"),
        ([], Invalid, "answers without one"),
        ((403, {"password": "p4ss"}), Invalid, "HTTP 403"),
        ((302, b"", {"Location": "/elsewhere"}), Invalid, "HTTP 302"),
        ((500, {}), Unavailable, "HTTP 500"),
        ((200, b"p4ss"), Invalid, "the answer is not JSON"),
    ],
)
async def test_without_a_token_nothing_is_asked(api: Api, loader, load, answer, error, text):
    api.answer(ASKED, answer)
    with pytest.raises(error, match=f"there is no token: .*{text}") as caught:
        await loader.load(load())
    assert "p4ss" not in str(caught.value)
    assert not api.calls("GET /answer")


async def test_only_allowed_hosts_are_asked_for_tokens(client: Client, api: Api, load):
    loader = KubeLoader(client, ["*.svc"], timeout=5.0)
    with pytest.raises(Invalid, match=r"there is no token: service 127\.0\.0\.1 may not be call"):
        await loader.load(load())
    assert not api.seen


class TestTime:
    @pytest.fixture
    def tokens(self, clock: StillClock) -> ServiceTokens:
        return ServiceTokens(clock)

    @pytest.fixture
    def source(self) -> TokenSource:
        return TokenSource(url="http://a.b.svc", username="u", password="p", seconds=60.0)

    async def given(self, tokens, source, *answers):
        """Return the token, and how many of the answers were asked for."""
        left = list(answers)

        async def ask(_load):
            return left.pop(0)

        token = await tokens.of(source, "", ask)
        return token, len(answers) - len(left)

    async def test_a_token_is_good_as_long_as_the_policy_says(self, tokens, source, clock):
        assert await self.given(tokens, source, {"token": "a"}) == ("a", 1)
        clock.seconds += 59
        assert await self.given(tokens, source, {"token": "b"}) == ("a", 0)
        clock.seconds += 2
        assert await self.given(tokens, source, {"token": "b"}) == ("b", 1)

    async def test_the_service_knows_better(self, tokens, source, clock):
        until = int((clock.now().timestamp() + 600) * 1000)
        await self.given(tokens, source, {"token": "a", "expireAt": until})
        clock.seconds += 599
        assert await self.given(tokens, source, {"token": "b"}) == ("a", 0)
        clock.seconds += 2
        assert await self.given(tokens, source, {"token": "b"}) == ("b", 1)

    @pytest.mark.parametrize("until", [10**30, "soon", -1, 0, None, 1.5, True])
    async def test_a_time_that_is_none_counts_as_none(self, tokens, source, clock, until):
        await self.given(tokens, source, {"token": "a", "expireAt": until})
        clock.seconds += 61
        assert await self.given(tokens, source, {"token": "b"}) == ("b", 1)

    async def test_only_so_many_are_kept(self, tokens, clock):
        for number in range(1_001):
            source = TokenSource(url="u", username=str(number), password="p", seconds=60.0)
            await self.given(tokens, source, {"token": str(number)})
        first = TokenSource(url="u", username="0", password="p", seconds=60.0)
        assert await self.given(tokens, first, {"token": "again"}) == ("again", 1)
