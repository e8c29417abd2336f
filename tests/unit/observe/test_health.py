"""The health server over real HTTP, and errors in binding its sockets."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from reconciler.errors import InvalidSetting
from reconciler.observe.health import HealthServer, Readiness
from reconciler.observe.listening import bind
from reconciler.observe.metrics import Metrics


@pytest.fixture
async def served() -> AsyncIterator[tuple[aiohttp.ClientSession, Metrics, Readiness]]:
    metrics, readiness = Metrics(), Readiness()
    listener = bind("127.0.0.1", 0, flag="--metrics-port")
    port = listener.getsockname()[1]
    server = HealthServer(metrics.registry, readiness)
    async with (
        server.serving(listener),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session, metrics, readiness


async def _get(session, path):
    async with session.get(path) as response:
        return response.status, await response.text()


async def test_readiness_names_the_check_that_fails_and_why(served):
    session, _, readiness = served
    problem = ["policies are not listed yet"]
    readiness.add("index", lambda: problem[0])
    readiness.add("certificate", lambda: None)
    assert await _get(session, "/readyz") == (
        503,
        "[-] index: policies are not listed yet\n[+] certificate: ready\nnot ready\n",
    )
    problem[0] = None
    status, text = await _get(session, "/readyz")
    assert (status, text.splitlines()[-1]) == (200, "ready")


async def test_a_program_that_stops_is_not_ready_but_healthy(served):
    session, _, readiness = served
    readiness.stop()
    status, text = await _get(session, "/readyz")
    assert status == 503
    assert "shutting down" in text
    assert await _get(session, "/healthz") == (200, "ok\n")


async def test_metrics_are_served_as_text(served):
    session, metrics, _ = served
    metrics.requests_recorded.labels(policy="p", rule="r", source="admission").inc()
    status, text = await _get(session, "/metrics")
    assert status == 200
    assert 'retrofit_requests_recorded_total{policy="p",rule="r",source="admission"} 1.0' in text


async def test_an_unknown_path_is_404(served):
    status, _ = await _get(served[0], "/nothing")
    assert status == 404


def test_a_port_in_use_is_reported_with_its_setting():
    with bind("127.0.0.1", 0, flag="--port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSetting) as caught:
            bind("127.0.0.1", port, flag="--metrics-port")
    text = str(caught.value)
    assert f"port {port}" in text
    assert "in use" in text
    assert "--metrics-port" in text
    # Not every flag has a variable of this form: those of retrofit-hooks and `retrofit ui`.
    assert "RETROFIT_" not in text


@pytest.mark.parametrize(
    ("address", "port", "word"),
    [
        ("203.0.113.7", 0, "not an address of this machine"),
        ("127.0.0.1", 70000, "--port"),
        ("no such host", 1, "check the address, and --port"),
    ],
)
def test_other_bind_errors_are_explained(address, port, word):
    with pytest.raises(InvalidSetting, match=word) as caught:
        bind(address, port, flag="--port")
    # In retrofit-hooks the flags of addresses have other names.
    assert "--bind-address" not in str(caught.value)
