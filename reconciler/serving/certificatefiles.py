"""A serving certificate that somebody else makes and renews, in files."""

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
    """Loads a certificate, its key and its CA, and again when they change.

    Attributes:
        flags: How the flags begin that name the files.
        context: For the server; another one where anything has changed.
        bundle: The CA in PEM; empty before the first `refresh`.
        problem: Why nobody can be served; empty where all can.
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
        """Begin without a certificate."""
        self.context = server_context(self.callers)

    def refresh(self) -> None:
        """Load what has changed; what was loaded before serves on where that fails.

        Raises:
            InvalidSetting: A file cannot be used; the text names it.
        """
        changed = self.callers.reload()
        bundle = self._read(self.ca)
        found = (self._read(self.certificate), self._read(self.key), bundle)
        if found == self._loaded and not changed:
            return
        context = server_context(self.callers)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(
                f"{self.flags}-server-cert {self.certificate} and {self.flags}-server-key"
                f" {self.key} are no certificate with its key, in PEM: {error}"
            ) from error
        self.context, self.bundle, self._loaded = context, bundle, found
        self.problem = ""
        _log.info("certificate loaded", file=str(self.certificate))

    async def obtain(self, warn: Callable[[str], None]) -> None:
        """Load it; who names files has them there."""
        del warn
        self.refresh()

    async def run(self) -> None:
        """Look for changes until cancelled."""
        await repeat(
            self._refresh,
            every=_EVERY,
            pauses=(_SOON, _EVERY),
            tell=WarnsOnce(warn=_log.warning).tell,
            failing="cannot load the certificate anew: ",
        )

    async def _refresh(self) -> None:
        try:
            self.refresh()
        except InvalidSetting as error:
            # A renewal may be half done; the next look finds the rest.
            raise Unavailable(str(error)) from error

    def _read(self, file: Path) -> bytes:
        try:
            return file.read_bytes()
        except OSError as error:
            raise InvalidSetting(f"{self.flags}-* {file}: {error.strerror}") from error
