"""Checks the address of a service that a policy names; the checked address is the one called.

The owner of a Service chooses what its name resolves to: with an ExternalName another namespace,
the node, or the address at which a cloud serves credentials. So the canonical name is checked as
well as the requested one, and the connection goes to exactly the address that was checked.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override

from reconciler.errors import Invalid

_RESOLV_CONF: Final = Path("/etc/resolv.conf")
# Metadata services of clouds that are not at link-local addresses.
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"))
)
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Reserved for documentation: no machine has them.
_NOBODYS: Final[dict[int, _Address]] = {
    4: ipaddress.IPv4Address("192.0.2.1"),
    6: ipaddress.IPv6Address("2001:db8::1"),
}


class ServiceResolver(AbstractResolver):
    """Resolves the host of one call and refuses forbidden names and addresses.

    Attributes:
        hosts: Patterns of the hosts that may be called; an address of this machine, its network
            or its cloud is allowed only if it is listed literally.
        namespace: The only namespace whose Services may be called; empty for any.
        search: Domains that the system appends to a name.
    """

    def __init__(
        self, hosts: Iterable[str], namespace: str, search: Iterable[str] | None = None
    ) -> None:
        self.hosts = tuple(hosts)
        self.namespace = namespace
        self.search = tuple(_search_domains() if search is None else search)

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(
            host,
            port,
            type=socket.SOCK_STREAM,
            family=family,
            flags=socket.AI_CANONNAME | socket.AI_ADDRCONFIG,
        )
        self._check_name(host, next((item[3] for item in found if item[3]), host))
        for item in found:
            self.check_address(host, str(item[4][0]))
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    @override
    async def close(self) -> None:
        """Do nothing; the resolver holds no resources."""

    def check_address(self, host: str, text: str) -> None:
        """Refuse an address that no Service has.

        Raises:
            Invalid: The address belongs to this machine, its network or its cloud.
        """
        address = _plain(ipaddress.ip_address(text.partition("%")[0]))
        why = _why_not(address)
        if why and str(address) not in self.hosts:
            raise Invalid(
                f"service {host} may not be called: it resolves to {address}, {why}; if that is"
                " meant, name the address in --service-hosts"
            )

    def _check_name(self, host: str, canonical: str) -> None:
        asked, name = host.rstrip(".").lower(), canonical.rstrip(".").lower()
        if name == asked or name in {f"{asked}.{domain}" for domain in self.search}:
            return
        if self.namespace or not fits(name, self.hosts):
            raise Invalid(
                f"service {host} may not be called: it is an alias of {name} (as an"
                " ExternalName is); name the host itself"
            )


def fits(host: str, patterns: Iterable[str]) -> bool:
    """Return whether a host matches one of the allowed patterns."""
    return any(fnmatchcase(host, pattern) for pattern in patterns)


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _plain(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address embeds, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return address.ipv4_mapped or address.sixtofour or address


def _why_not(address: _Address) -> str:
    if address.is_loopback or address.is_unspecified or _is_ours(address):
        return "which is this Pod or its node"
    if address.is_link_local:
        return "a link-local address, as that of a node's metadata"
    if address in _METADATA:
        return "at which a cloud keeps a node's metadata"
    return "which is a multicast address" if address.is_multicast else ""


def _is_ours(address: _Address) -> bool:
    """Return whether this machine has the address, which shows in whether it can be bound.

    If the system allows binding any address, the result is False.
    """
    return _can_be_bound(address) and not _can_be_bound(_NOBODYS[address.version])


def _can_be_bound(address: _Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((str(address), 0))
    except OSError:
        return False
    return True


def _search_domains() -> list[str]:
    try:
        lines = _RESOLV_CONF.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: list[str] = []
    for line in lines:
        words = line.split()
        if words[:1] in (["search"], ["domain"]):
            found = [domain.rstrip(".").lower() for domain in words[1:]]
    return found
