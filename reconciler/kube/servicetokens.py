"""Tokens for calls of services: asked for with a user and a password, and kept in memory only."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from reconciler.clock import Clock
from reconciler.engine.loads import ServiceLoad, TokenSource
from reconciler.errors import Invalid

_REFUSED: Final = 400
_MILLISECONDS: Final = 1000
_MOST: Final = 1000
"""Sources whose tokens are kept; the one that came first goes first."""
_PAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 10_000
"""Characters of a token: no header of a request may be longer."""

Ask = Callable[[ServiceLoad], Awaitable[Any]]
"""Calls a service and gives its decoded answer."""


@dataclass(slots=True)
class _Kept:
    """The token of one source; whoever asks meanwhile waits."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    token: str = field(default="", repr=False)
    until: datetime = _PAST


@dataclass(slots=True)
class ServiceTokens:
    """Gives them, each as long as it is good."""

    clock: Clock
    _kept: dict[TokenSource, _Kept] = field(default_factory=dict, repr=False)

    async def of(self, source: TokenSource, namespace: str, ask: Ask) -> str:
        """Return a token.

        Args:
            source: Where it comes from.
            namespace: The only one whose Services may be asked for it; empty: any.
            ask: Asks.

        Raises:
            Invalid: The answer holds none.
        """
        kept = self._kept.setdefault(source, _Kept())
        while len(self._kept) > _MOST:
            self._kept.pop(next(iter(self._kept)))
        async with kept.asking:
            if not kept.token or self.clock.now() >= kept.until:
                answer = await ask(_question(source, namespace))
                kept.token, kept.until = _token(answer), self._until(source, answer)
            return kept.token

    def drop(self, source: TokenSource, token: str) -> None:
        """Forget a token that a service does not take any more."""
        kept = self._kept.get(source)
        if kept is not None and kept.token == token:
            kept.token = ""

    def _until(self, source: TokenSource, answer: Any) -> datetime:
        told = answer.get("expireAt")
        if type(told) is int and told > 0:
            try:
                return datetime.fromtimestamp(told / _MILLISECONDS, UTC)
            except (ValueError, OverflowError, OSError):
                pass
        now = self.clock.now()
        return datetime.fromtimestamp(now.timestamp() + source.seconds, UTC)


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
        raise Invalid("the service that gives tokens answers without one", status=_REFUSED)
    return token
