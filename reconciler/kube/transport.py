"""The connections to one API server, and the state that all their clients share."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from typing_extensions import override

from reconciler.signals import Signal

CONNECT_TIMEOUT = 5.0

_CONNECTIONS = 256
_KEEP_ALIVE = 60.0
_READ_BUFFER = 128 * 1024
"""Bytes of an answer that arrive before they are read; up to twice that and a part are kept."""


class Line:
    """The connections for a configuration; no request is sent yet.

    Attributes:
        session: Pool of the connections for calls.
        watches: Connections for watches, as many as there are watches: they stay in use, and
            would leave none for calls.
        fixed: Options of every request.
        may_write: Called before each request that is not a GET: a leader whose Lease expired
            while it was frozen must not finish its writes.
        left_out: Called with a warning about objects that cannot be read.
        unserved: Emitted when the API server does not serve a kind that was called.
        date: Last ``Date`` header of the API server, and the monotonic time of its arrival.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.transport = Transport(configuration)
        self.session = self.transport.open()
        self.watches = self.transport.open(most=0)
        self.fixed: dict[str, Any] = {"allow_redirects": False}
        if proxy := configuration.proxy or _proxy_of(str(configuration.host)):
            self.fixed |= {"proxy": proxy, "proxy_headers": configuration.proxy_headers}
        if configuration.tls_server_name:
            self.fixed["server_hostname"] = configuration.tls_server_name
        self.may_write: Callable[[], bool] = lambda: True
        self.left_out: Callable[[str], None] = lambda _: None
        self.unserved = Signal[[]]()
        self.date = "", 0.0

    def allow_writes(self, may_write: Callable[[], bool]) -> None:
        """Set a predicate that must hold for each request that is not a GET."""
        self.may_write = may_write

    def tell_left_out(self, warn: Callable[[str], None]) -> None:
        """Set the callback for warnings about objects that cannot be read."""
        self.left_out = warn

    def note_date(self, said: str, now: float) -> None:
        """Record a ``Date`` header of the API server."""
        self.date = said, now


class Transport(RESTClientObject):
    """The client's pool, with longer keep-alive and without reading the environment.

    Otherwise proxies and netrc would be looked up for every request, which trebles its cost. Each
    answer may have four megabytes in a buffer by default; they pile up while the process is slow.
    """

    def open(self, *, most: int = _CONNECTIONS, **more: Any) -> aiohttp.ClientSession:
        """Return a session with connections of its own; 0 is no limit."""
        self._most = most
        self.configuration.client_session_kwargs = {
            "trust_env": False,
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            "cookie_jar": aiohttp.DummyCookieJar(),
            "read_bufsize": _READ_BUFFER,
            **more,
        }
        return self._create_pool_manager()

    @override
    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self._most, ssl=self.ssl_context, keepalive_timeout=_KEEP_ALIVE
        )


def _proxy_of(address: str) -> str | None:
    parts = urlsplit(address)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
