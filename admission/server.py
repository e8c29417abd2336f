"""The webhooks by their addresses, and what is answered when one of them crashes."""

import itertools
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import web

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
from reconciler.serving.http import JSON, HttpServer, Respond, Transport, error_response
from reconciler.serving.review import allow, deny, parse_review

Review = Callable[[AdmissionRequest, Deadline], Awaitable[AdmissionResponse]]
AddressedReview = Callable[[AdmissionRequest, Address, Deadline], Awaitable[AdmissionResponse]]

_log = logger("admission.server")

_FAILURE_POLICIES = {"fail": FAIL, "ignore": IGNORE, FORCED: IGNORE}
_ROUTES = (VALIDATE, CHANGE, CHANGE_ONCE, *CHAINS)
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
    ) -> None:
        """Take what answers.

        Args:
            transport: What is done with bytes.
            verdicts: Refuses or records.
            mutations: Has rules change what is written.
            policies: Checks policies.
            exceptions: Checks exceptions.
            metrics: Counts the answers.
            budget: Seconds from when a review has come to its answer, for all that is waited for.
        """
        self._clock = transport.clock
        self._metrics = metrics
        self._budget = budget
        self._by_route: Mapping[str, AddressedReview] = {
            VALIDATE: verdicts.review,
            **dict.fromkeys((CHANGE, CHANGE_ONCE, *CHAINS), mutations.review),
        }
        self._policies = policies
        self._exceptions = exceptions
        self._http = HttpServer(transport, self._posts(), _unknown)

    async def start(self, listening: socket.socket, context: Context) -> None:
        """Begin to answer on a socket that listens already and does not block."""
        await self._http.start(listening, context)

    async def close(self) -> None:
        """End every connection after its next answer, let requests in flight end, close."""
        await self._http.close()

    def _posts(self) -> dict[str, Respond]:
        # Each pattern is tried until one fits, so there are few.
        routes, failures = "|".join(self._by_route), "|".join(_FAILURE_POLICIES)
        of_rules = f"/{{route:{routes}}}/{{failure:{failures}}}"
        bases, tails = (f"/at/{{digest}}{of_rules}", of_rules), ("", "/{name}", "/{ns}/{name}")
        return {
            **{f"{base}{tail}": self._of_rules for base, tail in itertools.product(bases, tails)},
            "/policies": self._policy,
            "/exceptions": self._exception,
        }

    async def _of_rules(self, http: web.Request, body: bytes) -> web.Response:
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
        return await self._respond(body, review, path=path)

    async def _policy(self, _http: web.Request, body: bytes) -> web.Response:
        return await self._respond(body, self._policies, path="policies")

    async def _exception(self, _http: web.Request, body: bytes) -> web.Response:
        return await self._respond(body, self._exceptions, path="exceptions")

    async def _respond(self, body: bytes, review: Review, *, path: str) -> web.Response:
        clock, metrics = self._clock, self._metrics
        started = clock.monotonic()
        deadline = Deadline(clock, self._budget)
        request = parse_review(body)
        answer = await _guarded(partial(review, request, deadline), request, path, metrics)
        metrics.admission_reviews.labels(path, "allowed" if answer.allowed else "denied").inc()
        metrics.admission_duration.labels(path).observe(clock.monotonic() - started)
        return web.Response(body=_render(request, answer), content_type=JSON)


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
        return error_response(405, f"{http.method} is not supported, the API server sends POST")
    return error_response(404, f"there is no {http.path}; the webhooks are {_PATHS}")
