"""Tokens for service calls are requested once, kept in memory and never shown."""

import asyncio
from base64 import b64encode
from collections.abc import Callable

import pytest

from reconciler.engine.loads import SecretName, ServiceLoad, TokenSource
from reconciler.errors import Forbidden, Invalid, NotFound, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.loader import KubeLoader
from reconciler.kube.servicetokens import ServiceTokens
from reconciler.memory.cluster import MemoryCluster
from tests.unit.kube.conftest import Api, StillClock

ASKED = "POST /token"
SECRET = "GET /api/v1/namespaces/shop/secrets/teams"
GONE = {"kind": "Status", "reason": "NotFound", "details": {"name": "teams"}}


@pytest.fixture
def loader(client: Client) -> KubeLoader:
    # The in-memory cluster serves the same kinds as a real API server.
    return KubeLoader(client, ["127.0.0.1"], timeout=5.0, kinds=MemoryCluster())


@pytest.fixture
def load(api: Api) -> Callable[..., ServiceLoad]:
    """Return a function that builds a service call with a token."""

    def asked(user: str = "u", path: str = "/token", seconds: float = 60.0) -> ServiceLoad:
        source = TokenSource(
            url=f"{api.address}{path}", username=user, password="p4ss", seconds=seconds
        )
        return ServiceLoad(method="GET", url=f"{api.address}/answer", token=source)

    return asked


async def test_a_token_is_requested_once_and_sent(api: Api, loader, load):
    api.answer(ASKED, {"token": "t0ken"})
    api.answer("GET /answer", {"a": 1})
    found = await asyncio.gather(*(loader.load(load()) for _ in range(4)))
    assert found == [{"a": 1}] * 4
    (seen,) = api.calls(ASKED)
    assert seen.headers["Authorization"] == "Basic dTpwNHNz"
    sent = {call.headers["Authorization"] for call in api.calls("GET /answer")}
    assert sent == {"Bearer t0ken"}
    assert "p4ss" not in repr(load())


async def test_each_user_has_its_own_token(api: Api, loader, load):
    api.answer(ASKED, {"token": "one"}, {"token": "two"})
    api.answer("GET /answer", {})
    for user in ("u", "v", "u"):
        await loader.load(load(user))
    sent = [call.headers["Authorization"] for call in api.calls("GET /answer")]
    assert sent == ["Bearer one", "Bearer two", "Bearer one"]


async def test_a_refused_token_is_requested_again(api: Api, loader, load):
    api.answer(ASKED, {"token": "old"}, {"token": "new"})
    api.answer("GET /answer", {"a": 1}, (401, {}), {"a": 2})
    assert await loader.load(load()) == {"a": 1}
    assert await loader.load(load()) == {"a": 2}
    assert len(api.calls(ASKED)) == 2


async def test_a_service_that_refuses_every_token_is_called_twice(api: Api, loader, load):
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
        ({"tocken": "p4ss"}, Invalid, "no usable token"),
        ({"token": ""}, Invalid, "no usable token"),
        ({"token": "x" * 20_000}, Invalid, "no usable token"),
        ([], Invalid, "no usable token"),
        ((403, {"password": "p4ss"}), Invalid, "HTTP 403"),
        ((302, b"", {"Location": "/elsewhere"}), Invalid, "HTTP 302"),
        ((500, {}), Unavailable, "HTTP 500"),
        ((200, b"p4ss"), Invalid, "the answer is not JSON"),
    ],
)
async def test_without_a_token_the_service_is_not_called(
    api: Api, loader, load, answer, error, text
):
    api.answer(ASKED, answer)
    with pytest.raises(error, match=f"cannot obtain a token: .*{text}") as caught:
        await loader.load(load())
    assert "p4ss" not in str(caught.value)
    assert not api.calls("GET /answer")


async def test_tokens_are_requested_only_from_allowed_hosts(client: Client, api: Api, load):
    loader = KubeLoader(client, ["*.svc"], timeout=5.0, kinds=MemoryCluster())
    with pytest.raises(Invalid, match=r"obtain a token: service 127\.0\.0\.1 may not be call"):
        await loader.load(load())
    assert not api.seen


def secret(**texts: str) -> dict[str, dict[str, str]]:
    return {"data": {name: b64encode(text.encode()).decode() for name, text in texts.items()}}


class TestSecrets:
    @pytest.fixture
    def load(self, api: Api) -> Callable[..., ServiceLoad]:
        """Return a function that builds a service call whose token source is a Secret."""

        def asked(url: str = "") -> ServiceLoad:
            named = SecretName("shop", "teams")
            source = TokenSource(url=url and f"{api.address}{url}", seconds=60.0, secret=named)
            return ServiceLoad(method="GET", url=f"{api.address}/answer", token=source)

        return asked

    async def test_a_token_is_read_from_the_secret_once_and_sent(self, api: Api, loader, load):
        api.answer(SECRET, secret(token="t0ken\n"))
        api.answer("GET /answer", {"a": 1})
        for _ in range(2):
            assert await loader.load(load()) == {"a": 1}
        assert len(api.calls(SECRET)) == 1
        sent = [call.headers["Authorization"] for call in api.calls("GET /answer")]
        assert sent == ["Bearer t0ken"] * 2

    async def test_user_and_password_of_the_secret_are_sent_to_the_token_url(
        self, api: Api, loader, load
    ):
        api.answer(SECRET, secret(username="u", password="p4ss"))
        api.answer(ASKED, {"token": "t0ken"})
        api.answer("GET /answer", {"a": 1})
        await loader.load(load("/token"))
        (seen,) = api.calls(ASKED)
        assert seen.headers["Authorization"] == "Basic dTpwNHNz"

    async def test_a_changed_secret_is_read_again(self, api: Api, loader, load):
        api.answer(SECRET, secret(token="old"), secret(token="new"))
        api.answer("GET /answer", {"a": 1}, (401, {}), {"a": 2})
        assert await loader.load(load()) == {"a": 1}
        assert await loader.load(load()) == {"a": 2}
        assert len(api.calls(SECRET)) == 2

    @pytest.mark.parametrize(
        ("answer", "error", "text"),
        [
            (secret(tocken="p4ss"), Invalid, "shop/teams has no usable string under the key"),
            (secret(token=" "), Invalid, "shop/teams has no usable string under the key token"),
            ({"data": {"token": "p4ss!"}}, Invalid, "has no usable string under the key token"),
            ((404, GONE), NotFound, "cannot obtain a token: "),
            ((403, {}), Forbidden, "get secrets in namespace shop"),
        ],
    )
    async def test_without_a_usable_secret_the_service_is_not_called(
        self, api, loader, load, answer, error, text
    ):
        api.answer(SECRET, answer)
        with pytest.raises(error, match=text) as caught:
            await loader.load(load())
        assert "p4ss" not in str(caught.value)
        assert not api.calls("GET /answer")


class TestTime:
    @pytest.fixture
    def tokens(self, clock: StillClock) -> ServiceTokens:
        return ServiceTokens(clock)

    @pytest.fixture
    def source(self) -> TokenSource:
        return TokenSource(url="http://a.b.svc", username="u", password="p", seconds=60.0)

    async def given(self, tokens, source, *answers):
        """Return the token and the number of answers that were used."""
        left = list(answers)

        async def ask(_load):
            return left.pop(0)

        token = await tokens.of(source, "", ask, ask)
        return token, len(answers) - len(left)

    async def test_a_token_is_valid_for_the_duration_in_the_policy(self, tokens, source, clock):
        assert await self.given(tokens, source, {"token": "a"}) == ("a", 1)
        clock.seconds += 59
        assert await self.given(tokens, source, {"token": "b"}) == ("a", 0)
        clock.seconds += 2
        assert await self.given(tokens, source, {"token": "b"}) == ("b", 1)

    async def test_the_expiry_returned_by_the_service_wins_over_the_policy(
        self, tokens, source, clock
    ):
        until = int((clock.now().timestamp() + 600) * 1000)
        await self.given(tokens, source, {"token": "a", "expireAt": until})
        clock.seconds += 599
        assert await self.given(tokens, source, {"token": "b"}) == ("a", 0)
        clock.seconds += 2
        assert await self.given(tokens, source, {"token": "b"}) == ("b", 1)

    @pytest.mark.parametrize("until", [10**30, "soon", -1, 0, None, 1.5, True])
    async def test_an_invalid_expiry_is_ignored(self, tokens, source, clock, until):
        await self.given(tokens, source, {"token": "a", "expireAt": until})
        clock.seconds += 61
        assert await self.given(tokens, source, {"token": "b"}) == ("b", 1)

    async def test_the_number_of_kept_tokens_is_limited(self, tokens, clock):
        for number in range(1_001):
            source = TokenSource(url="u", username=str(number), password="p", seconds=60.0)
            await self.given(tokens, source, {"token": str(number)})
        first = TokenSource(url="u", username="0", password="p", seconds=60.0)
        assert await self.given(tokens, first, {"token": "again"}) == ("again", 1)
