"""The environment of a hook: the variables that it needs, and those that its user names."""

from collections.abc import Iterable, Mapping
from typing import Final

_KEPT: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "KUBECONFIG"})
_CLUSTER: Final = "KUBERNETES_"
"""Prefix of the variables by which a Pod finds the API server."""


def clean_environment(environment: Mapping[str, str], added: Iterable[str]) -> dict[str, str]:
    """Return the part of a program's environment that a hook receives.

    Args:
        environment: The program's; a hook must not see its tokens and settings.
        added: Names of additional variables.
    """
    names = _KEPT | set(added)
    return {
        name: value
        for name, value in environment.items()
        if name in names or name.startswith(_CLUSTER)
    }
