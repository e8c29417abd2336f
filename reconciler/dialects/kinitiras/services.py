"""References to what an HTTP service answers."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from reconciler.api.rights import Need, ReadNeed
from reconciler.dialects.kinitiras.texts import (
    ABSENT,
    Path,
    filled,
    filled_pieces,
    has_placeholder,
    pieces_of,
    read_texts,
)
from reconciler.engine import reading
from reconciler.engine.context import Context
from reconciler.engine.loads import ServiceLoad, TokenSource, answer_to
from reconciler.engine.values.addresses import check_header, check_own_service, join_url
from reconciler.engine.values.scalars import SECOND, parse_duration
from reconciler.errors import EvaluationError, InvalidPolicy

GIVEN: Final = "http"
"""The name of data that stands in for an answer; only the desk binds it."""

_FIELDS: Final = ("url", "method", "header", "params", "body", "auth")
_AUTH: Final = (
    "staticToken", "username", "password", "authUrl", "expireDuration", "token", "expireAt",
)  # fmt: skip
"""The original writes the last two itself; they are not read here."""
_METHODS: Final = ("GET", "POST")
_SECONDS: Final = 300.0
"""How long a token is good where nobody says so."""
_WRAPPER: Final = "body"
"""What the original's own examples write in front of the way into an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReference:
    """A part of what a service answers in JSON.

    Attributes:
        home: The namespace whose Services the policy calls; empty: any that may be called.
        url: May have placeholders, as the values of `params`.
        body: JSON text of a POST.
        token: Where the token comes from that is sent; None: none, or one among the headers.
        path: Into the answer.
    """

    home: str
    url: str = field(repr=False)
    method: str
    params: tuple[tuple[str, str], ...] = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: str = field(repr=False)
    token: TokenSource | None
    path: Path

    loads = True
    reads = frozenset({("request", "object"), (GIVEN,)})

    def of(self, context: Context) -> Any:
        """Return it, `ABSENT` where the answer or what a placeholder names is not there.

        Raises:
            EvaluationError: The service cannot be asked, or a value would lead elsewhere.
            NeedsLoad: It has not been asked yet.
        """
        if GIVEN in context.data:
            return self._part(context.data[GIVEN])
        load = self._load(context.data["request"].get("object") or {})
        if load is None:
            return ABSENT
        return self._part(answer_to(load, context.loads, "http: there is no answer"))

    def _part(self, answer: Any) -> Any:
        found = self.path.look_up(answer)
        if found is ABSENT and self.path.steps[0] == _WRAPPER:
            return Path(self.path.steps[1:]).look_up(answer)
        return found

    def _load(self, obj: Mapping[str, Any]) -> ServiceLoad | None:
        pieces = filled_pieces(self.url, obj)
        params = [(name, filled(text, obj)) for name, text in self.params]
        if pieces is None or any(value is None for _, value in params):
            return None
        try:
            url = join_url(pieces)
            check_own_service(url, self.home)
        except EvaluationError as error:
            raise EvaluationError(f"http.url: {error}").bare(f"http.url: {error}") from error
        if params:
            url += ("&" if "?" in url else "?") + urlencode(params)
        return ServiceLoad(
            method=self.method,
            url=url,
            body=self.body,
            headers=self.headers,
            namespace=self.home,
            token=self.token,
        )

    def needs(self) -> Iterator[Need | ReadNeed]:
        """Yield nothing: a service is no part of the cluster's rights."""
        return iter(())


def read_service_reference(raw: Any, path: Path, location: str, home: str) -> ServiceReference:
    """Read ``http``: which service is asked, and how.

    Raises:
        InvalidPolicy: It is wrong, or leads out of the namespace of a policy.
    """
    place = f"{location}.http"
    fields = reading.mapping(raw, place, allowed=_FIELDS)
    method, body = fields.get("method") or "GET", fields.get("body")
    if method not in _METHODS:
        raise InvalidPolicy(f"{place}.method", f"expected one of {', '.join(_METHODS)}")
    headers, token = _read_auth(fields.get("auth"), f"{place}.auth", home)
    return ServiceReference(
        home=home,
        url=_read_url(fields.get("url"), f"{place}.url", home),
        method=method,
        params=tuple(read_texts(fields.get("params"), f"{place}.params").items()),
        headers=(*_read_headers(fields.get("header"), f"{place}.header"), *headers),
        body="" if body is None else json.dumps(body, sort_keys=True),
        token=token,
        path=path,
    )


def _read_headers(raw: Any, location: str) -> Iterator[tuple[str, str]]:
    for name, value in read_texts(raw, location).items():
        _attempt(check_header, name, location=f"{location}.{name}")
        yield name, value


def _read_url(raw: Any, location: str, home: str) -> str:
    if not isinstance(raw, str) or not raw:
        raise InvalidPolicy(location, "expected the address of a service, as http://NAME.NS.svc/x")
    if not has_placeholder(raw):
        return _read_constant_url(raw, location, home)
    samples = [
        (piece if not is_path else "x" if at else "http://x", is_path)
        for at, (piece, is_path) in enumerate(pieces_of(raw))
    ]
    _attempt(join_url, samples, location=location)
    return raw


def _read_constant_url(raw: str, location: str, home: str) -> str:
    if has_placeholder(raw):
        raise InvalidPolicy(location, "it takes no placeholder")
    if urlsplit(raw).scheme not in {"http", "https"}:
        raise InvalidPolicy(location, "expected an address that begins with http:// or https://")
    _attempt(check_own_service, raw, home, location=location)
    return raw


def _attempt(check: Callable[..., Any], *given: Any, location: str) -> None:
    try:
        check(*given)
    except EvaluationError as error:
        raise InvalidPolicy(location, str(error)) from error


def _read_auth(
    raw: Any, location: str, home: str
) -> tuple[tuple[tuple[str, str], ...], TokenSource | None]:
    """Return the header that carries a token, or where one is asked for."""
    if raw is None:
        return (), None
    fields = reading.mapping(raw, location, allowed=_AUTH)
    names = ("staticToken", "username", "password", "authUrl")
    texts = read_texts({name: fields[name] for name in names if fields.get(name)}, location)
    if "staticToken" in texts:
        return (("Authorization", f"Bearer {texts['staticToken']}"),), None
    for name in ("authUrl", "username", "password"):
        if name not in texts:
            reason = "expected a staticToken, or authUrl, username and password"
            raise InvalidPolicy(f"{location}.{name}", reason)
    source = TokenSource(
        url=_read_constant_url(texts["authUrl"], f"{location}.authUrl", home),
        username=texts["username"],
        password=texts["password"],
        seconds=_read_seconds(fields.get("expireDuration"), f"{location}.expireDuration"),
    )
    return (), source


def _read_seconds(raw: Any, location: str) -> float:
    if not raw:
        return _SECONDS
    found = parse_duration(raw) if isinstance(raw, str) else None
    if found is None or found < 0:
        raise InvalidPolicy(location, "expected a duration, as 5m or 1h30m")
    return found / SECOND or _SECONDS
