"""Listening sockets, bound before anything is served so that a busy port fails early."""

import errno
import socket
from typing import Any

from reconciler.errors import InvalidSetting

_BACKLOG = 1024
_EVERY, _EVERY_IPV4 = "::", "0.0.0.0"  # noqa: S104
_PORTS = 65535


def bind(address: str, port: int, *, flag: str) -> socket.socket:
    """Return a listening socket.

    Args:
        address: Name or number of the local address; ``::`` for all, of IPv6 and of IPv4, which
            on a machine without IPv6 are those of IPv4.
        port: Port number; 0 for any free one.
        flag: Flag that sets the port, for the message.

    Raises:
        InvalidSetting: The port is in use or not allowed, or the address is not local.
    """
    if not 0 <= port <= _PORTS:
        raise InvalidSetting(f"{port} is not a port: set {flag} to a number from 1 to {_PORTS}")
    try:
        listener, place = _opened(address, port)
    except OSError as error:
        reason = error.strerror or str(error)
        msg = f"cannot listen on {address}:{port}: {reason}; check the address, and {flag}"
        raise InvalidSetting(msg) from error
    try:
        # Connections in TIME_WAIT must not keep a restarted program from binding.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidSetting(_refused(error, address, port, flag)) from error
    listener.settimeout(0)
    return listener


def _opened(address: str, port: int) -> tuple[socket.socket, Any]:
    """Return a socket, and the place to bind it to."""
    family, kind, protocol, _, place = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    try:
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        if address == _EVERY and error.errno == errno.EAFNOSUPPORT:
            return _opened(_EVERY_IPV4, port)
        raise
    if address == _EVERY:
        # Otherwise the machine's settings decide whether IPv4 is included.
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return listener, place


def bind_optional(address: str, port: int, *, flag: str) -> socket.socket | None:
    """Return a listening socket as `bind` does, or None for port 0."""
    return bind(address, port, flag=flag) if port else None


def _refused(error: OSError, address: str, port: int, flag: str) -> str:
    choose = f"choose another port with {flag}"
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} on {address} is in use by another program: stop that program "
                f"or {choose}"
            )
        case errno.EACCES:
            return f"no right to listen on port {port} (below 1024?): {choose}"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine: choose another one"
        case _:
            return f"cannot listen on {address}:{port}: {error}; {choose}"
