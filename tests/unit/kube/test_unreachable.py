"""The errors for a server that does not answer and for an unusable kubeconfig."""

import pwd
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconciler.clock import SystemClock
from reconciler.errors import ClusterError, InvalidSetting
from reconciler.kube.client import connect
from tests.https import serve_https, without_identifiers

CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://SERVER"}}]
users: [{name: a, user: {token: x}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")])
    now = SystemClock().now()
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


class Server:
    """A server on the loopback address that either speaks TLS or sends a plain answer."""

    def __init__(self, context: ssl.SSLContext | None, answer: bytes) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.context = context
        self.answer = answer
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self.talk(connection)
                except OSError:
                    continue

    def talk(self, connection: socket.socket) -> None:
        if self.context is None:
            connection.recv(1024)
            connection.sendall(self.answer)
            return
        with self.context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1024)


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    server = Server(context, b"")
    yield server.address
    server.listener.close()


@pytest.fixture
def plain() -> Iterator[str]:
    server = Server(None, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    yield server.address
    server.listener.close()


async def said(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(CONFIG.replace("SERVER", server))
    client = await connect(str(path))
    try:
        with pytest.raises(ClusterError) as caught:
            await client.request("GET", "/version", timeout=10.0, repeat=False)
    finally:
        await client.close()
    text = str(caught.value)
    for word in ("_ssl.c", "Errno", "Error", "ssl:", "Cannot connect"):
        assert word not in text
    return text


async def test_an_untrusted_certificate_is_reported(tmp_path: Path, untrusted: str) -> None:
    text = await said(tmp_path, untrusted)
    assert text.endswith("(its certificate is not trusted: self-signed certificate)")


@pytest.mark.usefixtures("strict")
async def test_a_cluster_whose_ca_has_no_key_identifiers_is_trusted(tmp_path: Path) -> None:
    pair = without_identifiers()
    (tmp_path / "ca.crt").write_bytes(pair.bundle)
    app = web.Application()

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"major": "1"})

    app.router.add_get("/version", version)
    async with serve_https(app, pair) as address:
        file = tmp_path / "kubeconfig"
        trusting = f"certificate-authority: {tmp_path}/ca.crt"
        server = f'server: "{address}", {trusting}'
        file.write_text(CONFIG.replace('server: "https://SERVER"', server))
        client = await connect(str(file))
        try:
            assert await client.request("GET", "/version", repeat=False) == b'{"major": "1"}'
        finally:
            await client.close()


async def test_a_port_without_tls_is_reported(tmp_path: Path, plain: str) -> None:
    text = await said(tmp_path, plain)
    assert "it does not speak TLS there: is the port right, and is it https?" in text


async def test_a_host_name_that_cannot_be_resolved_is_reported(tmp_path: Path) -> None:
    text = await said(tmp_path, "nobody.invalid:6443")
    assert text.endswith("does not answer (its name is not known)")


async def test_without_a_home_folder_there_is_no_kubeconfig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container may run under a number that no account has."""

    def getpwuid(number: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    for name in ("HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidSetting, match=r"no kubeconfig ~/\.kube/config: .* --kube-config\)"):
        await connect("")


async def test_a_refused_connection_is_reported(tmp_path: Path) -> None:
    assert (await said(tmp_path, "127.0.0.1:1")).endswith("(connection refused)")


@pytest.mark.parametrize(
    ("change", "meaning"),
    [
        (
            ("current-context: a", ""),
            "it has no current-context: name one with --context (of",
        ),
        (("current-context: a", "current-context: b"), "it has no context b: name another"),
        (("cluster: a,", "cluster: c,"), "its context names the cluster c, which it lacks"),
        (("users: [", "users: [["), "it is not YAML: line 6, column "),
        (("user: a}", "user: b}"), "its context names the user b, which it lacks"),
        ((", user: a}", "}"), "its context a names no user"),
        (("cluster: a, ", ""), "its context a names no cluster"),
        (("{token: x}", "5"), "users[0].user: expected an object, got a number"),
        (("{token: x}", '{token: "x\\ny"}'), "its token has a line end, or another control"),
        (
            ("{token: x}", "{token: 5}"),
            "users[0].user.token: expected a string, got a number",
        ),
        (
            ("{token: x}", "{exec: {command: [x]}}"),
            "users[0].user.exec.command: expected",
        ),
        (("{token: x}", "{client-key-data: eA==}"), "users[0].user.client-key-data: expected PEM"),
        (("users: [{name: a", "users: [{nam: a"), "users[0].name: it is missing"),
        (("kind: Config", "kind: Pod"), "kind: expected Config, got Pod; it is another file"),
        (("apiVersion: v1", "a: \0"), "it is not YAML: character "),
        (
            ("{token: x}", "{client-certificate: /etc/passwd, client-key: /etc/passwd}"),
            "the client certificate and key of its user cannot be used: they are not in PEM",
        ),
        (
            ("{token: x}", "{client-certificate: /none/c.crt, client-key: /none/c.key}"),
            "the file /none/c.crt that it names does not exist",
        ),
        (
            (
                "{token: x}",
                "{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin}}",
            ),
            "its plugin no-such-plugin returns no credentials: install it, or log in with it",
        ),
    ],
)
async def test_an_unusable_kubeconfig_is_reported_with_its_path_and_the_reason(
    tmp_path: Path, change: tuple[str, str], meaning: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(CONFIG.replace(*change))
    with pytest.raises(InvalidSetting) as caught:
        await connect(str(path))
    assert str(caught.value).startswith(f"kubeconfig {path}: {meaning}")


async def test_a_context_without_a_user_serves_a_server_without_tls(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    text = CONFIG.replace(", user: a}", "}").replace("https://SERVER", "http://127.0.0.1:8001")
    path.write_text(text)
    async with await connect(str(path)) as client:
        assert client.address == "http://127.0.0.1:8001"


async def test_of_several_kubeconfigs_the_first_current_context_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        text = CONFIG.replace(": a", f": {name}").replace("SERVER", f"{name}.invalid")
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent:{tmp_path}/a:{tmp_path}/b")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for context, name in (("", "a"), ("b", "b")):
        async with await connect("", context) as client:
            assert client.address == f"https://{name}.invalid"
