"""The environment of a hook: what it needs to work, and what its user names."""

from collections.abc import Iterable, Mapping
from typing import Final

_KEPT: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "KUBECONFIG"})
_CLUSTER: Final = "KUBERNETES_"
"""How the names of the variables begin by which a Pod finds the API server."""


def clean_environment(environment: Mapping[str, str], added: Iterable[str]) -> dict[str, str]:
    """Return the variables that a hook gets of those that a program has.

    Args:
        environment: Of the program; its tokens and settings are none of a hook's business.
        added: Names of further ones.
    """
    names = _KEPT | set(added)
    return {
        name: value
        for name, value in environment.items()
        if name in names or name.startswith(_CLUSTER)
    }
