"""Clients that send slowly, too much or nothing, and clients without permission."""

import asyncio
import contextlib
import gc
import socket
import ssl
import time
from datetime import UTC, datetime

import aiohttp
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from reconciler.clock import SystemClock
from reconciler.errors import InvalidSetting
from reconciler.serving import pki
from reconciler.serving.callers import Callers
from reconciler.serving.certificates import Certificates
from reconciler.serving.connections import ConnectionLimits
from reconciler.serving.messages import Request
from reconciler.serving.protocol import Connection
from tests.unit.admission.serving import Stuck, World
from tests.unit.admission.test_certificates import NAMES, Secrets

# The TLS library checks validity against the real time.
NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251
HEAD = b"POST /validate/fail HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
LARGE = 256 * 1024
QUICK = ConnectionLimits(connections=50, header_timeout=1.0)
WITHIN = 10.0


class Slow:
    """A raw connection that sends only the given bytes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, world, *sent):
        slow = cls(*await asyncio.open_connection("127.0.0.1", world.port))
        for data in sent:
            slow.writer.write(data)
        await slow.writer.drain()
        return slow

    async def end(self):
        """Return all bytes that are received before the server closes the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), WITHIN)
        except ConnectionError:
            return b""
        finally:
            self.writer.close()


def unfinished(size=LARGE):
    return HEAD + b"Content-Length: %d\r\n\r\n" % size, b"{" * (size // 2)


async def allowed(world, make, **params):
    body = make.review(obj=make.thing(**params), uid=f"review-{params}")
    status, answer = await asyncio.wait_for(world.post("/validate/fail", body), WITHIN)
    return status == 200 and answer["response"]["allowed"]


async def until(condition):
    async with asyncio.timeout(WITHIN):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_connections_that_send_no_complete_head_are_closed_soon(make):
    async with World(make.index(make.policy()), limits=QUICK) as world:
        slow = [await Slow.open(world, HEAD) for _ in range(20)]
        slow += [await Slow.open(world, HEAD[:1]) for _ in range(20)]
        assert await allowed(world, make)
        await asyncio.gather(*(item.end() for item in slow))
        assert world.count("connections_closed_total", reason="slow") == 40
        # A connection that is idle between two requests is not limited by the header timeout.
        assert await allowed(world, make, name="later")
        assert world.count("connections") == 1


async def test_a_connection_that_was_opened_ahead_can_be_used_later(make):
    """The API server opens some that it needs only when many requests come at the same time."""
    async with World(make.index(make.policy()), limits=QUICK) as world:
        ahead = await Slow.open(world)
        await (await Slow.open(world, HEAD)).end()
        body = make.review(obj=make.thing())
        ahead.writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert (await ahead.reader.readline()).split()[1] == b"200"
        ahead.writer.close()


async def test_a_request_sent_in_time_is_answered_by_a_process_that_was_blocked(make):
    async with World(make.index(make.policy()), limits=QUICK) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        await until(lambda: world.count("connections"))
        body = make.review(obj=make.thing())
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        stood_still = time.monotonic() + 2.0
        while time.monotonic() < stood_still:
            pass
        answer = await asyncio.wait_for(reader.read(12), 5)
        writer.close()
        assert answer == b"HTTP/1.1 200"


async def test_a_head_that_is_sent_in_small_pieces_is_ended_too(make):
    async with World(make.index(make.policy()), limits=QUICK) as world:
        slow = await Slow.open(world, HEAD)

        async def drip():
            while not slow.writer.is_closing():
                slow.writer.write(b"X: y\r\n")
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(drip())
        await slow.end()
        dripping.cancel()
        assert world.count("connections_closed_total", reason="slow") == 1


async def test_a_body_that_does_not_arrive_is_refused_with_the_reason(make):
    async with World(make.index(make.policy()), body_timeout=1.0, largest=LARGE) as world:
        for size in (1000, LARGE):
            answer = await (await Slow.open(world, *unfinished(size))).end()
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"the body did not arrive within 1 s" in answer
        assert world.bodies.held == 0


async def test_unfinished_bodies_are_limited_to_their_share_and_give_way_to_others(make):
    index = make.index(make.policy())
    async with World(index, together=4 * LARGE, largest=LARGE, body_timeout=60.0) as world:
        slow = [await Slow.open(world, *unfinished()) for _ in range(6)]
        # Connections that have never sent a whole request share a quarter of the places.
        await until(lambda: world.bodies.held == LARGE)
        # A small body needs no place; a connection that has sent a whole request has its own.
        assert await allowed(world, make)
        begun = time.monotonic()
        assert (await large(world, make))[0] == 200
        assert time.monotonic() - begun < 1.0
        # Other connections get places from bodies that make no progress.
        status, _ = await large(world, make, session=aiohttp.ClientSession())
        assert status == 200
        assert world.bodies.held <= 2 * LARGE
        for item in slow:
            item.writer.close()
        await until(lambda: world.bodies.held == 0)


async def large(world, make, session=None):
    """Return the response to a review of half the largest size, in the given session if any."""
    data = {"a": "x" * (LARGE // 2)}
    body = make.review(obj=make.thing(name="large", data=data), uid="large")
    if session is None:
        return await asyncio.wait_for(world.post("/validate/fail", body), WITHIN)
    async with session:
        url = f"http://127.0.0.1:{world.port}/validate/fail"
        headers = {"Content-Type": "application/json"}
        async with session.post(url, data=body, headers=headers) as response:
            return response.status, await response.json()


async def test_a_closed_connection_whose_body_waits_for_memory_is_dropped_at_once(make):
    index = make.index(make.policy())
    async with World(index, together=LARGE, largest=LARGE, body_timeout=60.0) as world:
        first = await Slow.open(world, *unfinished())
        await until(lambda: world.bodies.held == LARGE)
        before = len(asyncio.all_tasks())
        others = [await Slow.open(world, unfinished()[0], b"{") for _ in range(5)]
        await until(lambda: len(asyncio.all_tasks()) >= before + 5)
        for item in others:
            item.writer.transport.abort()
        begun = time.monotonic()
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert time.monotonic() - begun < 0.5
        first.writer.close()


async def test_a_closed_connection_is_freed_without_the_garbage_collector(make):
    """Its buffers, some hundred kilobytes each, are freed with the connection."""
    index = make.index(make.policy())
    async with World(index, together=LARGE, largest=LARGE, body_timeout=60.0) as world:
        assert await allowed(world, make)
        gc.collect()
        gc.disable()
        try:
            slow = [await Slow.open(world, *unfinished()) for _ in range(5)]
            await until(lambda: world.bodies.held > 0)
            for item in slow:
                item.writer.transport.abort()
            await until(lambda: world.count("connections") == 1)
            await until(lambda: world.bodies.held == 0)
            await until(lambda: len(alive(Connection)) == 1)
            await until(lambda: sum(item.held for item in alive(Request)) < LARGE // 2)
        finally:
            gc.enable()


def alive(kind):
    return [item for item in gc.get_objects() if isinstance(item, kind)]


async def test_a_head_without_an_end_is_not_buffered(make):
    limits = ConnectionLimits(header_timeout=60.0)
    async with World(make.index(make.policy()), limits=limits) as world:
        field = b"X-%d: " + b"y" * 8000 + b"\r\n"
        endless = [await Slow.open(world, HEAD) for _ in range(5)]
        for item in endless:
            item.writer.write(b"".join(field % number for number in range(100)))
        await asyncio.gather(*(item.end() for item in endless))
        assert world.count("connections_closed_total", reason="unasked") == 5
        assert await allowed(world, make)


async def test_pipelined_requests_behind_an_unanswered_one_are_not_buffered(make):
    async with World(make.index(make.policy()), requests=Stuck) as world:
        body = make.review(obj=make.thing())
        first = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        ahead = await Slow.open(world, first)
        await world.requests.begun.wait()
        ahead.writer.write((HEAD + b"X: " + b"y" * 8000 + b"\r\n\r\n") * 100)
        await ahead.end()
        assert world.count("connections_closed_total", reason="unasked") == 1
        world.requests.go_on.set()
        assert await allowed(world, make, name="other")


async def test_unfinished_bodies_do_not_keep_other_callers_out(make):
    """This includes connections that have sent a whole request before."""
    limits = ConnectionLimits(connections=5)
    async with World(make.index(make.policy()), limits=limits, body_timeout=60.0) as world:
        body = make.review(obj=make.thing())
        whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        held = [await Slow.open(world, whole) for _ in range(5)]
        for item in held:
            assert (await item.reader.readline()).split()[1] == b"200"
            item.writer.write(b"".join(unfinished(size=1000)))
        assert await allowed(world, make, name="another")
        for item in held:
            item.writer.close()


def taken_in(port, size, trust):
    """Return how many bytes of a body the server accepts before it stops reading."""
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        if trust is not None:
            sender = stack.enter_context(trust.wrap_socket(sender, server_hostname="127.0.0.1"))
        sender.settimeout(1.0)
        sent = sender.send(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        with contextlib.suppress(TimeoutError):
            while sent < size:
                sent += sender.send(b"x" * min(16 * 1024, size - sent))
    return sent


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_a_connection_buffers_little_of_a_body_without_a_place_in_memory(make, tls):
    """The kernel, the TLS layer and the parser buffer little; the rest waits at the sender."""
    size = 4 * 1024 * 1024

    async def attack():
        certificates = Certificates(Secrets(), NAMES, SystemClock())
        await certificates.refresh()
        trust = ssl.create_default_context(cadata=certificates.bundle.decode()) if tls else None
        world = World(
            make.index(make.policy()),
            requests=Stuck,
            together=size,
            largest=size,
            body_timeout=60.0,
            budget=60.0,
            context=certificates.context if tls else None,
        )
        async with world:
            data = {"a": "x" * (size // 2)}
            body = make.review(obj=make.thing(data=data))
            opened = await asyncio.open_connection(
                "127.0.0.1", world.port, ssl=trust, server_hostname="127.0.0.1" if tls else None
            )
            opened[1].write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await asyncio.wait_for(world.requests.begun.wait(), WITHIN)
            tries = (asyncio.to_thread(taken_in, world.port, size, trust) for _ in range(5))
            taken = await asyncio.gather(*tries)
            world.requests.go_on.set()
            assert (await opened[0].readline()).split()[1] == b"200"
            opened[1].close()
            return taken

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert max(runner.run(attack())) < 512 * 1024


async def test_a_large_body_without_a_place_in_memory_is_refused_with_the_setting(make):
    limits = {"together": 1, "largest": LARGE, "body_timeout": 0.5, "budget": 60.0}
    async with World(make.index(make.policy()), requests=Stuck, **limits) as world:
        body = make.review(obj=make.thing(data={"a": "x" * (LARGE // 2)}))
        first = await Slow.open(world, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.wait_for(world.requests.begun.wait(), WITHIN)
        refused = await (await Slow.open(world, *unfinished())).end()
        assert refused.startswith(b"HTTP/1.1 503 ")
        said = f"held {len(body)} bytes for 0.5 s, of which --max-bodies allows 1:"
        assert said.encode() in refused
        world.requests.go_on.set()
        assert (await first.reader.readline()).split()[1] == b"200"
        # The place of the answered request is free, and what is missing now is the body.
        late = await (await Slow.open(world, *unfinished())).end()
        assert late.startswith(b"HTTP/1.1 408 ")
        first.writer.close()


async def test_a_body_of_many_small_values_counts_as_what_they_take_in_memory(make):
    """Two of them would fit by their bytes, but one takes many times as much."""
    limits = {"together": 8 * LARGE, "largest": LARGE, "body_timeout": 0.5, "budget": 60.0}
    async with World(make.index(make.policy()), requests=Stuck, **limits) as world:
        dense = make.review(obj=make.thing(list=[[] for _ in range(LARGE // 4)]))
        sent = HEAD + b"Content-Length: %d\r\n\r\n" % len(dense) + dense
        first = await Slow.open(world, sent)
        await asyncio.wait_for(world.requests.begun.wait(), WITHIN)
        refused = await (await Slow.open(world, sent)).end()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"the objects in other large admission requests took about " in refused
        world.requests.go_on.set()
        assert (await first.reader.readline()).split()[1] == b"200"
        again = await Slow.open(world, sent)
        assert (await again.reader.readline()).split()[1] == b"200"
        for item in (first, again):
            item.writer.close()


async def test_invalid_http_is_answered_and_not_logged(make, caplog):
    async with World(make.index(make.policy())) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(b"POST /policies HTTP/1.1\r\nContent-Length: -1\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert b" 400 " in answer.partition(b"\r\n")[0]
        assert await allowed(world, make)
    assert caplog.records == []


async def test_a_caller_that_leaves_before_the_response_is_not_logged(make, caplog):
    async with World(make.index(make.policy()), requests=Stuck) as world:
        body = make.review(obj=make.thing())
        whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        leaving = await Slow.open(world, whole)
        await world.requests.begun.wait()
        leaving.writer.transport.abort()
        await until(lambda: world.count("connections") == 0)
        world.requests.go_on.set()
        assert await allowed(world, make, name="other")
    assert caplog.records == []


async def test_a_compressed_body_is_refused(make):
    async with World(make.index(make.policy())) as world:
        headers = {"Content-Type": "application/json", "Content-Encoding": "deflate"}
        async with world.session.post("/validate/fail", data=b"x", headers=headers) as response:
            assert response.status == 415


async def test_connections_without_a_request_are_closed_to_make_room(make):
    limits = ConnectionLimits(connections=5, header_timeout=60.0)
    async with World(make.index(make.policy()), limits=limits) as world:
        assert await allowed(world, make)
        slow = [await Slow.open(world, HEAD) for _ in range(30)]
        await until(lambda: world.count("connections_closed_total", reason="crowded") >= 26)
        # The connection that sent a request is still open, and new ones are accepted.
        assert await allowed(world, make, name="same")
        async with aiohttp.ClientSession() as another:
            url = f"http://127.0.0.1:{world.port}/validate/fail"
            body = make.review(obj=make.thing(name="another"), uid="another")
            headers = {"Content-Type": "application/json"}
            async with another.post(url, data=body, headers=headers) as response:
                assert response.status == 200
        for item in slow:
            item.writer.close()


def client(ca, name, *, usage=ExtendedKeyUsageOID.CLIENT_AUTH):
    """Return the PEM of a client certificate and its key."""
    key = serialization.load_pem_private_key(pki.make_ca(NOW).key, None)
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer.subject, subject, key.public_key(), x509.random_serial_number()
    )
    builder = builder.not_valid_before(issuer.not_valid_before_utc)
    builder = builder.not_valid_after(issuer.not_valid_after_utc)
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    signed = builder.sign(serialization.load_pem_private_key(ca.key, None), hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return signed.public_bytes(pem) + private


class Tls:
    """A server that requires client certificates of a CA that it reads from a file."""

    def __init__(self, make, tmp_path, names=""):
        self.make, self.folder = make, tmp_path
        self.ca = pki.make_ca(NOW)
        self.file = tmp_path / "client-ca.crt"
        self.file.write_bytes(self.ca.certificate)
        self.callers = Callers(files=(self.file,), names=frozenset(names.split()))
        self.certificates = Certificates(Secrets(), NAMES, SystemClock(), callers=self.callers)

    async def __aenter__(self):
        await self.certificates.refresh()
        self.world = World(self.make.index(self.make.policy()), callers=self.callers, limits=QUICK)
        await self.world.server.start(self.world.listener, lambda: self.certificates.context)
        return self

    async def __aexit__(self, *_):
        await self.world.session.close()
        await self.world.server.close()

    async def post(self, shown=None):
        """Return the status and the body of a response to a review, on a new connection."""
        trust = ssl.create_default_context(cadata=self.certificates.bundle.decode())
        if shown is not None:
            file = self.folder / "shown.pem"
            file.write_bytes(shown)
            trust.load_cert_chain(file)
        url = f"https://127.0.0.1:{self.world.port}/validate/fail"
        body = self.make.review(obj=self.make.thing())
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
            session.post(url, data=body, headers=headers) as response,
        ):
            return response.status, await response.json()


async def test_a_caller_without_a_certificate_is_refused_with_the_cure(make, tmp_path):
    async with Tls(make, tmp_path) as tls:
        status, answer = await tls.post()
        assert status == 401
        assert "AdmissionConfiguration" in answer["message"]
        assert await tls.world.stored() == []
        assert tls.world.count("callers_refused_total", code="401") == 1
        status, answer = await tls.post(client(tls.ca, "kube-apiserver"))
        assert (status, answer["response"]["allowed"]) == (200, True)
        assert len(await tls.world.stored()) == 1


async def test_a_client_certificate_for_another_name_is_refused(make, tmp_path):
    async with Tls(make, tmp_path, names="kube-apiserver webhooks") as tls:
        status, answer = await tls.post(client(tls.ca, "system:node:worker-1"))
        assert status == 403
        assert "system:node:worker-1" in answer["message"]
        assert await tls.world.stored() == []
        assert (await tls.post(client(tls.ca, "webhooks")))[0] == 200


@pytest.mark.parametrize("fault", ["another CA", "a server's"])
async def test_a_client_certificate_that_is_not_valid_for_the_ca_ends_the_handshake(
    make, tmp_path, fault
):
    async with Tls(make, tmp_path) as tls:
        if fault == "another CA":
            shown = client(pki.make_ca(NOW), "kube-apiserver")
        else:
            shown = client(tls.ca, "kube-apiserver", usage=ExtendedKeyUsageOID.SERVER_AUTH)
        with pytest.raises(aiohttp.ClientError):
            await tls.post(shown)
        assert await tls.world.stored() == []


async def test_a_handshake_that_does_not_complete_is_ended(make, tmp_path):
    async with Tls(make, tmp_path) as tls:
        slow = [await Slow.open(tls.world) for _ in range(10)]
        assert (await tls.post(client(tls.ca, "kube-apiserver")))[0] == 200
        await asyncio.gather(*(item.end() for item in slow))
        await until(lambda: tls.world.count("connections") == 0)


@pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_connections_with_half_sent_heads_are_closed_over_tls_on_every_loop(make, tmp_path, loop):
    """The programs run on uvloop, whose transports are not asyncio classes."""

    async def ended():
        async with Tls(make, tmp_path) as tls:
            trust = ssl.create_default_context(cadata=tls.certificates.bundle.decode())
            opened = await asyncio.open_connection("127.0.0.1", tls.world.port, ssl=trust)
            reader, writer = opened
            writer.write(HEAD)
            found = await asyncio.wait_for(reader.read(), WITHIN)
            writer.close()
            return found, tls.world.count("connections_closed_total", reason="slow")

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(ended()) == (b"", 1)


async def test_a_new_client_ca_in_the_file_is_used_without_a_restart(make, tmp_path):
    async with Tls(make, tmp_path) as tls:
        old, new = tls.ca, pki.make_ca(NOW)
        tls.file.write_bytes(b"not yet whole")
        with pytest.raises(InvalidSetting, match=r"client-ca.crt: it has no certificate; write"):
            await tls.certificates.refresh()
        assert (await tls.post(client(old, "kube-apiserver")))[0] == 200
        tls.file.write_bytes(new.certificate)
        await tls.certificates.refresh()
        assert (await tls.post(client(new, "kube-apiserver")))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await tls.post(client(old, "kube-apiserver"))
