"""All functions by name."""

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.engine.jmes.functions import arithmetic, lists, objects, strings, types
from reconciler.engine.jmes.functions.signature import Function

REGISTRY: Mapping[str, Function] = MappingProxyType(
    {
        **arithmetic.FUNCTIONS,
        **strings.FUNCTIONS,
        **lists.FUNCTIONS,
        **objects.FUNCTIONS,
        **types.FUNCTIONS,
    }
)
