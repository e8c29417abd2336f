"""The only connection to the API server: raw bytes over the Kubernetes client's own session.

Address, certificates, proxy and tokens come from `kubernetes.aio`, and so do resources and verbs
(`Client.resource`). Its connection pool is used directly, because the layers in between cost
several times the CPU of a call and reject objects that the server accepts. Bodies are never
logged.
"""

import asyncio
import contextlib
import importlib.metadata
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import orjson
from yarl import URL

from reconciler.api.meta import Kind
from reconciler.clock import Clock, SystemClock
from reconciler.errors import (
    ClusterError,
    Forbidden,
    InvalidSetting,
    NoKindMatch,
    NotFound,
    ResponseTooLarge,
    Silent,
    Unauthorized,
    Unavailable,
)
from reconciler.kube.credentials import Credentials, load_credentials
from reconciler.kube.decoding import JSON, TooDeep, decode, salvage
from reconciler.kube.dynamic import ApiResource, ObjectClient
from reconciler.kube.errors import failure, unreachable
from reconciler.kube.paths import Call, describe
from reconciler.kube.retrying import is_repeatable, repeated, until_done
from reconciler.kube.shallow import ShallowResponse
from reconciler.kube.transport import CONNECT_TIMEOUT, Line
from reconciler.signals import Signal

OnCall = Callable[[str, str, int, float], None]
"""Called after every request with verb, resource, HTTP status (0: no answer) and seconds."""
OnAnswer = Callable[[Call, str], None]
"""Called for another library's requests with the call and its failure message, or ""."""


class Client:
    """Requests to one API server; every failure is a `ClusterError`.

    Attributes:
        address: Address of the API server, for messages.
    """

    def __init__(
        self,
        credentials: Credentials,
        clock: Clock,
        on_call: OnCall | None,
        user: str = "",
        line: Line | None = None,
    ) -> None:
        self.configuration = credentials.configuration
        self.address = str(self.configuration.host)
        self._headers = {"User-Agent": f"kube-retrofit/{_version()}"}
        if user:
            self._headers["Impersonate-User"] = user
        self.on_call = on_call
        self._clock = clock
        self._credentials = credentials
        self._line = line or Line(self.configuration)
        self._objects = ObjectClient(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def date(self) -> tuple[str, float]:
        """Return the API server's last ``Date`` header and the monotonic time of its arrival."""
        return self._line.date

    @property
    def unserved(self) -> Signal[[]]:
        """Return the signal that the API server does not serve a kind that was called."""
        return self._line.unserved

    def allow_writes(self, may_write: Callable[[], bool]) -> None:
        """Set a predicate that must hold for each request that is not a GET, for every user."""
        self._line.allow_writes(may_write)

    def tell_left_out(self, warn: Callable[[str], None]) -> None:
        """Set the callback for warnings about objects that cannot be read."""
        self._line.tell_left_out(warn)

    def left_out(self, what: str) -> None:
        """Report objects that cannot be read."""
        self._line.left_out(what)

    def speaking_for(self, user: str) -> "Client":
        """Return a client that impersonates another user, over the same connections.

        Only the original client needs to be closed.

        Args:
            user: Full name of a ServiceAccount; the API server adds its groups.
        """
        return Client(self._credentials, self._clock, self.on_call, user, self._line)

    def open_session(self, on_answer: OnAnswer) -> aiohttp.ClientSession:
        """Return a session for another library, which has to close it.

        Its requests are sent like this client's: with current credentials, and after a 401 once
        more with credentials read again. The library never sees the token.
        """

        async def send(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            url = request.url
            call = describe(request.method, url.path, watch=url.query.get("watch") == "true")
            request.server_hostname = self._line.fixed.get("server_hostname")
            try:
                response = await self._authorized(request, handler)
            except (aiohttp.ClientError, OSError) as error:
                on_answer(call, str(unreachable(call, self.address, error)))
                raise
            said = ""
            if not response.ok:
                status, headers = response.status, response.headers
                said = str(failure(call, status, headers, await response.read()))
            on_answer(call, said)
            return response

        fixed = self._line.fixed
        proxy = {key: fixed[key] for key in ("proxy", "proxy_headers") if key in fixed}
        return self._line.transport.open(
            middlewares=(send,), response_class=ShallowResponse, **proxy
        )

    async def _authorized(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        sent = await self._credentials.authorization()
        if sent:
            request.headers["Authorization"] = sent
        response = await handler(request)
        if response.status == HTTPStatus.UNAUTHORIZED and await self._credentials.renew(sent):
            response.release()
            request.headers["Authorization"] = await self._credentials.authorization()
            response = await handler(request)
        return response

    def resource(self, kind: Kind) -> ApiResource:
        """Return a kind as a resource with verbs; if the kind names a subresource, that one."""
        return self._objects.resource(kind)

    async def close(self) -> None:
        """Close all connections."""
        await self._line.session.close()
        await self._line.watches.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float = 30.0,  # noqa: ASYNC109  (covers all attempts, which a caller cannot)
        repeat: bool = True,
        most: int = 0,
    ) -> bytes:
        """Send one request and return the body of the answer.

        A refused or broken connection, 408, 429 and 502 to 504 are retried a few times with
        jitter, honouring Retry-After. That is safe for this project's requests: reads, guarded
        writes, deletions, and creates under a name that is fixed beforehand.

        Args:
            method: In upper case.
            path: Already quoted.
            query: Not yet quoted.
            body: JSON.
            accept: Media types of the answer.
            timeout: Seconds for all attempts together.
            repeat: False for callers that retry on their own schedule.
            most: Limit of the answer in bytes, above which reading stops; 0 means no limit.

        Raises:
            ResponseTooLarge: The answer is larger.
        """
        call = describe(method, path)
        headers = {"Accept": accept, **self._headers}
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._url(path, query)
        seen: list[ClusterError] = []

        async def attempt() -> bytes:
            try:
                if method != "GET" and not self._line.may_write():
                    # After a pause of the process, its Lease may be renewed a moment later.
                    raise Unavailable(f"{call}: this process does not hold the Lease")
                session = self._line.session
                async with self._open(
                    call, method, url, session, headers=headers, data=body
                ) as response:
                    return await (_read(call, response, most) if most else response.read())
            except ClusterError as error:
                seen.append(error)
                raise

        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    try:
                        return await attempt()
                    except ClusterError as error:
                        if not repeat or not is_repeatable(error):
                            raise
                        return await repeated(attempt, error, timeout)
            if seen:
                raise seen[-1]
            raise Unavailable(
                f"{call}: the API server at {self.address} does not answer within {timeout:g}s"
            )
        finally:
            # The frames in a traceback refer to its error. So they, the answer, and the objects
            # of all callers would stay until the collector looks, which it seldom does.
            while seen:
                seen.pop().__traceback__ = None

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """Send one request as `request` does and return the decoded answer."""
        return self.decode(method, path, await self.request(method, path, **options))

    def decode(self, method: str, path: str, answer: bytes) -> Any:
        """Return the decoded answer of a request.

        List items that are nested too deeply are left out and reported.

        Raises:
            Invalid: The answer is a single object that is nested too deeply.
        """
        try:
            return decode(answer)
        except TooDeep as error:
            return salvage(error, describe(method, path), self.left_out)
        except orjson.JSONDecodeError as error:
            call = describe(method, path)
            raise Unavailable(f"{call}: the answer of {self.address} is not JSON") from error

    @contextlib.asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str,
        idle: float,
        total: float | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its lines.

        Args:
            path: Of the collection.
            query: Includes ``timeoutSeconds``, so that the server ends the watch too.
            accept: Media types of the answer.
            idle: Seconds without a byte after which the connection is given up.
            total: Seconds after which it ends even if bytes arrive; None for no limit.

        Raises:
            Silent: Nothing arrived for that long, after the watch had begun.
        """
        call = describe("GET", path, watch=True)
        headers = {"Accept": accept, **self._headers}
        limits = aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_TIMEOUT, sock_read=idle)
        watches = self._line.watches
        async with self._open(
            call, "GET", self._url(path, query), watches, headers=headers, timeout=limits
        ) as response:
            yield _lines(call, response)

    async def wait_until_served(
        self, on_wait: Callable[[str], None], *, limit: float = 0.0
    ) -> None:
        """Return as soon as the API server answers this client.

        Args:
            on_wait: Called with a readable sentence before each pause.
            limit: Seconds after which to give up; 0 means never.

        Raises:
            Unauthorized: The server answers, but does not accept the credentials.
            Unavailable: The limit has passed.
        """

        async def answered() -> None:
            # A 403 or a 404 is an answer too: the server is up.
            with contextlib.suppress(Forbidden, NotFound, NoKindMatch):
                await self.request("GET", "/readyz", timeout=10.0, repeat=False)

        await until_done(
            answered,
            lambda text: on_wait(text.removeprefix("get /readyz: ")),
            passes=lambda error: not isinstance(error, Unauthorized),
            longest=15.0,
            limit=limit,
        )

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        tail = "?" + urlencode(query, quote_via=quote) if query else ""
        return URL(f"{self.address}{path}{tail}", encoded=True)

    @contextlib.asynccontextmanager
    async def _open(
        self, call: Call, method: str, url: URL, session: aiohttp.ClientSession, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a successful answer; after a 401, try once more with credentials read again."""
        for again in (True, False):
            sent = await self._credentials.authorization()
            if sent:
                options["headers"]["Authorization"] = sent
            started = self._clock.monotonic()
            status = 0
            try:
                async with session.request(method, url, **options, **self._line.fixed) as response:
                    status = response.status
                    self._line.note_date(response.headers.get("Date", ""), self._clock.monotonic())
                    if status < 300:  # noqa: PLR2004
                        try:
                            yield response
                        finally:
                            _hang_up(response)
                        return
                    error = failure(call, status, response.headers, await response.read())
                    if isinstance(error, NoKindMatch):
                        self.unserved.emit()
            except (aiohttp.ClientError, OSError) as cause:
                raise unreachable(call, self.address, cause) from cause
            finally:
                if self.on_call is not None:
                    seconds = self._clock.monotonic() - started
                    self.on_call(call.verb, call.resource, status, seconds)
            if not (
                again and isinstance(error, Unauthorized) and await self._credentials.renew(sent)
            ):
                raise error


async def _read(call: Call, response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > most:
            raise ResponseTooLarge(f"{call}: the answer is larger than {most} bytes")
    return bytes(body)


async def connect(
    kubeconfig: str = "",
    context: str = "",
    *,
    user: str = "",
    clock: Clock | None = None,
    on_call: OnCall | None = None,
) -> Client:
    """Return a client, without sending a request yet.

    Args:
        kubeconfig: Path; empty for the ServiceAccount's credentials or the default kubeconfig.
        context: Context of the kubeconfig; empty for the current one.
        user: User to impersonate, which the credentials must allow; empty for none.
        clock: Measures time-outs and the age of credentials.

    Raises:
        InvalidSetting: There are no usable credentials.
    """
    clock = clock or SystemClock()
    credentials = await load_credentials(kubeconfig, context, clock)
    address = str(credentials.configuration.host)
    _check_address(address, credentials.place)
    try:
        return Client(credentials, clock, on_call, user)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "they are malformed"
        if isinstance(error, ssl.SSLError):
            said = "they are not in PEM, or a key does not match its certificate"
        msg = f"{credentials.unusable()} cannot be used: {said}"
        raise InvalidSetting(f"{credentials.place}: {msg}") from error


def _check_address(address: str, place: str) -> None:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        fault = f"the URL of the API server, {address}, is invalid"
        if not address:
            fault = "its cluster has no server"
        raise InvalidSetting(f"{place}: {fault}: write https://HOST:PORT as the server")


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Abort the connection of an answer that was not read to its end.

    A TLS shutdown waits up to half a minute for the peer, and a program that is about to end
    has left the connection by then.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


async def _lines(call: Call, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    # Not the response's own readline, which fails on lines of several megabytes.
    rest: list[bytes] = []
    try:
        async for chunk in response.content.iter_any():
            first, *others = chunk.split(b"\n")
            rest.append(first)
            for line in others:
                yield b"".join(rest)
                rest = [line]
    except aiohttp.SocketTimeoutError as error:
        raise Silent(f"{call}: the API server sends nothing") from error


def _version() -> str:
    try:
        return importlib.metadata.version("kube-retrofit")
    except importlib.metadata.PackageNotFoundError:
        return "source"
