"""The connections to one API server, and what all who speak over them share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from typing_extensions import override

CONNECT_TIMEOUT = 5.0

_CONNECTIONS = 256
_KEEP_ALIVE = 60.0


@dataclass(slots=True, kw_only=True)
class Line:
    """One pool of connections.

    Attributes:
        fixed: Options of every request.
        may_write: Asked before each request that is no GET: a leader whose Lease ran out while it
            was frozen must not finish what it began.
        left_out: Called with a sentence on objects that cannot be read.
        date: What the API server said last that the time is, and when that came, monotonic.
    """

    transport: "Transport"
    session: aiohttp.ClientSession
    fixed: dict[str, Any]
    may_write: Callable[[], bool] = field(default=lambda: True)
    left_out: Callable[[str], None] = field(default=lambda _: None)
    date: tuple[str, float] = "", 0.0

    @classmethod
    def of(cls, configuration: Configuration) -> Self:
        """Return the one of a configuration; nothing is sent yet."""
        transport = Transport(configuration)
        fixed: dict[str, Any] = {"allow_redirects": False}
        if proxy := configuration.proxy or _proxy_of(str(configuration.host)):
            fixed |= {"proxy": proxy, "proxy_headers": configuration.proxy_headers}
        if configuration.tls_server_name:
            fixed["server_hostname"] = configuration.tls_server_name
        return cls(transport=transport, session=transport.open(), fixed=fixed)

    def allow_writes(self, may_write: Callable[[], bool]) -> None:
        """Have somebody asked before each request that is no GET."""
        self.may_write = may_write

    def tell_left_out(self, warn: Callable[[str], None]) -> None:
        """Set what is called with a sentence on objects that cannot be read."""
        self.left_out = warn

    def note_date(self, said: str, now: float) -> None:
        """Take in what the API server says that the time is."""
        self.date = said, now


class Transport(RESTClientObject):
    """The client's pool, with connections kept longer and without a look at the environment.

    Proxies and netrc would be looked up for every request, which trebles its cost.
    """

    def open(self, **more: Any) -> aiohttp.ClientSession:
        """Return a session over connections of its own."""
        self.configuration.client_session_kwargs = {
            "trust_env": False,
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            "cookie_jar": aiohttp.DummyCookieJar(),
            **more,
        }
        return self._create_pool_manager()

    @override
    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=_CONNECTIONS, ssl=self.ssl_context, keepalive_timeout=_KEEP_ALIVE
        )


def _proxy_of(address: str) -> str | None:
    parts = urlsplit(address)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
