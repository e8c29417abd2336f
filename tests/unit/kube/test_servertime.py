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


def test_it_goes_on_from_what_the_api_server_said_whatever_our_clock_says():
    client, clock = SimpleNamespace(date=("Sun, 22 Nov 2026 07:03:28 GMT", 990.0)), Clock()
    server = ServerClock(client, clock)
    said = datetime(2026, 11, 22, 7, 3, 28, tzinfo=UTC)
    assert server.now() == said + timedelta(seconds=10)
    clock.ticks += 5
    assert server.now() == said + timedelta(seconds=15)
    assert server.monotonic() == 1005.0


@pytest.mark.parametrize("text", ["", "soon"])
def test_before_it_said_anything_it_is_ours(text):
    assert ServerClock(SimpleNamespace(date=(text, 0.0)), Clock()).now() == OURS
