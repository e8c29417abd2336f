"""The `Loader` port: ConfigMaps, other objects of the API server, HTTP services.

Services are asked without any token of ours, only where the settings allow their host, without
following redirects, and never for more than a bounded answer.
"""

import asyncio
import ssl
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from reconciler.api.meta import Kind
from reconciler.engine.entries import ApiLoad, ConfigMapLoad, GlobalLoad, Load, ServiceLoad
from reconciler.errors import Invalid, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.paths import object_path

_CONFIG_MAPS = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
_TIMEOUT = 30.0
_MOST_BYTES = 2_000_000
_REFUSED = 400
_BROKEN = 500


class KubeLoader:
    """Reads what context entries ask for.

    Attributes:
        hosts: Patterns of the service hosts that may be asked.
    """

    def __init__(self, client: Client, hosts: Iterable[str]) -> None:
        self.hosts = tuple(hosts)
        self._client = client

    async def load(self, load: Load) -> Any:
        """Return what an entry asks for, decoded."""
        match load:
            case ConfigMapLoad():
                path = object_path(_CONFIG_MAPS, load.namespace, load.name)
                found = await self._client.json("GET", path)
                return {"data": found.get("data") or {}, "metadata": found["metadata"]}
            case ApiLoad():
                return await self._ask(load)
            case ServiceLoad():
                return await self._ask_service(load)
            case GlobalLoad():
                msg = f"GlobalContextEntry {load.name}: this version keeps none"
                raise Invalid(msg, status=_REFUSED)

    async def _ask(self, load: ApiLoad) -> Any:
        if not load.path.startswith("/"):
            msg = f"urlPath {load.path}: it begins with /"
            raise Invalid(msg, status=_REFUSED)
        body = load.body.encode() if load.method == "POST" else None
        path, _, query = load.path.partition("?")
        pairs = dict(pair.partition("=")[::2] for pair in query.split("&")) if query else None
        answer = await self._client.request(
            load.method, path, query=pairs, body=body, timeout=_TIMEOUT
        )
        return _decode(answer, load.path)

    async def _ask_service(self, load: ServiceLoad) -> Any:
        url = urlsplit(load.url)
        host = url.hostname or ""
        if url.scheme not in ("http", "https") or not host:
            msg = f"service url {load.url}: it is no http or https address"
            raise Invalid(msg, status=_REFUSED)
        if not any(fnmatchcase(host, pattern) for pattern in self.hosts):
            msg = f"service {host} may not be called: allow it with --service-hosts"
            raise Invalid(msg, status=_REFUSED)
        try:
            status, answer = await asyncio.wait_for(_fetch(load), _TIMEOUT)
        except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError) as error:
            msg = f"service {host} does not answer: {type(error).__name__}"
            raise Unavailable(msg) from error
        if status >= _BROKEN:
            msg = f"service {host}: HTTP {status}"
            raise Unavailable(msg, status=status)
        if not 200 <= status < 300:  # noqa: PLR2004 - the successes of HTTP
            msg = f"service {host}: HTTP {status}"
            raise Invalid(msg, status=status)
        return _decode(answer, load.url)


async def _fetch(load: ServiceLoad) -> tuple[int, bytes]:
    context: ssl.SSLContext | bool = True
    if load.ca_bundle:
        context = ssl.create_default_context(cadata=load.ca_bundle)
    headers = dict(load.headers)
    body = load.body.encode() if load.method == "POST" else None
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            load.method,
            load.url,
            data=body,
            headers=headers,
            ssl=context,
            allow_redirects=False,
        ) as response,
    ):
        answer = await response.content.read(_MOST_BYTES + 1)
        return response.status, answer


def _decode(answer: bytes, source: str) -> Any:
    if len(answer) > _MOST_BYTES:
        msg = f"{source}: the answer is longer than {_MOST_BYTES} bytes"
        raise Invalid(msg, status=_REFUSED)
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        msg = f"{source}: the answer is not JSON"
        raise Invalid(msg, status=_REFUSED) from error
