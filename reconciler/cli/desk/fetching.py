"""Fetches files by URL: with limits and, except from this machine, never through plain HTTP."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

import aiohttp
from yarl import URL

from reconciler.errors import InvalidSetting

_PATIENCE: Final = 30.0
"""The total timeout in seconds; a person waits for it."""
_REDIRECTS: Final = 5
_TYPES: Final = "application/yaml, application/json, text/plain, */*"


def fetch(address: str, most: int) -> bytes:
    """Return the content at a URL.

    Args:
        address: ``https://...``, or ``http://...`` of this machine only.
        most: The maximum number of bytes.

    Raises:
        InvalidSetting: The content cannot be read, is too large, or is a web page.
    """
    # Some commands call this inside a running event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _fetch(address, most)).result()


async def _fetch(address: str, most: int) -> bytes:
    timeout = aiohttp.ClientTimeout(total=_PATIENCE)
    try:
        # Many networks reach the internet only through the proxy of the environment.
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            return await _read(session, address, most)
    except TimeoutError as error:
        raise InvalidSetting(f"{address}: no answer within {_PATIENCE:g}s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise InvalidSetting(f"{address}: cannot be read: {_why(error)}") from error


async def _read(session: aiohttp.ClientSession, address: str, most: int) -> bytes:
    url = URL(address)
    for _ in range(_REDIRECTS):
        _check(url, address)
        async with session.get(url, allow_redirects=False, headers={"Accept": _TYPES}) as response:
            if response.status in {301, 302, 303, 307, 308}:
                # Redirects are followed here, because each URL must pass the check of the first.
                url = url.join(URL(response.headers.get("Location", "")))
                continue
            if response.status != 200:  # noqa: PLR2004
                raise InvalidSetting(f"{address}: the server answered {response.status}")
            content = bytearray()
            async for part in response.content.iter_any():
                content += part
                if len(content) > most:
                    limit = f"{most // 1024**2} MiB"
                    raise InvalidSetting(f"{address}: it is larger than {limit}")
            if content.lstrip()[:1] == b"<":
                msg = f"{address}: this is a web page; give the URL of the file itself"
                raise InvalidSetting(msg)
            return bytes(content)
    raise InvalidSetting(f"{address}: too many redirects")


def _check(url: URL, address: str) -> None:
    if url.scheme == "https" or (url.scheme == "http" and _local(url.host or "")):
        return
    step = "" if str(url) == address else f" (redirected to {url})"
    msg = f"{address}{step}: only https is supported; http content can be changed in transit"
    raise InvalidSetting(msg)


def _local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _why(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "the certificate of the server is not trusted"
        case aiohttp.ClientConnectorDNSError():
            return "the name of the server cannot be resolved"
        case aiohttp.ClientConnectorSSLError():
            return "the server does not speak TLS"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return "connection refused"
        case aiohttp.InvalidURL() | ValueError():
            return "the URL is invalid"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "the server closed the connection"
        case _:
            return "the server is not reachable"
