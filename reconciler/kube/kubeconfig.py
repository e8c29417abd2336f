"""The shape of kubeconfigs, and the context to use.

The library reports most faults of a kubeconfig without its place, and takes many for another one.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler.engine.reading import kind_of
from reconciler.errors import InvalidSetting

_Shape = type | list[Any] | Mapping[str, Any]

_EXEC: Final = {
    "apiVersion": str,
    "command": str,
    "args": [str],
    "env": [{"name": str, "value": str}],
}
# bytes stands for PEM in base64.
_USER: Final = {
    **dict.fromkeys(("token", "tokenFile", "username", "password"), str),
    **dict.fromkeys(("client-certificate", "client-key"), str),
    **dict.fromkeys(("client-certificate-data", "client-key-data"), bytes),
    "exec": _EXEC,
    "auth-provider": {"name": str, "config": {}},
}
_CLUSTER: Final = {
    **dict.fromkeys(("server", "certificate-authority", "tls-server-name", "proxy-url"), str),
    "certificate-authority-data": bytes,
    "insecure-skip-tls-verify": bool,
}
_SHAPE: Final[_Shape] = {
    "kind": str,
    "current-context": str,
    "contexts": [{"name": str, "context": {"cluster": str, "user": str}}],
    "clusters": [{"name": str, "cluster": _CLUSTER}],
    "users": [{"name": str, "user": _USER}],
}
_EXPECTED: Final = {str: "a string", bool: "true or false", bytes: "PEM in base64"}


def context_of(files: Sequence[Path], context: str) -> str:
    """Return the name of the context to use, whose cluster and user exist.

    Args:
        files: Those of $KUBECONFIG that exist; of two entries of one name, the first counts.
        context: Its name; empty for the current one.

    Raises:
        InvalidSetting: A file has another shape, or something is missing.
        YAMLError, OSError: A file cannot be read.
    """
    read = [_read(file) for file in files]
    place = f"kubeconfig {':'.join(map(str, files))}"
    name = context or next(filter(None, (item.get("current-context") for item in read)), "")
    if not name:
        raise InvalidSetting(f"{place}: it has no current-context: name one with --context")
    chosen = _named(read, "context", name)
    if chosen is None:
        raise InvalidSetting(f"{place}: it has no context {name}: name another")
    for kind in ("cluster", "user"):
        wanted = chosen.get(kind)
        if wanted and _named(read, kind, wanted) is None:
            msg = f"its context names the {kind} {wanted}, which it lacks"
            raise InvalidSetting(f"{place}: {msg}")
        # The library reads a user for each server with TLS; without, as of kubectl proxy, none.
        if not wanted and (kind == "cluster" or not _is_plain(read, chosen["cluster"])):
            raise InvalidSetting(f"{place}: its context {name} names no {kind}")
    return name


def _is_plain(read: Sequence[Mapping[str, Any]], cluster: str) -> bool:
    found = _named(read, "cluster", cluster) or {}
    return str(found.get("server", "")).startswith("http:")


def _named(read: Sequence[Mapping[str, Any]], kind: str, name: str) -> Mapping[str, Any] | None:
    listed = (item for config in read for item in config.get(f"{kind}s") or ())
    return next((item[kind] for item in listed if item["name"] == name), None)


def _read(file: Path) -> Mapping[str, Any]:
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    for location, fault in _faults(found, _SHAPE, ""):
        place = f"{location}: " if location else ""
        raise InvalidSetting(f"kubeconfig {file}: {place}{fault}")
    if found.get("kind", "Config") != "Config":
        msg = f"kind: expected Config, got {found['kind']}; it is another file"
        raise InvalidSetting(f"kubeconfig {file}: {msg}")
    checked: Mapping[str, Any] = found
    return checked


def _faults(value: Any, shape: _Shape, location: str) -> Iterator[tuple[str, str]]:
    if isinstance(shape, Mapping):
        yield from _faults_of_map(value, shape, location)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield location, f"expected a list, got {kind_of(value)}"
            return
        for index, item in enumerate(value):
            yield from _faults(item, shape[0], f"{location}[{index}]")
    elif not isinstance(value, str if shape is bytes else shape):
        cure = "; put it in quotes" if shape is str and isinstance(value, int | float) else ""
        yield location, f"expected {_EXPECTED[shape]}, got {kind_of(value)}{cure}"
    elif shape is bytes and b"-----BEGIN " not in _decoded(str(value)):
        yield location, f"expected {_EXPECTED[bytes]}, got something else"


def _faults_of_map(
    value: Any, shape: Mapping[str, Any], location: str
) -> Iterator[tuple[str, str]]:
    if not isinstance(value, Mapping):
        yield location, f"expected an object, got {kind_of(value)}"
        return
    for name, inner in shape.items():
        place = f"{location}.{name}" if location else name
        if value.get(name) is not None:
            yield from _faults(value[name], inner, place)
        elif location.endswith("]"):
            yield place, "it is missing"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""
