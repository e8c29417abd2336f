"""Tokens for service calls, from a token service or a Secret; kept in memory only."""

import asyncio
import binascii
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.clock import Clock
from reconciler.engine.loads import SecretName, ServiceLoad, TokenSource
from reconciler.errors import Invalid

_MILLISECONDS: Final = 1000
_MOST: Final = 1000
"""Limit of sources with a kept token; the oldest is evicted first."""
_PAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 10_000
"""Limit of a token in characters, because HTTP limits the length of headers."""

Ask = Callable[[ServiceLoad], Awaitable[Any]]
"""Calls a service and returns its decoded answer."""
Read = Callable[[SecretName], Awaitable[Object]]
"""Reads a Secret."""


@dataclass(slots=True)
class _Kept:
    """The token of one source; concurrent callers wait for the lock."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    token: str = field(default="", repr=False)
    until: datetime = _PAST


@dataclass(slots=True)
class ServiceTokens:
    """Returns tokens and keeps each until it expires."""

    clock: Clock
    _kept: dict[TokenSource, _Kept] = field(default_factory=dict, repr=False)

    async def of(self, source: TokenSource, namespace: str, ask: Ask, read: Read) -> str:
        """Return a token.

        Args:
            namespace: The only namespace whose Services may issue it; empty for any.
            read: Reads the Secret of a source that names one.

        Raises:
            Invalid: The answer or the Secret holds no token.
            NotFound: The Secret does not exist.
        """
        kept = self._kept.setdefault(source, _Kept())
        while len(self._kept) > _MOST:
            self._kept.pop(next(iter(self._kept)))
        async with kept.asking:
            if not kept.token or self.clock.now() >= kept.until:
                answer = await _answer(source, namespace, ask, read)
                kept.token, kept.until = _token(answer), self._until(source, answer)
            return kept.token

    def drop(self, source: TokenSource, token: str) -> None:
        """Forget a token that a service rejected."""
        kept = self._kept.get(source)
        if kept is not None and kept.token == token:
            kept.token = ""

    def _until(self, source: TokenSource, answer: Any) -> datetime:
        expiry = answer.get("expireAt")
        if type(expiry) is int and expiry > 0:
            try:
                return datetime.fromtimestamp(expiry / _MILLISECONDS, UTC)
            except (ValueError, OverflowError, OSError):
                pass
        now = self.clock.now()
        return datetime.fromtimestamp(now.timestamp() + source.seconds, UTC)


async def _answer(source: TokenSource, namespace: str, ask: Ask, read: Read) -> Any:
    """Return a mapping with the token: the answer of a service, or the content of the Secret."""
    if source.secret is None:
        return await ask(_question(source, namespace))
    secret = await read(source.secret)
    if not source.url:
        # A file edited by hand ends with a newline.
        return {"token": _text(secret, "token", source.secret).strip()}
    username = _text(secret, "username", source.secret)
    password = _text(secret, "password", source.secret)
    return await ask(_question(replace(source, username=username, password=password), namespace))


def _text(secret: Object, key: str, name: SecretName) -> str:
    coded = (secret.get("data") or {}).get(key)
    try:
        text = b64decode(coded or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    if not text.strip():
        msg = f"Secret {name.namespace}/{name.name} has no usable string under the key {key}"
        raise Invalid(msg)
    return text


def _question(source: TokenSource, namespace: str) -> ServiceLoad:
    pair = b64encode(f"{source.username}:{source.password}".encode()).decode()
    return ServiceLoad(
        method="POST",
        url=source.url,
        headers=(("Authorization", f"Basic {pair}"),),
        namespace=namespace,
    )


def _token(answer: Any) -> str:
    token = answer.get("token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not 0 < len(token) <= _LONGEST:
        raise Invalid("the token service returned no usable token")
    return token
