"""The `Loader` port: ConfigMaps, other objects of the API server, HTTP services.

Services are called without any token of the programs, only if the settings allow their host,
without following redirects, and with a bounded answer. A token in a Secret that a policy names is
read as the account of that policy.
"""

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import aiohttp
import orjson

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import CONFIG_MAPS, Object
from reconciler.clock import SystemClock
from reconciler.engine.loads import (
    ApiLoad,
    ConfigMapLoad,
    CueLoad,
    GlobalLoad,
    Load,
    ObjectLoad,
    SecretName,
    ServiceLoad,
    TokenSource,
)
from reconciler.errors import Invalid, NotFound, ResponseTooLarge, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.delegation import PerAccount
from reconciler.kube.errors import why
from reconciler.kube.serviceaddresses import ServiceResolver, fits, is_ip_address
from reconciler.kube.servicetokens import ServiceTokens
from reconciler.services.catalog.protection import Protection
from reconciler.services.ports.objects import Kinds, kind_of

_TIMEOUT = 30.0
_MOST_BYTES = 2_000_000
_UNAUTHORIZED = 401
_LIMITS = (1, 500)
_ENDLESS = frozenset({"watch", "follow"})
_BROKEN = 500


class KubeLoader:
    """Loads the data of context entries; ``hosts`` are patterns of those that may be called."""

    def __init__(
        self,
        client: Client,
        hosts: Iterable[str],
        *,
        kinds: Kinds,
        timeout: float = _TIMEOUT,
        protection: Protection | None = None,
    ) -> None:
        self.hosts = tuple(hosts)
        self._client = client
        self._timeout = timeout
        self._protection = protection or Protection()
        self._kinds = kinds
        self._tokens = ServiceTokens(SystemClock())
        self._others = PerAccount(
            lambda user: KubeLoader(
                client.speaking_for(user),
                self.hosts,
                timeout=timeout,
                protection=protection,
                kinds=kinds,
            )
        )

    def acting_as(self, account: ServiceAccount | None) -> "KubeLoader":
        """Return a loader that acts as an account; for None, this one."""
        return self if account is None else self._others.of(account)

    async def load(self, load: Load) -> Any:
        """Return the decoded data that an entry requests."""
        match load:
            case ConfigMapLoad():
                maps = self._client.resource(CONFIG_MAPS)
                found = await maps.get(load.name, load.namespace)
                return {"data": found.get("data") or {}, "metadata": found["metadata"]}
            case ObjectLoad():
                return await self._read(load)
            case ApiLoad():
                return await self._ask(load)
            case ServiceLoad():
                return await self._ask_service(load)
            case CueLoad():
                raise Invalid("nothing evaluates CUE here")
            case GlobalLoad():
                msg = f"GlobalContextEntry {load.name}: only programs in the cluster keep its data"
                raise Invalid(msg)

    async def _read(self, load: ObjectLoad) -> Any:
        kind = kind_of(load, await self._kinds.find(load.api_version, load.kind))
        resource, namespace = self._client.resource(kind), load.namespace
        if not load.labels:
            path = resource.path(load.name, namespace)
            return await self._ask(ApiLoad(method="GET", path=path))
        path = f"{resource.path(namespace=namespace)}?labelSelector={quote(load.labels, safe='')}"
        # Usually the first one matches; the programs' own objects are filtered out.
        for limit in _LIMITS:
            answer = await self._ask(ApiLoad(method="GET", path=f"{path}&limit={limit}"))
            if items := answer.get("items"):
                return {**kind.head, **items[0]}
            if not (answer.get("metadata") or {}).get("continue"):
                break
        return None

    async def _ask(self, load: ApiLoad) -> Any:
        if not load.path.startswith("/"):
            raise Invalid(f"urlPath {load.path}: it must begin with /")
        if reason := self._protection.of_call(load.method, load.path):
            raise Invalid(f"urlPath: {reason}")
        body = load.body.encode() if load.method == "POST" else None
        path, _, query = load.path.partition("?")
        pairs = dict(parse_qsl(query, keep_blank_values=True))
        if endless := _ENDLESS.intersection(pairs):
            msg = f"urlPath {path}: with {min(endless)} the answer never ends; leave it out"
            raise Invalid(msg)
        try:
            answer = await self._client.request(
                load.method, path, query=pairs, body=body, timeout=self._timeout, most=_MOST_BYTES
            )
        except ResponseTooLarge as error:
            msg = f"{path}: the answer is longer than {_MOST_BYTES} bytes; ask for less of it"
            raise Invalid(msg) from error
        return self._protection.without_own(load.path, _decode(answer, load.path))

    async def _ask_service(self, load: ServiceLoad) -> Any:
        source, namespace = load.token, load.namespace
        if source is None:
            return await self._call(load)
        token = await self._token(source, namespace)
        try:
            return await self._call(_carrying(token, load))
        except Invalid as error:
            if error.status != _UNAUTHORIZED:
                raise
            # The token may have expired earlier than announced.
            self._tokens.drop(source, token)
            return await self._call(_carrying(await self._token(source, namespace), load))

    async def _token(self, source: TokenSource, namespace: str) -> str:
        try:
            return await self._tokens.of(source, namespace, self._call, self._secret)
        except (Invalid, NotFound, Unavailable) as error:
            raise type(error)(f"cannot obtain a token: {error}", status=error.status) from error

    async def _secret(self, named: SecretName) -> Object:
        load = ObjectLoad(
            api_version="v1", kind="Secret", namespace=named.namespace, name=named.name
        )
        found: Object = await self._read(load)
        return found

    async def _call(self, load: ServiceLoad) -> Any:
        host = _host(load.url)
        if not host:
            raise Invalid("service url: it is not an http or https URL")
        if not fits(host, self.hosts):
            raise Invalid(f"service {host} may not be called: allow it with --service-hosts")
        trust = _trust(load.ca_bundle, host)
        try:
            resolver = ServiceResolver(self.hosts, load.namespace)
            if is_ip_address(host):
                # An IP address is not resolved, so the resolver would never check it.
                resolver.check_address(host, host)
            async with asyncio.timeout(self._timeout):
                status, answer = await _fetch(load, trust, resolver)
        except aiohttp.InvalidURL as error:
            raise Invalid(f"service {host}: its URL is invalid") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unavailable(f"service {host} does not answer: {why(error)}") from error
        except ValueError as error:
            raise Invalid(f"service {host}: a header cannot be sent") from error
        if status >= _BROKEN:
            raise Unavailable(f"service {host}: HTTP {status}", status=status)
        if not 200 <= status < 300:  # noqa: PLR2004 - the successes of HTTP
            raise Invalid(f"service {host}: HTTP {status}", status=status)
        return _decode(answer, f"service {host}")


def _carrying(token: str, load: ServiceLoad) -> ServiceLoad:
    return replace(load, headers=(*load.headers, ("Authorization", f"Bearer {token}")))


def _host(url: str) -> str:
    """Return the host of an http or https URL, empty for anything else."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.hostname or "" if parts.scheme in {"http", "https"} else ""


def _trust(ca_bundle: str, host: str) -> ssl.SSLContext | None:
    if not ca_bundle:
        return None
    try:
        context = ssl.create_default_context(cadata=ca_bundle)
    except (ssl.SSLError, TypeError, ValueError) as error:
        raise Invalid(f"service {host}: caBundle holds no certificates in PEM") from error
    # As for the API server (`load_credentials`).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def _fetch(
    load: ServiceLoad, trust: ssl.SSLContext | None, resolver: ServiceResolver
) -> tuple[int, bytes]:
    headers = dict(load.headers)
    body = load.body.encode() if load.method == "POST" else None
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False)
        ) as session,
        session.request(
            load.method,
            load.url,
            data=body,
            headers=headers,
            ssl=True if trust is None else trust,
            allow_redirects=False,
        ) as response,
    ):
        return response.status, await _read(response.content)


async def _read(content: aiohttp.StreamReader) -> bytes:
    """Return a whole answer, or one byte more than is allowed."""
    parts: list[bytes] = []
    left = _MOST_BYTES + 1
    while left > 0 and (part := await content.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _decode(answer: bytes, source: str) -> Any:
    if len(answer) > _MOST_BYTES:
        raise Invalid(f"{source}: the answer is longer than {_MOST_BYTES} bytes")
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"{source}: the answer is not JSON") from error
