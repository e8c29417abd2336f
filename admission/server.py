"""HTTP in front of the webhooks: limits, errors that say what to do, and an end without loss."""

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from admission.bodies import Bodies, Refused
from admission.callers import Callers
from admission.connections import (
    BODY_BUFFER,
    IDLE_TIMEOUT,
    ConnectionLimits,
    Context,
    Listener,
)
from admission.decide import AdmissionResponse
from admission.lookup import Address
from admission.mutate import MutateWebhook
from admission.review import BadReview, allow, deny, parse_review
from admission.verdicts import VerdictWebhook
from reconciler.clock import Clock, Deadline
from reconciler.engine.program import FAIL, IGNORE
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.rollout.webhook_config import (
    CHAINS,
    CHANGE,
    CHANGE_ONCE,
    FORCED,
    VALIDATE,
)

Review = Callable[[AdmissionRequest, Deadline], Awaitable[AdmissionResponse]]
AddressedReview = Callable[[AdmissionRequest, Address, Deadline], Awaitable[AdmissionResponse]]

_log = logger("admission.server")


def _is_ours(record: logging.LogRecord) -> bool:
    """Tell whether a fault is one of this server, and not of a caller who is told, or has left."""
    told = (HttpProcessingError, ConnectionError)
    return not (record.exc_info and isinstance(record.exc_info[1], told))


_http_log = logging.getLogger("admission.http")
_http_log.addFilter(_is_ours)

_FAILURE_POLICIES = {"fail": FAIL, "ignore": IGNORE, FORCED: IGNORE}
_JSON = "application/json"
_ROUTES = (VALIDATE, CHANGE, CHANGE_ONCE, *CHAINS)
_CHANGE_IGNORE = f"{CHANGE}-ignore"
_PATHS = (
    f"/validate/fail, /validate/ignore, the same below /{', /'.join(_ROUTES[1:])}, /policies and"
    " /exceptions"
)
_LONGEST_FAREWELL = 10.0
"""Seconds after which the end does not wait for callers that go on."""
_LINGERING = 2.0
"""Seconds in which a body that nobody wants may still come, so that its sender reads why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What the server does with bytes.

    Attributes:
        budget: Seconds from when a review has come to its answer, for all that is waited for.
        drain_timeout: Seconds that requests in flight get at the end.
        farewell: Seconds without any request before that. Until then an answer tells its caller to
            connect anew.
    """

    bodies: Bodies
    budget: float
    drain_timeout: float
    clock: Clock
    metrics: Metrics
    callers: Callers = field(default_factory=Callers)
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    farewell: float = 2.0


class WebhookServer:
    """Serves the webhooks over TLS until it is closed."""

    def __init__(
        self,
        transport: Transport,
        verdicts: VerdictWebhook,
        mutations: MutateWebhook,
        policies: Review,
        exceptions: Review,
    ) -> None:
        self._transport = transport
        self._by_route: Mapping[str, AddressedReview] = {
            VALIDATE: verdicts.review,
            **dict.fromkeys((CHANGE, CHANGE_ONCE, *CHAINS), mutations.review),
        }
        self._policies = policies
        self._exceptions = exceptions
        self._ending = False
        self._asked = 0.0
        self._listener: Listener | None = None
        app = web.Application(middlewares=[self._guard])
        # Each pattern is tried until one fits, so there are few.
        routes, failures = "|".join(self._by_route), "|".join(_FAILURE_POLICIES)
        of_rules = f"/{{route:{routes}}}/{{failure:{failures}}}"
        for base, tail in itertools.product(
            (f"/at/{{digest}}{of_rules}", of_rules), ("", "/{name}", "/{ns}/{name}")
        ):
            app.router.add_post(f"{base}{tail}", self._of_rules)
        app.router.add_post("/policies", self._policy)
        app.router.add_post("/exceptions", self._exception)
        app.router.add_route("*", "/{path:.*}", _unknown)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=transport.drain_timeout,
            keepalive_timeout=IDLE_TIMEOUT,
            lingering_time=_LINGERING,
            auto_decompress=False,
            # It stops reading when it has twice as much.
            read_bufsize=BODY_BUFFER // 2,
            logger=_http_log,
        )

    async def start(self, listening: socket.socket, context: Context) -> None:
        """Begin to answer on a socket that listens already and does not block."""
        await self._runner.setup()
        if self._runner.server is None:
            raise RuntimeError("the server is set up")
        self._listener = Listener(
            server=self._runner.server,
            context=context,
            limits=self._transport.limits,
            metrics=self._transport.metrics,
        )
        self._listener.start(listening)

    async def close(self) -> None:
        """End every connection after its next answer, let requests in flight end, close.

        A connection that were closed between two requests might meet the second one on its way,
        and the API server calls a webhook once.
        """
        self._ending = True
        server = self._runner.server
        if server is not None and server.connections:
            await self._take_leave()
        if self._listener is not None:
            await self._listener.stop_accepting()
        await self._runner.cleanup()

    async def _take_leave(self) -> None:
        """Wait until the callers have left the connections that they use."""
        clock = self._transport.clock
        self._asked = begun = clock.monotonic()
        while (now := clock.monotonic()) < begun + _LONGEST_FAREWELL:
            left = self._asked + self._transport.farewell - now
            if left <= 0:
                return
            await asyncio.sleep(left)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer callers that may call, and keep the time of their connections."""
        listener = self._started
        connection = listener.of(request)
        self._asked = self._transport.clock.monotonic()
        with connection.answering():
            certificate = _certificate(request)
            if refusal := self._transport.callers.refusal(certificate):
                code, text = refusal
                self._transport.metrics.callers_refused.labels(code=str(code)).inc()
                response: web.StreamResponse = _error(code, text)
                response.force_close()
                return response
            if certificate is not None:
                connection.trust()
            response = await handler(request)
            if self._ending or not connection.whole or not listener.is_current(request):
                response.force_close()
            return response

    @property
    def _started(self) -> Listener:
        if self._listener is None:
            raise RuntimeError("the server is not started")
        return self._listener

    async def _of_rules(self, http: web.Request) -> web.Response:
        found = http.match_info
        parts = (found.get(part) for part in ("ns", "name"))
        route, failure_policy = found["route"], _FAILURE_POLICIES[found["failure"]]
        address = Address(
            failure_policy=failure_policy,
            policy="/".join(part for part in parts if part),
            digest=found.get("digest", ""),
            once=route == CHANGE_ONCE,
            chained=CHAINS.get(route, ""),
            forced=found["failure"] == FORCED,
        )
        answer = self._by_route[route]

        async def review(request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
            return await answer(request, address, deadline)

        recording = route == VALIDATE
        path = failure_policy if recording else f"{CHANGE}-{failure_policy.lower()}"
        return await self._answer(http, review, path=path)

    async def _policy(self, http: web.Request) -> web.Response:
        return await self._answer(http, self._policies, path="policies")

    async def _exception(self, http: web.Request) -> web.Response:
        return await self._answer(http, self._exceptions, path="exceptions")

    async def _answer(self, http: web.Request, review: Review, *, path: str) -> web.Response:
        if http.content_type != _JSON:
            return _error(415, f"the body is {http.content_type}, expected {_JSON}")
        connection = self._started.of(http)
        try:
            async with self._transport.bodies.read(http, connection) as body:
                connection.read()
                return await self._respond(body, review, path=path)
        except Refused as error:
            _log.warning("admission request refused", reason=str(error))
            response = _error(error.code, str(error))
            response.force_close()
            return response
        except BadReview as error:
            return _error(400, str(error))

    async def _respond(self, body: bytes, review: Review, *, path: str) -> web.Response:
        clock, metrics = self._transport.clock, self._transport.metrics
        started = clock.monotonic()
        deadline = Deadline(clock, self._transport.budget)
        request = parse_review(body)
        answer = await _guarded(partial(review, request, deadline), request, path, metrics)
        metrics.admission_reviews.labels(
            path=path, answer="allowed" if answer.allowed else "denied"
        ).inc()
        metrics.admission_duration.labels(path=path).observe(clock.monotonic() - started)
        return web.Response(body=_render(request, answer), content_type=_JSON)


def _certificate(http: web.Request) -> Mapping[str, Any] | None:
    """Return the caller's certificate, which was verified, None without one."""
    found: Mapping[str, Any] | None = http.get_extra_info("peercert")
    return found


async def _guarded(
    review: Callable[[], Awaitable[AdmissionResponse]],
    request: AdmissionRequest,
    path: str,
    metrics: Metrics,
) -> AdmissionResponse:
    """Return the answer of a handler; its crash is answered as the failure policy asks."""
    try:
        return await review()
    except Exception:  # noqa: BLE001  (the person who sent the request must get an answer)
        _log.exception("admission request failed", uid=request.uid, path=path)
        text = (
            "kube-retrofit failed on this request because of a bug; "
            f"the log of retrofit-admission says more under uid {request.uid}"
        )
        if path == IGNORE:
            metrics.requests_lost.labels(reason="crash").inc()
            return AdmissionResponse(warnings=(text,))
        if path == _CHANGE_IGNORE:
            metrics.mutations_lost.labels(policy="", reason="crash").inc()
            return AdmissionResponse(warnings=(text,))
        return AdmissionResponse(allowed=False, code=500, message=text)


def _render(request: AdmissionRequest, answer: AdmissionResponse) -> bytes:
    if answer.allowed:
        return allow(request.uid, warnings=answer.warnings, patch=answer.patch)
    return deny(request.uid, answer.message, code=answer.code, warnings=answer.warnings)


async def _unknown(http: web.Request) -> web.Response:
    known = http.path in {"/policies", "/exceptions"} or http.path.split("/")[1] in _ROUTES
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
