from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from reconciler.kube.servertime import ServerClock

OURS = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.ticks = 1000.0

    def now(self):
        return OURS

    def monotonic(self):
        return self.ticks


def test_the_time_continues_from_the_date_of_the_api_server():
    client, clock = SimpleNamespace(date=("Sun, 22 Nov 2026 07:03:28 GMT", 990.0)), Clock()
    server = ServerClock(client, clock)
    said = datetime(2026, 11, 22, 7, 3, 28, tzinfo=UTC)
    assert server.now() == said + timedelta(seconds=10)
    clock.ticks += 5
    assert server.now() == said + timedelta(seconds=15)
    assert server.monotonic() == 1005.0


@pytest.mark.parametrize("text", ["", "soon"])
def test_the_local_clock_is_used_without_a_valid_date_of_the_api_server(text):
    assert ServerClock(SimpleNamespace(date=(text, 0.0)), Clock()).now() == OURS
