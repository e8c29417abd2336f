"""References to answers of HTTP services."""

import json
import re
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
    read_text,
    read_texts,
)
from reconciler.engine import reading
from reconciler.engine.context import Context
from reconciler.engine.loads import SecretName, ServiceLoad, TokenSource, answer_to
from reconciler.engine.values.addresses import check_header, check_own_service, join_url
from reconciler.engine.values.scalars import SECOND, parse_duration
from reconciler.errors import EvaluationError, InvalidPolicy

GIVEN: Final = "http"
"""The name of data in place of an answer, which only the desk binds."""

_FIELDS: Final = ("url", "method", "header", "params", "body", "auth")
_AUTH: Final = (
    "staticToken", "username", "password", "authUrl", "expireDuration", "token", "expireAt",
    "secretRef",
)  # fmt: skip
"""The original writes ``token`` and ``expireAt`` itself; they are not read here."""
_CREDENTIALS: Final = ("staticToken", "username", "password")
_SECRET: Final = ("name", "namespace")
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_HOST: Final = re.compile(r"https?://[^/?#{}]+(?:[/?#]|$)")
"""The beginning of a URL whose host has no placeholder."""
_METHODS: Final = ("GET", "POST")
_SECONDS: Final = 300.0
"""The lifetime of a token where neither the policy nor the answer sets it."""
_WRAPPER: Final = "body"
"""The step that the original's own examples put before the path into an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReference:
    """A part of the JSON answer of a service.

    Attributes:
        home: The only namespace whose Services the policy may call; empty: any.
        url: May contain placeholders, as may the values of `params`.
        body: JSON text of a POST.
        token: The source of the call's token; None: it has none, or one among the headers.
        location: Of the reference in the policy.
        path: Into the answer.
    """

    home: str
    location: str
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
        """Return the part, or `ABSENT` if it or the value of a placeholder is missing.

        Raises:
            EvaluationError: The call fails, or a value would redirect it.
            NeedsLoad: The service has not been called yet.
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
        """Yield the right to read the Secret; RBAC does not cover the call of a service."""
        secret = self.token and self.token.secret
        if secret:
            yield ReadNeed(
                location=f"{self.location}.http.auth.secretRef",
                verb="get",
                api_version="v1",
                kind="Secret",
                namespace=secret.namespace,
                name=secret.name,
            )


def read_service_reference(raw: Any, path: Path, location: str, home: str) -> ServiceReference:
    """Read ``http``, the call of a service.

    Raises:
        InvalidPolicy: The reference is invalid, or leaves the namespace of the policy.
    """
    place = f"{location}.http"
    fields = reading.mapping(raw, place, allowed=_FIELDS)
    method, body = read_text(fields, "method", place) or "GET", fields.get("body")
    if method not in _METHODS:
        raise InvalidPolicy(f"{place}.method", f"expected one of {', '.join(_METHODS)}")
    headers, token = _read_auth(fields.get("auth"), f"{place}.auth", home)
    url = _read_url(fields.get("url"), f"{place}.url", home)
    if token is not None and token.secret is not None and not _HOST.match(url):
        # Otherwise the author of an object could choose the host that gets the credentials.
        raise InvalidPolicy(f"{place}.url", "with auth.secretRef the host takes no placeholder")
    return ServiceReference(
        home=home,
        location=location,
        url=url,
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
        raise InvalidPolicy(
            location, "expected the URL of a service, such as http://NAME.NS.svc/x"
        )
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
        raise InvalidPolicy(location, "expected a URL that begins with http:// or https://")
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
    """Return the header that carries a token, or the source of a token."""
    if raw is None:
        return (), None
    fields = reading.mapping(raw, location, allowed=_AUTH)
    names = (*_CREDENTIALS, "authUrl")
    texts = {name: text for name in names if (text := read_text(fields, name, location))}
    seconds = _read_seconds(fields, location)
    secret = _read_secret(fields.get("secretRef"), f"{location}.secretRef", home)
    if secret is not None:
        for name in _CREDENTIALS:
            if name in texts:
                raise InvalidPolicy(
                    f"{location}.{name}", "secretRef provides it as well; remove one of them"
                )
    elif "staticToken" in texts:
        return (("Authorization", f"Bearer {texts['staticToken']}"),), None
    else:
        for name in ("authUrl", "username", "password"):
            if name not in texts:
                reason = "expected a secretRef, a staticToken, or authUrl, username and password"
                raise InvalidPolicy(f"{location}.{name}", reason)
    place, url = f"{location}.authUrl", texts.get("authUrl", "")
    source = TokenSource(
        url=_read_constant_url(url, place, home) if url else "",
        username=texts.get("username", ""),
        password=texts.get("password", ""),
        seconds=seconds,
        secret=secret,
    )
    return (), source


def _read_secret(raw: Any, location: str, home: str) -> SecretName | None:
    """Read the name of the Secret with the credentials; a namespaced policy uses its own only."""
    if raw is None:
        return None
    fields = reading.mapping(raw, location, allowed=_SECRET)
    texts = {"namespace": home, **read_texts(fields, location)}
    if home and texts["namespace"] != home:
        reason = f"a policy in namespace {home} can read only that namespace"
        raise InvalidPolicy(f"{location}.namespace", reason)
    for name in _SECRET:
        if not _NAME.fullmatch(texts.get(name, "")):
            raise InvalidPolicy(f"{location}.{name}", f"expected the {name} of a Secret")
    return SecretName(namespace=texts["namespace"], name=texts["name"])


def _read_seconds(fields: Mapping[str, Any], location: str) -> float:
    text = read_text(fields, "expireDuration", location)
    if not text:
        return _SECONDS
    found = parse_duration(text)
    if found is None or found < 0:
        raise InvalidPolicy(f"{location}.expireDuration", "expected a duration, as 5m or 1h30m")
    return found / SECOND or _SECONDS
