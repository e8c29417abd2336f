"""HTTP/1.1 as clients other than the API server use it, at the level of bytes."""

import asyncio
import contextlib
import email.utils
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import uvloop

from reconciler.clock import SystemClock
from reconciler.observe.listening import bind
from reconciler.observe.metrics import Metrics
from reconciler.serving.bodies import Bodies
from reconciler.serving.connections import ConnectionLimits
from reconciler.serving.http import HttpServer, Transport
from reconciler.serving.messages import error_response

WITHIN = 10.0
LARGE = 1024 * 1024
CHUNKED = b"Transfer-Encoding: chunked\r\n"
JSON = b"Content-Type: application/json\r\n"


async def echo(body):
    return b'{"given":' + body + b"}"


async def crash(body):
    raise ZeroDivisionError("a fault of ours")


class Site:
    """A server with some paths, and raw connections to it."""

    def __init__(self, **responds):
        self.metrics = Metrics()
        self.bodies = Bodies(largest=4 * LARGE, together=8 * LARGE, timeout=WITHIN)
        transport = Transport(
            bodies=self.bodies,
            drain_timeout=2.0,
            clock=SystemClock(),
            metrics=self.metrics,
            limits=ConnectionLimits(header_timeout=5.0),
            farewell=0.0,
        )
        posts = {"/echo": echo, "/crash": crash, "/a name": echo}
        posts |= {f"/{name}": respond for name, respond in responds.items()}
        self.server = HttpServer(
            transport, posts.get, lambda it: error_response(404, f"no {it.method} {it.path}")
        )

    async def __aenter__(self):
        listener = bind("127.0.0.1", 0, flag="--port")
        self.port = listener.getsockname()[1]
        await self.server.start(listener, lambda: None)
        return self

    async def __aexit__(self, *_):
        await self.server.close()

    @contextlib.asynccontextmanager
    async def speaking(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def open_connections(self):
        return self.metrics.registry.get_sample_value("retrofit_connections")


def post(path=b"/echo", body=b"1", more=b"", version=b"1.1"):
    head = b"POST %b HTTP/%b\r\nHost: x\r\n" % (path, version) + JSON + more
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def answer_of(reader):
    """Return status, headers and body of the next response."""
    async with asyncio.timeout(WITHIN):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


async def ended(reader):
    async with asyncio.timeout(WITHIN):
        return await reader.read()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    """Return a function that runs a coroutine on each event loop; the programs use uvloop."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def test_a_connection_is_kept_open_between_requests(run):
    async def check():
        async with Site() as site, site.speaking() as (reader, writer):
            for number in (b"1", b"2", b"3"):
                writer.write(post(body=number))
                status, headers, body = await answer_of(reader)
                assert (status, body) == (200, b'{"given":' + number + b"}")
                assert headers["content-type"] == "application/json"
                assert "connection" not in headers
                reported = email.utils.parsedate_to_datetime(headers["date"])
                now = datetime.now(UTC)  # noqa: TID251  (the server has the real clock)
                assert abs((reported - now).total_seconds()) < WITHIN
            assert site.open_connections() == 1

    run(check())


def test_a_request_may_arrive_byte_by_byte(run):
    async def check():
        async with Site() as site, site.speaking() as (reader, writer):
            for byte in post(path=b"/echo?timeout=10s", body=b"[1, 2]"):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            assert (await answer_of(reader))[2] == b'{"given":[1, 2]}'

    run(check())


@pytest.mark.parametrize(
    ("more", "version"), [(b"Connection: close\r\n", b"1.1"), (b"", b"1.0")], ids=["close", "1.0"]
)
def test_the_connection_ends_after_a_response_to_http_1_0_or_to_close(run, more, version):
    async def check():
        async with Site() as site, site.speaking() as (reader, writer):
            writer.write(post(more=more, version=version))
            status, headers, _ = await answer_of(reader)
            assert (status, headers["connection"]) == (200, "close")
            assert await ended(reader) == b""

    run(check())


@pytest.mark.parametrize("together", [True, False], ids=["at once", "while it is answered"])
def test_a_request_sent_before_the_previous_response_must_be_sent_again(run, together):
    async def check():
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(body):
            begun.set()
            await go_on.wait()
            return body

        async with Site(slow=slowly) as site, site.speaking() as (reader, writer):
            first, second = post(b"/slow", b"1"), post(b"/echo", b"2")
            writer.write(first + second if together else first)
            await begun.wait()
            if not together:
                writer.write(second)
                await writer.drain()
                # The second request arrives before the first one is answered.
                await asyncio.sleep(0.1)
            go_on.set()
            status, headers, body = await answer_of(reader)
            assert (status, headers["connection"], body) == (200, "close", b"1")
            assert await ended(reader) == b""

    run(check())


def test_a_client_that_expects_100_continue_receives_it(run):
    async def check():
        async with Site() as site:
            for size in (10, LARGE):
                async with site.speaking() as (reader, writer):
                    body = b'"' + b"x" * size + b'"'
                    whole = post(body=body, more=b"Expect: 100-continue\r\n")
                    head = whole.removesuffix(body)
                    writer.write(head)
                    assert (await answer_of(reader))[0] == 100
                    writer.write(body)
                    assert (await answer_of(reader))[2] == b'{"given":' + body + b"}"

    run(check())


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"no GET /echo"),
        (post(b"/other"), 404, b"no POST /other"),
        (post(b"/a%20name"), 200, b"given"),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"no OPTIONS *"),
        (post().replace(b"application/json", b"text/plain"), 415, b"text/plain"),
        (post().replace(JSON, b""), 415, b"expected application/json"),
        (post().replace(b"json", b"JSON; charset=utf-8"), 200, b"given"),
        (
            b"POST /echo HTTP/1.1\r\n" + JSON + CHUNKED + b"\r\n1\r\n1\r\n0\r\n\r\n",
            411,
            b"no Content-Length",
        ),
        (post(body=b"x" * (5 * LARGE)), 413, b"--max-body"),
        (post(more=b"Content-Encoding: gzip\r\n"), 415, b"compressed"),
        (post(b"/crash"), 500, b"because of a bug"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, b"not HTTP/1.1"),
        (post(more=b"Content-Length: 7\r\n"), 400, b"not HTTP/1.1"),
        (post(more=CHUNKED), 400, b"not HTTP/1.1"),
        (post(more=b" folded: x\r\n"), 400, b"not HTTP/1.1"),
    ],
)  # fmt: skip
def test_odd_requests_are_answered_and_the_next_connection_as_well(run, sent, status, said):
    async def check():
        async with Site() as site:
            async with site.speaking() as (reader, writer):
                writer.write(sent)
                found, headers, body = await answer_of(reader)
                assert found == status
                assert said in body
                if "connection" in headers:
                    assert await ended(reader) == b""
            async with site.speaking() as (reader, writer):
                writer.write(post())
                assert (await answer_of(reader))[0] == 200

    run(check())


def test_an_internal_error_is_reported_in_the_log_as_well(run, capsys):
    async def check():
        async with Site() as site, site.speaking() as (reader, writer):
            writer.write(post(b"/crash"))
            assert (await answer_of(reader))[0] == 500

    run(check())
    reported = capsys.readouterr().out
    assert "request failed" in reported
    assert "ZeroDivisionError" in reported


def test_the_response_to_head_has_no_body(run):
    async def check():
        async with Site() as site, site.speaking() as (reader, writer):
            writer.write(b"HEAD /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            head, _, body = (await ended(reader)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 404 ")
            assert body == b""

    run(check())


def test_protocol_upgrades_are_not_accepted(run):
    async def check():
        async with Site() as site, site.speaking() as (reader, writer):
            writer.write(post(more=b"Connection: Upgrade\r\nUpgrade: h2c\r\n"))
            assert b"HTTP/1.1 101" not in await ended(reader)

    run(check())


def test_a_request_is_not_processed_before_the_previous_response_is_read(run):
    size, begun = 32 * LARGE, []

    async def largely(body):
        begun.append(body)
        return b'"' + b"x" * size + b'"'

    async def check():
        async with Site(large=largely) as site, site.speaking() as (reader, writer):
            writer.write(post(b"/large", b"1"))
            # The response has started to arrive.
            status = await asyncio.wait_for(reader.readline(), WITHIN)
            writer.write(post(b"/large", b"2"))
            await writer.drain()
            await asyncio.sleep(0.1)
            rest = await ended(reader)
            assert status.split()[1] == b"200"
            assert rest.endswith(b"x" * size + b'"')
            assert begun == [b"1"]

    run(check())


def test_requests_in_flight_are_answered_when_the_server_closes(run):
    async def check():
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(body):
            begun.set()
            await go_on.wait()
            return body

        site = Site(slow=slowly)
        async with site, site.speaking() as (reader, writer), site.speaking() as (idle, _):
            writer.write(post(b"/slow", b"[7]"))
            await begun.wait()
            closing = asyncio.create_task(site.server.close())
            assert await ended(idle) == b""
            go_on.set()
            status, headers, body = await answer_of(reader)
            assert (status, headers["connection"], body) == (200, "close", b"[7]")
            await closing
            assert site.open_connections() == 0

    run(check())
