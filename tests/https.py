"""Serves an application over TLS in the process of a test, and leaves no connection behind."""

import contextlib
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator

from aiohttp import web

from reconciler.serving.pki import Pair

HOST = "127.0.0.1"
# The server would log connections that break, which the tests do on purpose.
_quiet = logging.getLogger(f"{__name__}.quiet")
_quiet.disabled = True


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
