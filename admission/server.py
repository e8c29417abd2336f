"""The webhooks by path, and the responses when a handler crashes."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from admission.decide import AdmissionResponse
from admission.lookup import Address
from admission.mutate import MutateWebhook
from admission.verdicts import VerdictWebhook
from reconciler.clock import Deadline
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
from reconciler.serving.connections import Context
from reconciler.serving.http import HttpServer, Respond, Transport
from reconciler.serving.messages import Request, Response, error_response
from reconciler.serving.review import allow, deny, parse_review

Review = Callable[[AdmissionRequest, Deadline], Awaitable[AdmissionResponse]]
AddressedReview = Callable[[AdmissionRequest, Address, Deadline], Awaitable[AdmissionResponse]]

_log = logger("admission.server")

_FAILURE_POLICIES = {"fail": FAIL, "ignore": IGNORE, FORCED: IGNORE}
_ROUTES = (VALIDATE, CHANGE, CHANGE_ONCE, *CHAINS)
_AT = "at"
"""First part of a path with the digest of the policies in force at its registration."""
_SHORTEST, _LONGEST = 2, 4
"""Limits of the parts of a path: route, failure policy, and a policy with its namespace."""
_CHANGE_IGNORE = f"{CHANGE}-ignore"
_PATHS = (
    f"/validate/fail, /validate/ignore, the same below /{', /'.join(_ROUTES[1:])}, /policies and"
    " /exceptions"
)


class WebhookServer:
    """Serves the webhooks over TLS until it is closed."""

    def __init__(
        self,
        transport: Transport,
        verdicts: VerdictWebhook,
        mutations: MutateWebhook,
        policies: Review,
        exceptions: Review,
        *,
        metrics: Metrics,
        budget: float,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Initialize with the handlers.

        Args:
            budget: Seconds from the arrival of a review to its answer, for all waiting.
            lost: Called when a crash admitted a request without its rules.
        """
        self._clock = transport.clock
        self._metrics = metrics
        self._budget = budget
        self._lost = lost
        self._by_route: Mapping[str, AddressedReview] = {
            VALIDATE: verdicts.review,
            **dict.fromkeys((CHANGE, CHANGE_ONCE, *CHAINS), mutations.review),
        }
        self._by_path: Mapping[str, Respond] = {
            "/policies": partial(self._respond, policies, "policies"),
            "/exceptions": partial(self._respond, exceptions, "exceptions"),
        }
        self._http = HttpServer(transport, self._route, _unknown)

    async def start(self, listening: socket.socket, context: Context) -> None:
        """Start to answer on a non-blocking socket that listens already."""
        await self._http.start(listening, context)

    async def close(self) -> None:
        """End every connection after its next answer, wait for requests in flight, close."""
        await self._http.close()

    def _route(self, path: str) -> Respond | None:
        if (found := self._by_path.get(path)) is not None:
            return found
        digest, parts = "", path.removeprefix("/").split("/")
        if parts[0] == _AT:
            digest, parts = parts[1] if len(parts) > 1 else "", parts[2:]
            if not digest:
                return None
        if not _SHORTEST <= len(parts) <= _LONGEST or not all(parts):
            return None
        route, failure, *policy = parts
        responder, failure_policy = self._by_route.get(route), _FAILURE_POLICIES.get(failure)
        if responder is None or failure_policy is None:
            return None
        address = Address(
            failure_policy=failure_policy,
            policy="/".join(policy),
            digest=digest,
            once=route == CHANGE_ONCE,
            chained=CHAINS.get(route, ""),
            forced=failure == FORCED,
        )

        async def review(request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
            return await responder(request, address, deadline)

        called = failure_policy if route == VALIDATE else f"{CHANGE}-{failure_policy.lower()}"
        return partial(self._respond, review, called)

    async def _respond(self, review: Review, path: str, body: bytes) -> bytes:
        clock, metrics = self._clock, self._metrics
        started = clock.monotonic()
        deadline = Deadline(clock, self._budget)
        request = parse_review(body)
        response = await self._guarded(partial(review, request, deadline), request, path)
        metrics.admission_reviews.of(path, "allowed" if response.allowed else "denied").inc()
        metrics.admission_duration.of(path).observe(clock.monotonic() - started)
        return _render(request, response)

    async def _guarded(
        self,
        review: Callable[[], Awaitable[AdmissionResponse]],
        request: AdmissionRequest,
        path: str,
    ) -> AdmissionResponse:
        """Return the response of a handler; after a crash, respond by the failure policy."""
        try:
            return await review()
        except Exception:  # noqa: BLE001  (the user who sent the request must get an answer)
            _log.exception("admission request failed", uid=request.uid, path=path)
            text = (
                "kube-retrofit failed on this request because of a bug; "
                f"the log of retrofit-admission has the details under uid {request.uid}"
            )
            if path == IGNORE:
                self._metrics.requests_lost.labels(reason="crash").inc()
            elif path == _CHANGE_IGNORE:
                self._metrics.mutations_lost.labels(policy="", reason="crash").inc()
            else:
                return AdmissionResponse(allowed=False, code=500, message=text)
            self._lost()
            return AdmissionResponse(warnings=(text,))


def _render(request: AdmissionRequest, response: AdmissionResponse) -> bytes:
    if response.allowed:
        return allow(request.uid, warnings=response.warnings, patch=response.patch)
    return deny(request.uid, response.message, code=response.code, warnings=response.warnings)


def _unknown(request: Request) -> Response:
    path = request.path
    known = (
        path in {"/policies", "/exceptions"} or path.removeprefix("/").partition("/")[0] in _ROUTES
    )
    if request.method != "POST" and known:
        return error_response(405, f"{request.method} is not supported, the API server sends POST")
    return error_response(404, f"unknown path {path}; the webhooks are {_PATHS}")
