"""Serves an application over TLS in the process of a test, and leaves no connection behind."""

import contextlib
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import ip_address

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from reconciler.clock import SystemClock
from reconciler.serving.pki import Pair

HOST = "127.0.0.1"
# The server would log connections that break, which the tests do on purpose.
_quiet = logging.getLogger(f"{__name__}.quiet")
_quiet.disabled = True


def without_identifiers() -> Pair:
    """Return a serving certificate of a CA without key identifiers, which is its bundle.

    Old clusters have such CAs: those of EKS before Kubernetes 1.17. By default, Python refuses
    them from 3.13 on.
    """
    key, now = ec.generate_private_key(ec.SECP256R1()), SystemClock().now()
    names = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("kubernetes", HOST)
    ]
    extensions: tuple[x509.ExtensionType, ...] = (
        x509.BasicConstraints(ca=True, path_length=None),
        x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]),
    )
    ca, serving = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(names[0])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension, critical=name == names[0])
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
        for name, extension in zip(names, extensions, strict=True)
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(certificate=serving, key=private, bundle=ca)


@contextlib.asynccontextmanager
async def serve_https(app: web.Application, pair: Pair) -> AsyncIterator[str]:
    """Serve an application until the end of the context, and yield its URL.

    A TLS shutdown waits for the answer of the peer, for up to 30 seconds. An event loop that ends
    before would leave sockets open, for which a later test would fail. So connections that are
    still open then are aborted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.key + pair.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    runner = web.AppRunner(app, access_log=None, logger=_quiet, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
    assert runner.server is not None
    try:
        yield f"https://{HOST}:{runner.addresses[0][1]}"
    finally:
        transports = [connection.transport for connection in runner.server.connections]
        await runner.cleanup()
        for transport in transports:
            if transport is not None:
                transport.abort()
