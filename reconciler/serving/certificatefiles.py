"""A serving certificate in files, which another program issues and renews."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reconciler.errors import InvalidSetting, Unavailable
from reconciler.observe.logs import logger
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.serving.callers import Callers
from reconciler.serving.certificates import server_context

_EVERY: Final = 60.0
_SOON: Final = 2.0

_log = logger("serving.certificates")


@dataclass(slots=True, kw_only=True)
class CertificateFiles:
    """Loads a certificate, its key and its CA, and reloads them when they change.

    Attributes:
        flags: Prefix of the flags that name the files, for messages.
        context: TLS context of the server; a new one after any change.
        bundle: CA in PEM; empty before the first `refresh`.
        problem: Why the server cannot serve; empty if it can.
    """

    certificate: Path
    key: Path
    ca: Path
    callers: Callers
    flags: str
    context: ssl.SSLContext = field(init=False)
    bundle: bytes = b""
    problem: str = "no certificate is loaded yet"
    _loaded: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self.context = server_context(self.callers)

    def refresh(self) -> None:
        """Load what has changed; on failure, the previous certificate stays in use.

        Raises:
            InvalidSetting: A file cannot be used; the message names it.
        """
        self.callers.reload()
        bundle, trusted = self._read(self.ca), self.callers.bundle.encode()
        found = (self._read(self.certificate), self._read(self.key), bundle, trusted)
        if found == self._loaded:
            return
        context = server_context(self.callers)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(
                f"{self.flags}-server-cert {self.certificate} and {self.flags}-server-key"
                f" {self.key} are not a certificate and its key in PEM: {error}"
            ) from error
        self.context, self.bundle, self._loaded = context, bundle, found
        self.problem = ""
        _log.info("certificate loaded", file=str(self.certificate))

    async def obtain(self, warn: Callable[[str], None]) -> None:
        """Load the certificate, whose files have to exist already."""
        del warn
        self.refresh()

    async def run(self) -> None:
        """Check for changes until cancelled."""
        await repeat(
            self._refresh,
            every=_EVERY,
            pauses=(_SOON, _EVERY),
            tell=WarnsOnce(warn=_log.warning).tell,
            failing="cannot reload the certificate: ",
        )

    async def _refresh(self) -> None:
        try:
            self.refresh()
        except InvalidSetting as error:
            # A renewal may be only partly written; the next check finds the rest.
            raise Unavailable(str(error)) from error

    def _read(self, file: Path) -> bytes:
        try:
            return file.read_bytes()
        except OSError as error:
            raise InvalidSetting(f"{self.flags}-* {file}: {error.strerror}") from error
