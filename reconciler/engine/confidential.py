"""Detection of confidential data that an evaluation reads: the content of Secrets."""

from urllib.parse import unquote

from reconciler.api.meta import split_api_version
from reconciler.engine.loads import ApiLoad, GlobalLoad, Load, ObjectLoad

_SECRET = ("", "Secret")
_CONFIDENTIAL_SEGMENTS = frozenset({"secrets", "token"})


def is_secret(group: str, kind: str) -> bool:
    """Return whether a kind is Secret or a subresource of it."""
    return (group, kind.partition("/")[0]) == _SECRET


def may_hold_secrets(load: Load) -> bool:
    """Return whether the answer to a load may be a Secret, or derived from one.

    The source of a GlobalContextEntry is not known here, so it always may.
    """
    if isinstance(load, ObjectLoad):
        return is_secret(split_api_version(load.api_version)[0], load.kind)
    if isinstance(load, ApiLoad):
        path = unquote(load.path.partition("?")[0])
        return not _CONFIDENTIAL_SEGMENTS.isdisjoint(path.split("/"))
    return isinstance(load, GlobalLoad)
