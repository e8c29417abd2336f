"""Names of the `Hook` objects that represent executables in the cluster."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

_OTHER: Final = re.compile(r"[^a-z0-9.-]+")
_EDGES: Final = re.compile(r"(?:^|(?<=\.))[-.]+|[-.]+(?:$|(?=\.))")
_LONGEST: Final = 200
_DIGITS: Final = 8


def object_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the object name for each path below the folder of hooks.

    It is the path in the characters that names may have, with a dot for each slash. If two paths
    result in the same name, or it is too long, a digest of the path makes it unique.
    """
    plain = {path: _plain(path) for path in paths}
    count = Counter(plain.values())
    return {
        path: name
        if name and count[name] == 1 and len(name) <= _LONGEST
        else _with_digest(path, name)
        for path, name in plain.items()
    }


def _plain(path: str) -> str:
    return _EDGES.sub("", _OTHER.sub("-", path.lower().replace("/", ".")))


def _with_digest(path: str, name: str) -> str:
    digest = hashlib.sha256(path.encode()).hexdigest()[:_DIGITS]
    return f"{name[:_LONGEST].rstrip('.-') or 'hook'}-{digest}"
