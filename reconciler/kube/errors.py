"""Converts answers of the API server to the errors of `reconciler.errors`.

The Status of a failure may carry values of the object: a refused patch quotes the whole patched
object, Secrets too. `readable` removes them before the text is shown or logged.
"""

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from reconciler.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Denied,
    Forbidden,
    Gone,
    Invalid,
    NamespaceTerminating,
    NoKindMatch,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from reconciler.kube.paths import Call

_LONGEST = 1024
_LONGEST_PAUSE = 60.0
_LONGEST_VALUE = 80
_QUOTED_VALUE = re.compile(r"(?:Invalid|Unsupported|Duplicate) value: ")
# Webhooks say "denied the request", ValidatingAdmissionPolicies "denied request".
_DENIED = re.compile(r"^admission webhook \S+ denied|\bdenied (?:the )?request\b")
_WEBHOOK = re.compile(r'admission webhook "([a-z0-9.-]+)" denied')
_KEY = re.compile(r"\[[^\]]*[^\d\]][^\]]*\]")
# The authorizer's wording; every other 403 comes from an admission plugin (quota, pod security).
_NOT_ALLOWED = re.compile(r"\bcannot [\w*-]+ (?:resource|path) ")
_NOT_IN_THAT_NAME = re.compile(
    r'cannot impersonate resource "serviceaccounts" .* in the namespace "(?P<namespace>[^"]+)"'
)
_TERMINATING = "NamespaceTerminating"
# Errors of aiohttp that are more specific than the OS error inside.
_TELLING = (
    aiohttp.ClientConnectorDNSError,
    aiohttp.ClientProxyConnectionError,
    aiohttp.ClientSSLError,
)
_NO_TLS = "it does not speak TLS there: is the port right, and is it https?"
_REASONS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((aiohttp.ClientConnectorDNSError,), "its name is not known"),
    ((aiohttp.ClientProxyConnectionError,), "the proxy on the way to it does not answer"),
    ((aiohttp.ClientSSLError, ssl.SSLError), _NO_TLS),
    ((ConnectionRefusedError,), "connection refused"),
    ((TimeoutError,), "no answer in time"),
    ((aiohttp.ServerDisconnectedError, ConnectionResetError), "it closed the connection"),
    ((aiohttp.ClientResponseError, aiohttp.ClientPayloadError), "its answer is not HTTP"),
)
_SIMPLE: Mapping[int, type[ClusterError]] = {410: Gone, 408: Unavailable, 429: Throttled}


def failure(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> ClusterError:
    """Return the error for an answer with status 300 or above."""
    answer = _status_of(body)
    error = _failure(call, status, headers, answer)
    return error.bare(f"{call.verb}: {error.kind_of_failure} ({status}){_where(answer)}")


def _where(answer: Mapping[str, Any]) -> str:
    """Return the fields or the webhook that refused; map keys are masked, they may be values."""
    causes = (answer.get("details") or {}).get("causes") or ()
    fields = (_KEY.sub("[...]", str(item.get("field") or "")) for item in causes)
    found = ", ".join(dict.fromkeys(field for field in fields if field))
    webhook = _WEBHOOK.match(str(answer.get("message") or ""))
    return (f" at {found}" if found else "") + (f" by webhook {webhook[1]}" if webhook else "")


def _failure(
    call: Call, status: int, headers: Mapping[str, str], answer: Mapping[str, Any]
) -> ClusterError:
    details, message = answer.get("details") or {}, str(answer.get("message") or "")
    text = readable(message, secret=call.resource.startswith("secrets"))
    said = f"{call}: {text}" if text else f"{call}: the API server answered {status}"
    if _DENIED.search(message):
        return Denied(said, status=status)
    if status == 401:  # noqa: PLR2004
        said = (
            f"{call}: the API server does not accept the credentials; "
            "the token is expired or wrong: renew it"
        )
        return Unauthorized(said, status=status)
    if status == 403:  # noqa: PLR2004
        return _forbidden(call, said, message, answer)
    if status == 404:  # noqa: PLR2004
        if details.get("name"):
            return NotFound(said, status=status)
        return NoKindMatch(f"{call}: the cluster does not serve {call.resource}", status=status)
    if status == 409:  # noqa: PLR2004
        known = answer.get("reason") == "AlreadyExists"
        return (AlreadyExists if known else Conflict)(said, status=status)
    error = _SIMPLE.get(status)
    if error is None:
        error = Invalid if 400 <= status < 500 else Unavailable  # noqa: PLR2004
    return error(said, status=status, retry_after=_retry_after(headers, details))


def _status_of(body: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else {}


def _forbidden(call: Call, said: str, message: str, answer: Mapping[str, Any]) -> ClusterError:
    if found := _NOT_IN_THAT_NAME.search(message):
        right = f"impersonate serviceaccounts in namespace {found['namespace']}"
        return Forbidden(f"{said}; grant: {right}", permission=right)
    reading = call.verb in {"get", "list", "watch"}
    if answer and not reading and not _NOT_ALLOWED.search(message):
        causes = (answer.get("details") or {}).get("causes") or ()
        ending = any(item.get("reason") == _TERMINATING for item in causes)
        return (NamespaceTerminating if ending else Denied)(said, status=403)
    return Forbidden(f"{said}; grant: {call.permission}", permission=call.permission)


def _retry_after(headers: Mapping[str, str], details: Mapping[str, Any]) -> float | None:
    value = str(headers.get("Retry-After") or details.get("retryAfterSeconds") or "")
    # No API server sends a date, or asks for minutes; what stands before it may.
    return min(float(value), _LONGEST_PAUSE) if value.isdecimal() else None


def readable(message: str, *, secret: bool) -> str:
    """Return a message without quoted objects; for Secrets, without any quoted value."""
    parts, start = [], 0
    for found in _QUOTED_VALUE.finditer(message):
        if found.start() < start:
            continue
        end = _value_end(message, found.end())
        value = message[found.end() : end]
        if secret or len(value) > _LONGEST_VALUE or value.startswith(("{", '"{', "map[")):
            parts += [message[start : found.end()], "(left out)"]
            start = end
    text = "".join((*parts, message[start:])).strip()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _value_end(message: str, start: int) -> int:
    """Return the end of a quoted value, or the end of the text if it cannot be parsed."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(message, start)[1]
    except ValueError:
        return len(message)


def unreachable(call: Call, address: str, cause: Exception) -> Unavailable:
    """Return the error for a request without an answer."""
    return Unavailable(f"{call}: the API server at {address} does not answer ({why(cause)})")


def why(cause: Exception) -> str:
    """Return why a server did not answer, in wording independent of the library."""
    if isinstance(cause, aiohttp.ClientConnectorCertificateError):
        cause = cause.certificate_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, aiohttp.ClientConnectorError) and not isinstance(cause, _TELLING):
        cause = cause.os_error
    for kinds, text in _REASONS:
        if isinstance(cause, kinds):
            return text
    said = (isinstance(cause, OSError) and cause.strerror) or "the connection failed"
    return said[:1].lower() + said[1:]
