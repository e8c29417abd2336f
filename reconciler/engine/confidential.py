"""What an evaluation reads that not everybody may see: the content of Secrets."""

from urllib.parse import unquote

from reconciler.api.meta import split_api_version
from reconciler.engine.loads import ApiLoad, GlobalLoad, Load, ObjectLoad

_SECRET = ("", "Secret")
_CONFIDENTIAL_SEGMENTS = frozenset({"secrets", "token"})


def is_secret(group: str, kind: str) -> bool:
    """Return whether objects of a kind are Secrets, their subresources too."""
    return (group, kind.partition("/")[0]) == _SECRET


def may_hold_secrets(load: Load) -> bool:
    """Return whether what was read from outside may be a Secret, or made of one.

    An entry that is kept for many rules does not tell here what it was made of.
    """
    if isinstance(load, ObjectLoad):
        return is_secret(split_api_version(load.api_version)[0], load.kind)
    if isinstance(load, ApiLoad):
        path = unquote(load.path.partition("?")[0])
        return not _CONFIDENTIAL_SEGMENTS.isdisjoint(path.split("/"))
    return isinstance(load, GlobalLoad)
