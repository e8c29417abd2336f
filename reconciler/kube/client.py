"""The one way to the API server: raw bytes over the Kubernetes client's own session.

Address, certificates, proxy and tokens come from `kubernetes.aio`, and so do resources and verbs
(`Client.resource`); its connection pool is used directly, because its layers between the two cost
several times the CPU of a call and refuse objects that the server accepts. Bodies are never
logged.
"""

import asyncio
import contextlib
import importlib.metadata
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any
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

OnCall = Callable[[str, str, int, float], None]
"""Called with every request: verb, resource, HTTP status (0: no answer), seconds."""
OnAnswer = Callable[[Call, str], None]
"""Called with every answer to another library: its request, and the failure or nothing."""


class Client:
    """Requests to one API server; every failure is a `ClusterError`.

    Attributes:
        address: Of the API server, for messages.
        configuration: The library's.
        on_call: For metrics; None is nobody.
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
        self._line = line or Line.of(self.configuration)
        self._objects = ObjectClient(self)

    @property
    def date(self) -> tuple[str, float]:
        """Return what the API server said last that the time is, and when, monotonic."""
        return self._line.date

    def allow_writes(self, may_write: Callable[[], bool]) -> None:
        """Have somebody asked before each request that is no GET, in whatever name it goes."""
        self._line.allow_writes(may_write)

    def tell_left_out(self, warn: Callable[[str], None]) -> None:
        """Set what is called with a sentence on objects that cannot be read."""
        self._line.tell_left_out(warn)

    def left_out(self, what: str) -> None:
        """Tell of objects that cannot be read."""
        self._line.left_out(what)

    def speaking_for(self, user: str) -> "Client":
        """Return a client that asks in another user's name, over the same connections.

        Only the first one is closed.

        Args:
            user: Full name of a ServiceAccount, whose groups the API server adds.
        """
        return Client(self._credentials, self._clock, self.on_call, user, self._line)

    def open_session(self, on_answer: OnAnswer) -> aiohttp.ClientSession:
        """Return a session for another library, which closes it.

        Its requests go as ours do: with the credentials of the moment, and after a 401 once more
        with credentials read anew. No token is handed over.
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
        """Return a kind as a resource with verbs, of a kind with subresource that subresource."""
        return self._objects.resource(kind)

    async def close(self) -> None:
        """Close all connections."""
        await self._line.session.close()

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

        A refused or broken connection, 408, 429 and 502 to 504 are repeated a few times with
        jitter, honouring Retry-After. That is safe for what this project sends: reads, guarded
        writes, deletions, and creates under a name that is decided beforehand.

        Args:
            method: In upper case.
            path: Already quoted.
            query: Not yet quoted.
            body: JSON.
            content_type: Of the body.
            accept: Media types of the answer.
            timeout: Seconds for all attempts together.
            repeat: Off for callers that have a rhythm of their own.
            most: Bytes of the answer that the caller takes, 0: any; more of it is not read.

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
            if method != "GET" and not self._line.may_write():
                raise ClusterError(f"{call}: this process does not hold the Lease any more")
            try:
                return await self._attempt(
                    call, method, url, body=body, headers=headers, most=most
                )
            except ClusterError as error:
                seen.append(error)
                raise

        try:
            async with asyncio.timeout(timeout):
                try:
                    return await attempt()
                except ClusterError as error:
                    if not repeat or not is_repeatable(error):
                        raise
                    return await repeated(attempt, error, timeout)
        except TimeoutError as error:
            raise self._too_late(call, timeout, seen) from error

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """Send one request as `request` does and return the decoded answer."""
        return self.decode(method, path, await self.request(method, path, **options))

    def decode(self, method: str, path: str, answer: bytes) -> Any:
        """Return what a request was answered with, decoded.

        Items of a list that are nested too deeply are left out, and reported.

        Raises:
            Invalid: It is one object, which is nested too deeply.
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
        """Open a watch and give its lines.

        Args:
            path: Of the collection.
            query: With ``timeoutSeconds``, so that the server ends it too.
            accept: Media types of the answer.
            idle: Seconds without a byte after which the connection counts as dead.
            total: Seconds after which it does although there were bytes; None: never.
        """
        call = describe("GET", path, watch=True)
        headers = {"Accept": accept, **self._headers}
        limits = aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_TIMEOUT, sock_read=idle)
        try:
            async with self._open(
                call, "GET", self._url(path, query), headers=headers, timeout=limits
            ) as response:
                yield _lines(response)
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(call, self.address, error) from error

    async def wait_until_served(
        self, on_wait: Callable[[str], None], *, limit: float = 0.0
    ) -> None:
        """Return as soon as the API server is ready to answer us.

        Args:
            on_wait: Gets a sentence for people before each pause.
            limit: Seconds after which to give up; 0 means never.

        Raises:
            Unauthorized: It answers, but does not accept the credentials.
            Unavailable: The limit has passed.
        """

        async def answered() -> None:
            # Whoever may not read the address, or finds none there, has been answered.
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

    async def _attempt(self, call: Call, method: str, url: URL, **options: Any) -> bytes:
        body: bytes | None = options["body"]
        try:
            async with self._open(
                call, method, url, headers=options["headers"], data=body
            ) as response:
                most: int = options["most"]
                return await (_read(call, response, most) if most else response.read())
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(call, self.address, error) from error

    @contextlib.asynccontextmanager
    async def _open(
        self, call: Call, method: str, url: URL, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give a successful answer; after a 401 once more with credentials read anew."""
        for again in (True, False):
            sent = await self._credentials.authorization()
            if sent:
                options["headers"]["Authorization"] = sent
            started = self._clock.monotonic()
            status = 0
            try:
                async with self._line.session.request(
                    method, url, **options, **self._line.fixed
                ) as response:
                    status = response.status
                    self._line.note_date(response.headers.get("Date", ""), self._clock.monotonic())
                    if status < 300:  # noqa: PLR2004
                        try:
                            yield response
                        finally:
                            _hang_up(response)
                        return
                    error = failure(call, status, response.headers, await response.read())
            finally:
                if self.on_call is not None:
                    seconds = self._clock.monotonic() - started
                    self.on_call(call.verb, call.resource, status, seconds)
            if not (
                again and isinstance(error, Unauthorized) and await self._credentials.renew(sent)
            ):
                raise error

    def _too_late(self, call: Call, timeout: float, seen: list[ClusterError]) -> ClusterError:
        if seen:
            return seen[-1]
        return Unavailable(
            f"{call}: the API server at {self.address} does not answer within {timeout:g}s"
        )


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
    """Return a client; nothing is sent yet.

    Args:
        kubeconfig: Empty for the ServiceAccount's own, or the usual one.
        context: Of the kubeconfig; empty for its current one.
        user: Impersonated where the credentials may do so; empty for their own.
        clock: Of time-outs.
        on_call: For metrics.

    Raises:
        InvalidSetting: There are no usable credentials.
    """
    clock = clock or SystemClock()
    credentials = await load_credentials(kubeconfig, context, clock)
    address = str(credentials.configuration.host)
    _check_address(address)
    try:
        return Client(credentials, clock, on_call, user)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "they have not the form of one"
        if isinstance(error, ssl.SSLError):
            said = "they are not in PEM, or a key is not that of its certificate"
        msg = f"the certificates for the API server at {address} cannot be used: {said}"
        raise InvalidSetting(msg) from error


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidSetting(
            f"the address of the API server, {address}, is none: write https://HOST:PORT as the"
            " server in the kubeconfig"
        )


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """End the connection of an answer that was not read to its end.

    To part by TLS waits for the other side, half a minute long, and a program that ends has left
    the connection by then.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    # Not the response's own readline: it gives up on lines of some megabytes.
    rest: list[bytes] = []
    async for chunk in response.content.iter_any():
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for line in others:
            yield b"".join(rest)
            rest = [line]


def _version() -> str:
    try:
        return importlib.metadata.version("kube-retrofit")
    except importlib.metadata.PackageNotFoundError:
        return "source"
