"""HTTP in front of the webhooks: limits, errors that say what to do, and an end without loss."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from aiohttp import web

from admission.decide import Answer
from admission.resources import ResourceWebhook
from admission.review import BadReview, allow, deny, parse_review
from reconciler.clock import Clock
from reconciler.engine.program import FAIL, IGNORE
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import AdmissionRequest

Review = Callable[[AdmissionRequest], Awaitable[Answer]]

_log = logger("admission.server")

_FAILURE_POLICIES = {"fail": FAIL, "ignore": IGNORE}
_JSON = "application/json"
_PATHS = "/validate/fail, /validate/ignore, /policies and /exceptions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What the server does with bytes.

    Attributes:
        max_body: Largest body, bytes.
        drain_timeout: Seconds that requests in flight get at the end.
        farewell: Seconds before that, in which an answer tells its caller to connect anew.
    """

    max_body: int
    drain_timeout: float
    clock: Clock
    metrics: Metrics
    farewell: float = 2.0


class WebhookServer:
    """Serves the webhooks over TLS until it is closed."""

    def __init__(
        self,
        transport: Transport,
        resources: ResourceWebhook,
        policies: Review,
        exceptions: Review,
    ) -> None:
        self._transport = transport
        self._resources = resources
        self._policies = policies
        self._exceptions = exceptions
        self._ending = False
        app = web.Application(client_max_size=transport.max_body)
        for name in _FAILURE_POLICIES:
            for at in ("", "/at/{digest}"):
                base = f"{at}/validate/{{failure:{name}}}"
                app.router.add_post(base, self._resource)
                app.router.add_post(f"{base}/{{name}}", self._resource)
                app.router.add_post(f"{base}/{{ns}}/{{name}}", self._resource)
        app.router.add_post("/policies", self._policy)
        app.router.add_post("/exceptions", self._exception)
        app.router.add_route("*", "/{path:.*}", _unknown)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=transport.drain_timeout
        )

    async def start(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Begin to answer on a socket that listens already."""
        await self._runner.setup()
        await web.SockSite(self._runner, listener, ssl_context=context).start()

    async def close(self) -> None:
        """End every connection after its next answer, let requests in flight end, close.

        A connection that were closed between two requests might meet the second one on its way,
        and the API server calls a webhook once.
        """
        self._ending = True
        server = self._runner.server
        if server is not None and server.connections:
            await asyncio.sleep(self._transport.farewell)
        await self._runner.cleanup()

    async def _resource(self, http: web.Request) -> web.Response:
        failure_policy = _FAILURE_POLICIES[http.match_info["failure"]]
        parts = (http.match_info.get(part) for part in ("ns", "name"))
        policy = "/".join(part for part in parts if part)
        digest = http.match_info.get("digest", "")

        async def review(request: AdmissionRequest) -> Answer:
            return await self._resources.review(
                request, failure_policy, policy=policy, digest=digest
            )

        return await self._answer(http, review, path=failure_policy)

    async def _policy(self, http: web.Request) -> web.Response:
        return await self._answer(http, self._policies, path="policies")

    async def _exception(self, http: web.Request) -> web.Response:
        return await self._answer(http, self._exceptions, path="exceptions")

    async def _answer(self, http: web.Request, review: Review, *, path: str) -> web.Response:
        response = await self._respond(http, review, path=path)
        if self._ending:
            response.force_close()
        return response

    async def _respond(self, http: web.Request, review: Review, *, path: str) -> web.Response:
        clock, metrics = self._transport.clock, self._transport.metrics
        started = clock.monotonic()
        if http.content_type != _JSON:
            return _error(415, f"the body is {http.content_type}, expected {_JSON}")
        try:
            request = parse_review(await self._read(http))
        except _TooLarge as error:
            _log.warning("admission request refused", reason=str(error))
            return _error(413, str(error))
        except BadReview as error:
            return _error(400, str(error))
        answer = await _guarded(review, request, path, metrics)
        metrics.admission_reviews.labels(
            path=path, answer="allowed" if answer.allowed else "denied"
        ).inc()
        metrics.admission_duration.labels(path=path).observe(clock.monotonic() - started)
        return web.Response(body=_render(request, answer), content_type=_JSON)

    async def _read(self, http: web.Request) -> bytes:
        limit = self._transport.max_body
        size = http.content_length
        if size is not None and size > limit:
            raise _TooLarge(size, limit)
        try:
            return await http.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise _TooLarge(None, limit) from error


class _TooLarge(Exception):
    def __init__(self, size: int | None, limit: int) -> None:
        shown = "longer" if size is None else f"{size} bytes long"
        super().__init__(
            f"the admission request is {shown}, the limit is {limit} bytes: "
            "raise --max-body (or RETROFIT_MAX_BODY) of retrofit-admission"
        )


async def _guarded(
    review: Review, request: AdmissionRequest, path: str, metrics: Metrics
) -> Answer:
    """Return the answer of a handler; its crash is answered as the failure policy asks."""
    try:
        return await review(request)
    except Exception:  # noqa: BLE001  (the person who sent the request must get an answer)
        _log.exception("admission request failed", uid=request.uid, path=path)
        text = (
            "kube-retrofit failed on this request by a fault of its own; "
            f"the log of retrofit-admission says more under uid {request.uid}"
        )
        if path == IGNORE:
            metrics.requests_lost.labels(reason="crash").inc()
            return Answer(warnings=(text,))
        return Answer(allowed=False, code=500, message=text)


def _render(request: AdmissionRequest, answer: Answer) -> bytes:
    if answer.allowed:
        return allow(request.uid, warnings=answer.warnings)
    return deny(request.uid, answer.message, code=answer.code, warnings=answer.warnings)


async def _unknown(http: web.Request) -> web.Response:
    known = http.path in {"/policies", "/exceptions"} or http.path.startswith("/validate/")
    if http.method != "POST" and known:
        return _error(405, f"{http.method} is not supported, the API server sends POST")
    return _error(404, f"there is no {http.path}; the webhooks are {_PATHS}")


def _error(code: int, message: str) -> web.Response:
    """Return an error in the form that the API server shows to people."""
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "message": f"kube-retrofit: {message}",
    }
    return web.Response(status=code, body=orjson.dumps(status), content_type=_JSON)
