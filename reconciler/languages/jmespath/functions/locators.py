"""Functions on references to other resources: images, URLs, file paths."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from reconciler.engine.values.gotext import clean_path
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath.functions.signature import TEXT, Function, Refused, extension
from reconciler.languages.jmespath.images import qualified, split_image
from reconciler.languages.jmespath.limits import Run

_INSIDE = tuple(
    ipaddress.ip_network(network)
    for network in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::1",
        "fc00::/7",
    )
)
_SHOWN = 100
_PACE = 4  # a character of a path takes as long as copying this many


def _image_normalize(_run: Run, image: str) -> str:
    try:
        return split_image(image)["reference"]
    except EvaluationError:
        raise Refused(
            f"bad image: {qualified(image)[:_SHOWN]}, defaultRegistry: docker.io,"
            " enableDefaultRegistryMutation: true: invalid reference format"
        ) from None


def _is_external_url(_run: Run, url: str) -> bool:
    host = _host(url)
    if not host:
        raise Refused("argument #1 is not a URL with a host")
    address = _address(host)
    if address is None:
        raise Refused("only addresses are looked at here, and the host of this URL is a name")
    return not any(address in network for network in _INSIDE)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return None if address.scope_id else address.ipv4_mapped or address
    return address


def _path_canonicalize(run: Run, path: str) -> str:
    """Normalize a path without access to any file."""
    if not path:
        return ""
    run.read(len(path) * _PACE)
    return clean_path(path)


FUNCTIONS: Mapping[str, Function] = {
    "image_normalize": extension(_image_normalize, TEXT),
    "is_external_url": extension(_is_external_url, TEXT),
    "path_canonicalize": extension(_path_canonicalize, TEXT),
}
