"""Fuzzers of the webhooks over HTTP: raw bytes, admission reviews, and policies."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import orjson
from hypothesis import strategies as st

from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.serving.connections import ConnectionLimits
from tests.fuzz.documents import TEXTS, VALUES, damaged
from tests.fuzz.fuzzing import Check, Fuzzer, event_loop
from tests.fuzz.grammar import OBJECTS, OPERATIONS, POLICIES, WRITTEN, Object
from tests.unit.admission.serving import World

DEADLINE = 5.0
"""Seconds within which the server must answer: half of a webhook's default timeout."""
_UNREAD = 0.3
"""Seconds after which the server stops waiting for the head or the body of a request."""
_TURNS = 10
"""Turns of the event loop in which the server accepts a connection and reads from it."""
_IN_FORCE = 6
_VALIDATING = (
    "/validate/fail",
    "/validate/ignore",
    "/validate/fail/p1",
    "/validate/ignore/a/p2",
    "/at/0123456789abcdef/validate/fail",
)
_PATHS = st.sampled_from([*_VALIDATING, "/policies", "/exceptions"])
_KINDS = {"ConfigMap": "configmaps", "Secret": "secrets", "Pod": "pods"}


def _review(operation: str, obj: Object, old: Object, subresource: str, user: Object) -> Object:
    meta = obj.get("metadata") or {}
    kind = {"group": "", "version": "v1", "kind": obj["kind"]}
    request = {
        "uid": "request-1",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": _KINDS[obj["kind"]]},
        "requestKind": kind,
        "subResource": subresource,
        "name": meta.get("name", ""),
        "namespace": meta.get("namespace", ""),
        "operation": operation,
        "userInfo": user,
        "object": None if operation == "DELETE" else obj,
        "oldObject": old if operation in {"UPDATE", "DELETE"} else None,
        "dryRun": False,
        "options": {"kind": "CreateOptions"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


_USERS = st.fixed_dictionaries(
    {"username": st.sampled_from(["jane", "own", "system:serviceaccount:a:b"])},
    optional={
        "uid": st.just("1"),
        "groups": st.lists(st.sampled_from(["devs", "system:masters"]), max_size=2),
        "extra": st.just({"a": ["b"]}),
    },
)
REVIEWS = st.builds(
    _review,
    OPERATIONS,
    OBJECTS,
    OBJECTS,
    st.sampled_from(["", "", "", "status", "binding", "x"]),
    _USERS,
)
_INSERTED = st.sampled_from(
    [
        b"NaN",
        b"1e999",
        b"-0",
        b"9" * 400,
        b'"\\ud800"',
        b"\xff",
        b"\x00",
        b"\xef\xbb\xbf",
        b'"request":{},',
        b'"kind":1,',
        b"[" * 2_000,
        b'"deep":' + b'{"a":' * 1_200 + b"1" + b"}" * 1_200 + b",",
        b"}",
        b"//",
        b"{",
    ]
)


@st.composite
def _bodies(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> bytes:
    text = json.dumps(draw(documents), ensure_ascii=draw(st.booleans()))
    body = text.encode(errors="surrogatepass")
    for _ in range(draw(st.integers(0, 2)) if draw(st.booleans()) else 0):
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(_INSERTED) + body[at:]
    return body


@contextlib.contextmanager
def _serving(policies: bool = False) -> Iterator[tuple[World, Any, PolicyStore]]:
    index = PolicyStore()

    async def start() -> World:
        limits = ConnectionLimits(header_timeout=_UNREAD)
        world = World(index, limits=limits, body_timeout=_UNREAD, namespaces={"a": {"env": "a"}})
        await world.__aenter__()
        return world

    with event_loop() as loop:
        world = loop.run(start(), within=DEADLINE)
        try:
            yield world, loop, index
        finally:
            loop.run(world.__aexit__(), within=DEADLINE)


def _renamed(policy: Object, number: int) -> Object:
    name = f"p{number % _IN_FORCE}"
    meta = {**policy["metadata"], "name": name, "uid": f"uid-{name}", "generation": number + 1}
    return {**policy, "metadata": meta}


@contextlib.contextmanager
def _reviews() -> Iterator[Check]:
    with _serving() as (world, loop, index):
        numbers = iter(range(1_000_000_000))

        def check(case: tuple[list[Object], str, bytes]) -> None:
            policies, path, body = case
            for policy in policies:
                index.apply(_renamed(policy, next(numbers)))
            begun = time.monotonic()
            status, answer = loop.run(_post(world, path, body), within=DEADLINE)
            assert time.monotonic() - begun < DEADLINE
            judge(status, answer)

        yield check


async def _post(world: World, path: str, body: bytes) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    async with world.session.post(path, data=body, headers=headers) as response:
        return response.status, await response.read()


def judge(status: int, answer: bytes) -> None:
    """Fail unless both the API server and the user can use an answer."""
    assert b"Traceback" not in answer
    decoded = orjson.loads(answer)
    if status != 200:
        assert 400 <= status < 500, (status, answer)
        assert decoded["kind"] == "Status"
        assert len(decoded["message"]) > len("kube-retrofit: "), answer
        return
    response = decoded["response"]
    assert response["uid"]
    assert isinstance(response["allowed"], bool)
    if not response["allowed"]:
        assert 400 <= response["status"]["code"] <= 503, answer
        assert response["status"]["message"], answer
    for warning in response.get("warnings", ()):
        assert warning


def _written(obj: Any, old: Any, kind: str) -> Object:
    request = {
        "uid": "request-1",
        "kind": {"group": "kyverno.io", "version": "v1", "kind": kind},
        "resource": {"group": "kyverno.io", "version": "v1", "resource": "clusterpolicies"},
        "name": "p",
        "namespace": "",
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "jane"},
        "object": obj,
        "oldObject": old,
        "dryRun": True,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


_AUTHORED = {
    "ClusterPolicy": "/policies",
    "Policy": "/policies",
    "GlobalContextEntry": "/policies",
    "PolicyException": "/exceptions",
}


@contextlib.contextmanager
def _authoring() -> Iterator[Check]:
    with _serving() as (world, loop, _):

        def check(case: tuple[Any, Any]) -> None:
            obj, old = case
            found = str(obj.get("kind"))
            kind = found if found in _AUTHORED else "ClusterPolicy"
            review, path = _written(obj, old, kind), _AUTHORED[kind]
            body = json.dumps(review).encode(errors="surrogatepass")
            judge(*loop.run(_post(world, path, body), within=DEADLINE))

        yield check


_HEADS = st.lists(
    st.sampled_from(
        [
            "Content-Type: application/json",
            "Content-Type: application/json; charset=utf-16",
            "Content-Type: text/plain",
            "Content-Type: ;;;",
            "Content-Encoding: gzip",
            "Content-Encoding: identity",
            "Content-Length: 0",
            "Content-Length: -1",
            "Content-Length: 99999999999999999999",
            "Content-Length: 7",
            "Content-Length: abc",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: identity",
            "Expect: 100-continue",
            "Upgrade: websocket",
            "Connection: upgrade",
            "Connection: close",
            "Host: a",
            "Host: b",
            "X: \x00",
            ": no name",
            "Cookie: " + "a" * 9_000,
        ]
    ),
    max_size=4,
)
_LINES = st.one_of(
    st.builds(
        "{} {} HTTP/{}".format,
        st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "CONNECT", "PRI", "\x00"]),
        _PATHS | st.sampled_from(["*", "/", "//", "/..%2f", "/%ff", "/validate/fail?x=y#z"]),
        st.sampled_from(["1.1", "1.1", "1.0", "2.0", "9"]),
    ),
    TEXTS.map(lambda text: text.replace("\n", " ")),
)


@st.composite
def _messages(draw: st.DrawFn) -> list[bytes]:
    """Draw the head of a request and two parts of its body, to be sent one after another."""
    body = draw(_bodies(damaged(REVIEWS)) | st.binary(max_size=30))
    heads = ["Host: a", *draw(_HEADS)][draw(st.sampled_from([0, 0, 0, 1])) :]
    if draw(st.booleans()):
        heads.append(f"Content-Length: {len(body)}")
    if any("chunked" in head for head in heads) and draw(st.booleans()):
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = "\r\n".join([draw(_LINES), *heads, "", ""]).encode(errors="replace")
    return [head, *draw(_halves(body))]


@st.composite
def _well_formed(draw: st.DrawFn) -> list[bytes]:
    """Draw a request of the API server, in the same parts as other messages."""
    body = json.dumps(draw(REVIEWS)).encode()
    line = f"POST {draw(st.sampled_from(_VALIDATING))} HTTP/1.1"
    heads = ["Host: a", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    optional = ("Expect: 100-continue", "Connection: close", "Content-Encoding: identity")
    heads += draw(st.lists(st.sampled_from(optional), max_size=2, unique=True))
    head = "\r\n".join([line, *draw(st.permutations(heads)), "", ""]).encode()
    return [head, *draw(_halves(body))]


def _halves(body: bytes) -> st.SearchStrategy[list[bytes]]:
    return st.integers(0, len(body)).map(lambda cut: [body[:cut], body[cut:]])


@contextlib.contextmanager
def _wire() -> Iterator[Check]:
    with _serving() as (world, loop, _):

        def check(case: tuple[bool, list[bytes]]) -> None:
            is_well_formed, parts = case
            status, answer = loop.run(_exchange(world, parts), within=DEADLINE)
            if status:
                judge(status, answer)
                assert status == 200 or not is_well_formed, answer
            else:
                # Only a connection on which no request has begun is closed without an answer.
                assert not parts[0].strip(), "no answer"

        yield check


async def _exchange(world: World, parts: list[bytes]) -> tuple[int, bytes]:
    """Send the parts; return the status and body of the answer, or 0 and b"" without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    # Read meanwhile: a server that ends the connection after its answer resets it at further data.
    answering = asyncio.create_task(_answer(reader))
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            # Otherwise the server, on the same event loop, would read all parts at once.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
    try:
        return await answering
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0, b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and body of the next answer that is not `100 Continue`."""
    line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()[:-1]
    version, status, *_ = line.split()
    assert version == "HTTP/1.1", line
    if status == "100":
        return await _answer(reader)
    sizes = [field.partition(":")[2] for field in fields if field.startswith("Content-Length:")]
    return int(status), await reader.readexactly(int(sizes[0]))


_REVIEWED = st.tuples(st.lists(POLICIES, max_size=2), _PATHS, _bodies(damaged(REVIEWS) | VALUES))
_SENT = st.tuples(st.just(False), _messages()) | st.tuples(st.just(True), _well_formed())
FUZZERS = (
    Fuzzer(name="wire", inputs=_SENT, open=_wire, short=100),
    Fuzzer(name="reviews", inputs=_REVIEWED, open=_reviews, short=80),
    Fuzzer(
        name="authoring",
        inputs=st.tuples(damaged(WRITTEN), st.none() | damaged(WRITTEN)),
        open=_authoring,
        short=80,
    ),
)
