"""The shape of kubeconfigs, and the context to use.

The library reports most faults of a kubeconfig without its place, and takes many for another one.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler.engine.reading import kind_of
from reconciler.errors import InvalidSetting

_Shape = type | list[Any] | dict[str, Any]

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
_EXPECTED: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    bytes: "PEM in base64",
}


def context_of(files: Sequence[Path], context: str) -> str:
    """Return the name of the context to use, whose cluster and user exist.

    Args:
        files: Those of $KUBECONFIG that exist; of two entries of one name, the first counts.

    Raises:
        InvalidSetting: A file has another shape, or something is missing.
        YAMLError, OSError: A file cannot be read.
    """
    read = [_read(file) for file in files]
    place = f"kubeconfig {':'.join(map(str, files))}"
    name = context or next(filter(None, (item.get("current-context") for item in read)), "")
    if not name:
        raise InvalidSetting(
            f"{place}: it has no current-context: name one with --context (of retrofit-hooks:"
            " --kube-context)"
        )
    chosen = _named(read, "context", name)
    if chosen is None:
        raise InvalidSetting(f"{place}: it has no context {name}: name another")
    server = ""
    for kind in ("cluster", "user"):
        wanted = chosen.get(kind)
        found = _named(read, kind, wanted) if wanted else {}
        if found is None:
            msg = f"its context names the {kind} {wanted}, which it lacks"
            raise InvalidSetting(f"{place}: {msg}")
        # The library reads a user for each server with TLS; without, as of kubectl proxy, none.
        if not wanted and not server.startswith("http:"):
            raise InvalidSetting(f"{place}: its context {name} names no {kind}")
        server = str(found.get("server") or "")
    return name


def _named(read: Sequence[Mapping[str, Any]], kind: str, name: str) -> Mapping[str, Any] | None:
    listed = (item for config in read for item in config.get(f"{kind}s") or ())
    return next((item[kind] for item in listed if item["name"] == name), None)


def _read(file: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    for location, fault in _faults(found, _SHAPE, ""):
        place = f"{location}: " if location else ""
        raise InvalidSetting(f"kubeconfig {file}: {place}{fault}")
    if found.get("kind", "Config") != "Config":
        msg = f"kind: expected Config, got {found['kind']}; it is another file"
        raise InvalidSetting(f"kubeconfig {file}: {msg}")
    return found


def _faults(value: Any, shape: _Shape, location: str) -> Iterator[tuple[str, str]]:
    """Yield the places that differ from the shape, and how."""
    form = shape if isinstance(shape, type) else type(shape)
    fits = isinstance(value, str if form is bytes else form)
    if not fits:
        cure = "; put it in quotes" if form is str and isinstance(value, int | float) else ""
        yield location, f"expected {_EXPECTED[form]}, got {kind_of(value)}{cure}"
    elif isinstance(shape, dict):
        for name, inner in shape.items():
            place = f"{location}.{name}" if location else name
            if value.get(name) is not None:
                yield from _faults(value[name], inner, place)
            elif location.endswith("]"):
                yield place, "it is missing"
    elif isinstance(shape, list):
        for index, item in enumerate(value):
            yield from _faults(item, shape[0], f"{location}[{index}]")
    elif form is bytes and not _is_pem(value):
        yield location, f"expected {_EXPECTED[bytes]}, got something else"


def _is_pem(coded: str) -> bool:
    try:
        return b"-----BEGIN " in base64.b64decode("".join(coded.split()), validate=True)
    except ValueError:
        return False
