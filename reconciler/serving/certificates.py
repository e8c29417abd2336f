"""The CA and the serving certificate: shared by replicas through two Secrets, renewed in place.

The Secrets are created empty, by the manifests, and by the controller if they were deleted. The
first replica fills what is empty or due; the others read it. A new CA joins the bundle beside the
old one, and serving certificates follow at their own renewal, so that clients that trust only the
old bundle keep trusting the server until the new bundle has spread.
"""

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

from reconciler.clock import Clock
from reconciler.errors import ClusterError, Conflict, InvalidSetting, NotFound
from reconciler.kube.authority import BUNDLE, CA_SECRET, TLS_SECRET
from reconciler.kube.retrying import until_done
from reconciler.kube.secrets import StoredSecret
from reconciler.observe.logs import logger
from reconciler.serving.callers import Callers
from reconciler.serving.pki import (
    Pair,
    ca_is_due,
    make_ca,
    make_serving,
    read_pair,
    serving_is_due,
)

_CERTIFICATE, _KEY = "tls.crt", "tls.key"
_ATTEMPTS = 5
_CHECK_SECONDS = 60.0
_RETRY_SECONDS = 2.0
"""Short, because without the CA no policy is in force."""

_log = logger("serving.certificates")


class _Secrets(Protocol):
    """Named Secrets of the program's namespace, as in `reconciler.kube.secrets`."""

    async def get(self, name: str) -> StoredSecret | None: ...
    async def fill(self, secret: StoredSecret) -> StoredSecret: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretNames:
    """The names of the two Secrets.

    Attributes:
        cure: Remedy for a missing Secret, for messages.
    """

    ca: str
    serving: str
    cure: str


ADMISSION: Final = SecretNames(
    ca=CA_SECRET,
    serving=TLS_SECRET,
    cure="retrofit-controller recreates it if it is running; otherwise apply the manifests",
)


class ServingCertificates(Protocol):
    """The certificate that a server presents, and its CA bundle."""

    @property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection."""

    @property
    def bundle(self) -> bytes:
        """Return the CA bundle for clients in PEM; empty as long as there is none."""

    @property
    def problem(self) -> str:
        """Return why the server cannot serve; empty if it can."""

    async def obtain(self, warn: Callable[[str], None]) -> None:
        """Return as soon as a certificate is loaded."""

    async def run(self) -> None:
        """Keep the certificate up to date until cancelled."""


def server_names(service: str, namespace: str, webhook_url: str) -> frozenset[str]:
    """Return the names that the serving certificate must be valid for.

    Raises:
        InvalidSetting: The webhook URL is not an https address.
    """
    place = f"{service}.{namespace}"
    names = {service, place, f"{place}.svc", f"{place}.svc.cluster.local"}
    if webhook_url:
        parts = urlsplit(webhook_url)
        if parts.scheme != "https" or not parts.hostname:
            raise InvalidSetting(f"--webhook-url {webhook_url!r}: write it as https://host:port")
        names.add(parts.hostname)
    return frozenset(names)


class Certificates:
    """Keeps a TLS context with a valid certificate and with the requirements on callers.

    Attributes:
        context: TLS context of the server. A new certificate changes it in place, and open
            connections continue; a new CA for callers replaces it.
        bundle: CA certificates for clients; empty before the first `refresh`.
        problem: Why the server cannot serve; empty if it can.
        on_change: Called with each loaded certificate.
    """

    def __init__(
        self,
        secrets: _Secrets,
        names: frozenset[str],
        clock: Clock,
        on_change: Callable[[Pair], None] = lambda _: None,
        callers: Callers | None = None,
        *,
        called: SecretNames = ADMISSION,
    ) -> None:
        self._called = called
        self._callers = callers or Callers()
        self.context = server_context(self._callers)
        self._trusted = self._callers.bundle
        self.bundle = b""
        self.problem = "no certificate is loaded yet"
        self.on_change = on_change
        self._secrets = secrets
        self._names = names
        self._clock = clock
        self._loaded: Pair | None = None
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Refresh soon, because the Secrets were written or deleted."""
        self._changed.set()

    async def refresh(self) -> None:
        """Read the Secrets, fill those that are empty or due, and load what changed.

        Raises:
            ClusterError: The Secrets cannot be read or written.
            InvalidSetting: The CA for callers cannot be read.
        """
        ca = await self._keep(self._called.ca, self._fresh_ca)
        serving = await self._keep(self._called.serving, partial(self._fresh_serving, ca))
        self.bundle = ca.bundle
        self._callers.reload()
        if self._callers.bundle != self._trusted:
            context = server_context(self._callers)
            load_pair(context, serving)
            self.context, self._loaded, self._trusted = context, None, self._callers.bundle
            _log.info(
                "callers need a client certificate",
                files=[str(item) for item in self._callers.files],
            )
        if serving != self._loaded:
            load_pair(self.context, serving)
            self._loaded = serving
            self.on_change(serving)
        self.problem = ""

    async def obtain(self, warn: Callable[[str], None]) -> None:
        """Return as soon as a certificate is loaded."""

        async def once() -> None:
            try:
                await self.refresh()
            except ClusterError as error:
                self.problem = str(error)
                raise

        await until_done(once, lambda text: warn(f"no certificate: {text}"))

    async def run(self) -> None:
        """Refresh until cancelled; after a failure, log, retry and keep the old certificate."""
        pause, reported = _CHECK_SECONDS, ""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.refresh()
                pause, reported = _CHECK_SECONDS, ""
            except (ClusterError, InvalidSetting) as error:
                if str(error) != reported:
                    _log.warning("cannot refresh the certificate", reason=str(error))
                pause, reported = _RETRY_SECONDS, str(error)
                # Only an expired certificate prevents the server from serving.
                expired = self._loaded is None or self._loaded.until <= self._clock.now()
                self.problem = str(error) if expired else ""

    async def _keep(self, name: str, fresh: Callable[[Pair | None], Pair]) -> Pair:
        """Return the pair of a Secret; ``fresh`` returns another one if it has to be replaced."""
        for _ in range(_ATTEMPTS):
            stored = await self._secrets.get(name)
            if stored is None:
                raise NotFound(f"Secret {name} does not exist: {self._called.cure}")
            old = _parse(stored)
            new = fresh(old)
            if new is old:
                return new
            with contextlib.suppress(Conflict):
                await self._secrets.fill(replace(stored, data=_render(new)))
                _log.info("certificate stored", secret=name, until=new.until.isoformat())
                return new
        raise Conflict(f"Secret {name} keeps changing; find out which client writes it")

    def _fresh_ca(self, old: Pair | None) -> Pair:
        now = self._clock.now()
        if old is None:
            return make_ca(now)
        return make_ca(now, older=old.bundle) if ca_is_due(old, now) else old

    def _fresh_serving(self, ca: Pair, old: Pair | None) -> Pair:
        now = self._clock.now()
        if old is None:
            return make_serving(ca, self._names, now)
        if not serving_is_due(old, ca, self._names, now):
            return old
        # Replicas with different settings share one certificate, so it keeps all names.
        return make_serving(ca, self._names | old.names, now)


def _parse(secret: StoredSecret) -> Pair | None:
    """Return the pair of a Secret, or None if it holds no usable one."""
    data = secret.data
    if not data:
        return None
    parts = (data.get(name, b"") for name in (_CERTIFICATE, _KEY, BUNDLE))
    pair = read_pair(*parts)
    if pair is None:
        _log.warning("no certificate with its key in the Secret, making one", secret=secret.name)
    return pair


def _render(pair: Pair) -> dict[str, bytes]:
    return {_CERTIFICATE: pair.certificate, _KEY: pair.key, BUNDLE: pair.bundle}


def server_context(callers: Callers) -> ssl.SSLContext:
    """Return a context without a certificate that requests one from callers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    callers.demand(context)
    return context


def load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Load a certificate into a context."""
    # The ssl module reads only files; this one is private and deleted immediately.
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.key + pair.certificate)
        file.flush()
        context.load_cert_chain(file.name)
