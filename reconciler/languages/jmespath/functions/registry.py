"""All functions by name."""

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.languages.jmespath.functions import (
    arithmetic,
    certificates,
    encodings,
    lists,
    locators,
    objects,
    quantities,
    random,
    regexes,
    strings,
    times,
    types,
    versions,
)
from reconciler.languages.jmespath.functions.signature import Function

_FAMILIES = (
    quantities,
    arithmetic,
    certificates,
    random,
    encodings,
    lists,
    locators,
    objects,
    regexes,
    strings,
    times,
    types,
    versions,
)

REGISTRY: Mapping[str, Function] = MappingProxyType(
    {name: function for family in _FAMILIES for name, function in family.FUNCTIONS.items()}
)

IMPURE: frozenset[str] = frozenset(
    name for name, function in REGISTRY.items() if not function.pure
)
"""The functions whose result may differ on equal data: a rule that writes it never converges."""
