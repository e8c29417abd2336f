"""A background loop that ends stops the process with an error that names the loop."""

import asyncio
import contextlib
import logging
import socketserver
import ssl
import threading

import aiohttp
import pytest
from typing_extensions import override

from devcluster.credentials import create
from reconciler.clock import SystemClock
from reconciler.errors import Unavailable
from reconciler.observe.loops import LoopEnded, forever, new_event_loop, run_loops


async def waits():
    await asyncio.Event().wait()


async def breaks():
    await asyncio.sleep(0)
    raise KeyError("a fault")


async def ends():
    await asyncio.sleep(0)


async def gives_up():
    await asyncio.sleep(0)
    raise Unavailable("no answer for a minute")


async def test_a_fault_names_the_loop():
    with pytest.raises(
        LoopEnded, match=r"gauges ended because of a bug in kube-retrofit \(KeyError\)"
    ):
        await forever("gauges", breaks())


async def test_a_loop_that_returns_is_a_fault_too():
    with pytest.raises(LoopEnded, match="gauges ended: a bug in kube-retrofit"):
        await forever("gauges", ends())


async def test_an_expected_error_of_a_loop_keeps_its_own_message():
    with pytest.raises(Unavailable, match="no answer for a minute"):
        await forever("gauges", gives_up())


async def test_a_loop_that_ends_stops_the_others():
    stopped = asyncio.Event()

    async def other():
        try:
            await waits()
        finally:
            stopped.set()

    with pytest.raises(LoopEnded, match="gauges"):
        await run_loops({"other": other(), "gauges": breaks()})
    assert stopped.is_set()


async def test_a_cancellation_reports_no_fault():
    running = asyncio.create_task(run_loops({"a": waits(), "b": waits()}))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


class Answers(socketserver.BaseRequestHandler):
    """Answers every request of a connection over TLS."""

    @override
    def handle(self):
        with contextlib.suppress(OSError):
            context = self.server.context
            with context.wrap_socket(self.request, server_side=True) as caller:
                while caller.recv(65536):
                    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 256

    def __init__(self, made):
        super().__init__(("127.0.0.1", 0), Answers)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(made.certificate, made.key)
        self.trusted = ssl.create_default_context(cafile=str(made.ca))
        self.url = f"https://127.0.0.1:{self.server_address[1]}/"

    @override
    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    @override
    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


# The loop closes what a cancelled handshake left open, but not if it warns of that by an error.
@pytest.mark.filterwarnings("ignore:unclosed resource <TCPTransport:ResourceWarning")
def test_a_cancelled_http_request_logs_no_error(tmp_path, caplog):
    """Some hundred requests are cancelled at various moments of the handshake or the response."""
    server = Server(create(tmp_path, SystemClock()))

    async def ask(session, patience):
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(patience), session.get(server.url) as response:
                await response.read()

    async def storm():
        connector = aiohttp.TCPConnector(ssl=server.trusted)
        async with asyncio.timeout(30), aiohttp.ClientSession(connector=connector) as session:
            for _ in range(10):
                await asyncio.gather(*(ask(session, number / 1000) for number in range(50)))

    with server, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(storm())
    said = [item.getMessage() for item in caplog.records if item.levelno >= logging.ERROR]
    assert said == []


def test_other_unhandled_errors_of_the_event_loop_are_logged(caplog):
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        loop = runner.get_loop()
        loop.call_soon(lambda: 1 / 0)
        runner.run(asyncio.sleep(0))
    (said,) = caplog.records
    assert said.exc_info[0] is ZeroDivisionError
