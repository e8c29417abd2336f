"""The servers that the API server calls: certificates, sockets and life cycle."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from reconciler.clock import Clock
from reconciler.errors import NotInstalled
from reconciler.kube.client import Client
from reconciler.kube.secrets import NamedSecrets
from reconciler.observe.health import Readiness
from reconciler.observe.hookmetrics import HookProgramMetrics
from reconciler.observe.listening import bind
from reconciler.observe.logs import logger
from reconciler.runner.answering import admission_posts, conversion_posts, unknown
from reconciler.runner.settings import RunnerSettings, WebhookSettings
from reconciler.services.ports.webhooks import Endpoint
from reconciler.serving.bodies import Bodies
from reconciler.serving.callers import Callers
from reconciler.serving.certificatefiles import CertificateFiles
from reconciler.serving.certificates import (
    Certificates,
    SecretNames,
    ServingCertificates,
    server_names,
)
from reconciler.serving.http import HttpServer, Respond, Transport
from reconciler.wiring.answering import AnsweringHooks

_SECRETS: Final = SecretNames(
    ca="retrofit-hooks-ca",
    serving="retrofit-hooks-tls",
    cure="apply manifests/hooks/webhooks in this namespace, or name the files of a certificate",
)
_MIB: Final = 1024 * 1024
_LARGEST: Final = 16 * _MIB
"""Limit of a review in bytes: an object before and after the change."""
_TOGETHER: Final = 64 * _MIB
_BODY_SECONDS: Final = 5.0
_DRAIN: Final = 15.0

_log = logger("hooks.webhooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDeps:
    """The dependencies of both servers.

    Attributes:
        client: Writes the Secrets of the certificate, also in a replica that does not lead.
    """

    settings: RunnerSettings
    client: Client
    clock: Clock
    metrics: HookProgramMetrics
    readiness: Readiness
    namespace: str

    def certificates(self, server: WebhookSettings, callers: Callers) -> ServingCertificates:
        """Return the certificate of a server: from its files, else one made by the program."""
        if server.has_files:
            return CertificateFiles(
                certificate=server.certificate,
                key=server.key,
                ca=server.ca,
                callers=callers,
                flags=server.flags,
            )
        # Both servers share the Secrets, so the certificate is valid for the names of both.
        both = (self.settings.admission, self.settings.conversion)
        names = (server_names(item.service, self.namespace, item.url) for item in both)
        return Certificates(
            NamedSecrets(self.client, self.namespace),
            frozenset[str]().union(*names),
            self.clock,
            callers=callers,
            called=_SECRETS,
        )


@dataclass(slots=True, kw_only=True)
class AnsweringServer:
    """One port at which the API server calls hooks."""

    name: str
    settings: WebhookSettings
    deps: WebhookDeps
    posts: Mapping[str, Respond]
    certificates: ServingCertificates
    callers: Callers
    listener: socket.socket
    _serving: bool = False

    @classmethod
    def of(
        cls, name: str, settings: WebhookSettings, deps: WebhookDeps, posts: Mapping[str, Respond]
    ) -> Self:
        """Return a server that listens already and answers once `run` is called.

        Raises:
            InvalidSetting: The port is in use, or a file cannot be used.
        """
        callers = Callers(files=settings.client_ca, flag=f"{settings.flags}-client-ca")
        made = cls(
            name=name,
            settings=settings,
            deps=deps,
            posts=posts,
            certificates=deps.certificates(settings, callers),
            callers=callers,
            listener=bind(settings.address, settings.port, flag=f"{settings.flags}-listen-port"),
        )
        deps.readiness.add(name, made._unready)
        return made

    def endpoint(self) -> Endpoint:
        """Return the endpoint for the webhook configurations.

        Raises:
            NotInstalled: The server has no certificate yet.
        """
        if not self.certificates.bundle:
            raise NotInstalled(f"{self.name}: {self.certificates.problem or 'no certificate yet'}")
        return Endpoint(
            url=self.settings.url,
            service=self.settings.service,
            ca_bundle=self.certificates.bundle,
        )

    async def run(self) -> None:
        """Serve until cancelled, then let requests in flight finish."""
        try:
            await self.certificates.obtain(self._warn)
            await self._serve()
        finally:
            self.listener.close()

    async def _serve(self) -> None:
        server = HttpServer(self._transport(), self.posts.get, unknown)
        await server.start(self.listener, lambda: self.certificates.context)
        self._serving = True
        _log.info("serving", webhooks=self.name, port=self.listener.getsockname()[1])
        try:
            await self.certificates.run()
        finally:
            self.deps.readiness.stop()
            await server.close()

    def _transport(self) -> Transport:
        return Transport(
            bodies=Bodies(largest=_LARGEST, together=_TOGETHER, timeout=_BODY_SECONDS),
            drain_timeout=_DRAIN,
            clock=self.deps.clock,
            metrics=self.deps.metrics,
            callers=self.callers,
        )

    def _unready(self) -> str | None:
        return self.certificates.problem or (None if self._serving else "not serving yet")

    def _warn(self, text: str) -> None:
        _log.warning("waiting", webhooks=self.name, reason=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers of a program; None for one that no hook needs."""

    admission: AnsweringServer | None
    conversion: AnsweringServer | None

    @classmethod
    def of(cls, deps: WebhookDeps, hooks: AnsweringHooks) -> Self:
        """Return the servers that the hooks need.

        Raises:
            InvalidSetting: A port is in use, or a file cannot be used.
        """
        posts = admission_posts(hooks.admission, hooks.asked)
        conversions = conversion_posts(hooks.conversion, hooks.converters)
        deps.readiness.add("snapshots", lambda: hooks.snapshots.missing or None)

        def server(
            name: str, settings: WebhookSettings, posts: Mapping[str, Respond]
        ) -> AnsweringServer | None:
            return AnsweringServer.of(name, settings, deps, posts) if posts else None

        return cls(
            admission=server("admission", deps.settings.admission, posts),
            conversion=server("conversion", deps.settings.conversion, conversions),
        )

    @property
    def loops(self) -> dict[str, Awaitable[None]]:
        """Return the loops of the servers by name."""
        both = (self.admission, self.conversion)
        return {item.name: item.run() for item in both if item is not None}

    @property
    def endpoints(self) -> tuple[Callable[[], Endpoint], Callable[[], Endpoint]]:
        """Return functions that return the endpoints for admission and conversion."""
        return _endpoint_of(self.admission), _endpoint_of(self.conversion)


def _endpoint_of(server: AnsweringServer | None) -> Callable[[], Endpoint]:
    def nowhere() -> Endpoint:
        raise NotInstalled("no hook uses this server")

    return nowhere if server is None else server.endpoint
