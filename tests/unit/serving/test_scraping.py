"""Access to the metrics: the token and access reviews, their caching, and the status codes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from typing_extensions import override

from reconciler.clock import SystemClock
from reconciler.errors import Unavailable
from reconciler.observe.health import HealthServer, Readiness
from reconciler.observe.listening import bind
from reconciler.observe.metrics import Metrics
from reconciler.serving.scraping import Scrapers, scraped


@dataclass
class Users:
    """Token and access reviews with two users, one of whom may read the metrics."""

    users: Mapping[str, str] = field(
        default_factory=lambda: {"t-prometheus": "prometheus", "t-guest": "guest"}
    )
    asked: Counter[str] = field(default_factory=Counter)
    away: bool = False

    async def user(self, token: str) -> Mapping[str, Any] | None:
        self.asked[token] += 1
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("no answer")
        name = self.users.get(token)
        return None if name is None else {"username": name}

    async def may_get(self, user: Mapping[str, Any], path: str) -> bool:
        return (user["username"], path) == ("prometheus", "/metrics")


class TurnedClock(SystemClock):
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.passed = 0.0

    @override
    def monotonic(self) -> float:
        return 1000.0 + self.passed


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer t-prometheus", 200),
        ("bearer  t-prometheus ", 200),
        ("Bearer t-guest", 403),
        ("Bearer t-nobody", 401),
        ("Bearer \udcff", 401),
        ("Bearer ", 401),
        ("Basic t-prometheus", 401),
        ("", 401),
        (f"Bearer {'x' * 20_000}", 401),
    ],
)
async def test_access_depends_on_the_token(header: str, status: int) -> None:
    assert await Scrapers(Users(), SystemClock()).status(header) == status


async def test_a_header_without_a_possible_token_causes_no_review() -> None:
    users = Users()
    for header in ("", "Bearer", "Basic abc", f"Bearer {'x' * 20_000}"):
        await Scrapers(users, SystemClock()).status(header)
    assert not users.asked


async def test_a_review_is_cached_for_some_seconds() -> None:
    users, clock = Users(), TurnedClock()
    scrapers = Scrapers(users, clock)
    for token in ("t-prometheus", "t-guest", "t-nobody"):
        await asyncio.gather(*(scrapers.status(f"Bearer {token}") for _ in range(5)))
    first = users.asked.copy()
    await scrapers.status("Bearer t-prometheus")
    assert users.asked == first
    # Simultaneous requests before the first answer each make a review, up to a limit.
    assert max(first.values()) <= 4
    clock.passed = 10.1
    users.users = {}
    assert await scrapers.status("Bearer t-prometheus") == 401


async def test_a_failed_review_denies_access_and_is_not_cached() -> None:
    users = Users(away=True)
    scrapers = Scrapers(users, SystemClock())
    assert await scrapers.status("Bearer t-prometheus") == 503
    users.away = False
    assert await scrapers.status("Bearer t-prometheus") == 200


async def test_the_cache_of_reviews_is_bounded() -> None:
    users, clock = Users(), TurnedClock()
    scrapers = Scrapers(users, clock)
    await scrapers.status("Bearer t-guest")
    for number in range(300):
        await scrapers.status(f"Bearer stranger-{number}")
    await scrapers.status("Bearer t-guest")
    assert users.asked["t-guest"] == 2


@pytest.fixture
async def ports() -> AsyncIterator[tuple[str, str]]:
    """The plain HTTP address and the HTTPS address of a process."""
    metrics = Metrics()
    plain = bind("127.0.0.1", 0, flag="--metrics-port")
    secure = bind("127.0.0.1", 0, flag="--secure-metrics-port")
    health = HealthServer(None, Readiness())
    async with (
        health.serving(plain),
        scraped(secure, metrics.registry, Users(), SystemClock()),
    ):
        yield (
            f"http://127.0.0.1:{plain.getsockname()[1]}",
            f"https://127.0.0.1:{secure.getsockname()[1]}",
        )


async def test_metrics_are_served_over_https_only(ports: tuple[str, str]) -> None:
    plain, secure = ports
    async with aiohttp.ClientSession() as session:

        async def get(address: str, token: str = "") -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.get(address, headers=headers, ssl=False) as answer:
                return answer.status, await answer.text()

        assert (await get(f"{plain}/healthz"))[0] == 200
        status, text = await get(f"{plain}/metrics")
        assert (status, "--secure-metrics-port" in text) == (403, True)
        status, text = await get(f"{secure}/metrics", "t-prometheus")
        assert (status, "retrofit_leader" in text) == (200, True)
        assert "Authorization: Bearer" in (await get(f"{secure}/metrics"))[1]
        status, text = await get(f"{secure}/metrics", "t-guest")
        assert (status, "ClusterRole" in text) == (403, True)
