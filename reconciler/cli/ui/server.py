"""The HTTP server of the page: its data as JSON, and its static files.

The server only reads, with the rights of the user who started it. Every client that reaches its
port sees what this user may see. To prevent DNS rebinding, it therefore accepts only requests
whose host is an IP address or one of the configured names.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reconciler.api.updaterequest import State
from reconciler.cli.ui.views import line_of, page_of
from reconciler.cli.work.board import Board, rates
from reconciler.cli.work.look import look_at
from reconciler.cli.work.picture import data_of_board
from reconciler.cli.work.place import Workplace, plain_words, request_name
from reconciler.errors import (
    ClusterError,
    Gone,
    InvalidSetting,
    NotFound,
    RetrofitError,
    Throttled,
    Unavailable,
)
from reconciler.kube.serviceaddresses import is_ip_address

PAGE: Final = 100
"""Requests per page of the list."""
_FRESH: Final = 1.0
"""Seconds for which a snapshot is reused; policies' figures are not written more often."""
_FILES: Final = {
    "app.js": "text/javascript",
    "app.css": "text/css",
    "vendor/lit-html.js": "text/javascript",
    "vendor/pico.css": "text/css",
}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATES: Final = {state.value: state for state in State}
_REFUSED: Final = 403


def application(place: Workplace, names: Iterable[str] = ()) -> web.Application:
    """Return the web application for a cluster.

    Args:
        place: The cluster, with the credentials of the user who started the server.
        names: Accepted host names, besides ``localhost`` and IP addresses.
    """
    app = web.Application(middlewares=[_guard(frozenset({"localhost", *names})), _plainly])
    pages = _Pages(place)
    app.router.add_get("/", pages.index)
    app.router.add_get("/healthz", pages.alive)
    app.router.add_get("/static/{name:.+}", pages.static)
    app.router.add_get("/api/board", pages.board)
    app.router.add_get("/api/requests", pages.requests)
    app.router.add_get("/api/requests/{name}", pages.request)
    return app


@dataclass(slots=True)
class _Glance:
    """The last snapshot of all policies, and their rates since the snapshot before it.

    Many open browsers cause one read of the cluster.
    """

    place: Workplace
    _board: Board | None = None
    _rates: dict[str, float] | None = None
    _taken: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def now(self) -> tuple[Board, dict[str, float] | None]:
        """Return a snapshot at most a second old, and the rates, which the first one lacks."""
        async with self._lock:
            clock = self.place.live.clock
            if self._board is None or clock.monotonic() - self._taken >= _FRESH:
                found = await look_at(self.place)
                self._rates = rates(self._board, found)
                self._board, self._taken = found, clock.monotonic()
            return self._board, self._rates


class _Pages:
    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._glance = _Glance(place)
        folder = files("reconciler.cli.ui") / "static"
        self._index = (folder / "index.html").read_bytes()
        self._static = {name: folder.joinpath(name).read_bytes() for name in _FILES}

    async def index(self, _: web.Request) -> web.Response:
        return web.Response(body=self._index, content_type="text/html", charset="utf-8")

    async def alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def static(self, http: web.Request) -> web.Response:
        name = http.match_info["name"]
        if name not in self._static:
            raise web.HTTPNotFound
        kind = _FILES[name]
        return web.Response(body=self._static[name], content_type=kind, charset="utf-8")

    async def board(self, _: web.Request) -> web.Response:
        return _json(data_of_board(*await self._glance.now()))

    async def requests(self, http: web.Request) -> web.Response:
        query, state = http.query, http.query.get("state", "")
        if state and state not in _STATES:
            raise InvalidSetting(f"{state} is not a state: {', '.join(_STATES)}")
        with plain_words():
            found, token = await self._place.requests.page(
                policy=query.get("policy", ""),
                state=_STATES.get(state),
                limit=PAGE,
                token=query.get("continue", ""),
            )
        return _json({"requests": [line_of(item) for item in found], "continue": token})

    async def request(self, http: web.Request) -> web.Response:
        name = request_name(http.match_info["name"])
        if not name:
            raise NotFound(f"{http.match_info['name']} is not the name of a request")
        with plain_words():
            return _json(page_of(await self._place.requests.get(name)))


def _guard(names: frozenset[str]) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.url.host or ""
        if host in names or is_ip_address(host):
            response = await handler(request)
        else:
            text = f"{host} is not a name of this page; start `retrofit ui` with --hostname"
            response = _json({"error": text}, status=_REFUSED)
        response.headers.update(HEADERS)
        return response

    return guard


@web.middleware
async def _plainly(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn an error into a JSON response with a one-line message."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _json({"error": error.reason.lower()}, status=error.status)
    except RetrofitError as error:
        return _json({"error": str(error)}, status=_status(error))


def _status(error: RetrofitError) -> int:
    match error:
        case NotFound():
            return 404
        case Gone():
            return 410
        case Unavailable() | Throttled():
            return 503
        case InvalidSetting():
            return 400
        case ClusterError():
            return 502
        case _:
            return 500


def _json(data: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")
