"""Reading of affinities and the like, and merging with those of an object."""

from collections.abc import Mapping
from typing import Any, Final

from reconciler.dialects.kinitiras.texts import read_texts
from reconciler.engine import reading
from reconciler.engine.allowance import STEPS_OF_ELEMENT, Allowance
from reconciler.errors import InvalidPolicy

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = "nodeSelectorTerms"

# The types of fields; a list holds the type of its items. Fields that are not listed pass, because
# versions of Kubernetes add some.
_EXPRESSIONS: Final = [{"key": str, "operator": str, "values": [str]}]
_LABELS: Final = {"matchLabels": Mapping, "matchExpressions": _EXPRESSIONS}
_NODES: Final = {"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS}
_PODS: Final = {
    "labelSelector": _LABELS,
    "namespaceSelector": _LABELS,
    "namespaces": [str],
    "topologyKey": str,
    "matchLabelKeys": [str],
    "mismatchLabelKeys": [str],
}
_SPREAD: Final = [
    {
        "maxSkew": int,
        "minDomains": int,
        "topologyKey": str,
        "whenUnsatisfiable": str,
        "labelSelector": _LABELS,
        "matchLabelKeys": [str],
        "nodeAffinityPolicy": str,
        "nodeTaintsPolicy": str,
    }
]
_OF_PODS: Final = {_REQUIRED: [_PODS], _PREFERRED: [{"weight": int, "podAffinityTerm": _PODS}]}
_AFFINITIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "nodeAffinity": {
        _REQUIRED: {_TERMS: [_NODES]},
        _PREFERRED: [{"weight": int, "preference": _NODES}],
    },
    "podAffinity": _OF_PODS,
    "podAntiAffinity": _OF_PODS,
}
_NAMES: Final = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


def read_affinity(raw: Any, location: str) -> dict[str, dict[str, Any]]:
    """Read an affinity.

    Raises:
        InvalidPolicy: A field above its terms is unknown, or a field has another type.
    """
    found: dict[str, dict[str, Any]] = {}
    for kind, parts in reading.mapping(raw, location, allowed=tuple(_AFFINITIES)).items():
        place, types = f"{location}.{kind}", _AFFINITIES[kind]
        found[kind] = dict(reading.mapping(parts, place, allowed=tuple(types)))
        for name, terms in found[kind].items():
            _check(terms, types[name], f"{place}.{name}")
    return found


def read_spread(raw: Any, location: str) -> list[Any]:
    """Read ``topologySpreadConstraints``.

    Raises:
        InvalidPolicy: A field has another type.
    """
    _check(raw, _SPREAD, location)
    return list(raw)


def _check(raw: Any, wanted: Any, location: str) -> None:
    if isinstance(wanted, dict) and raw is not None:
        for name, value in reading.object_at(raw, location).items():
            # JSON written by Go programs may have null for what is not set.
            if name in wanted and value is not None:
                _check(value, wanted[name], f"{location}.{name}")
    elif isinstance(wanted, list) and raw is not None:
        for index, item in enumerate(reading.sequence(raw, location)):
            _check(item, wanted[0], f"{location}[{index}]")
    elif wanted is Mapping:
        read_texts(raw, location)
    elif type(raw) is not wanted:
        name = _NAMES[wanted if isinstance(wanted, type) else type(wanted)]
        raise InvalidPolicy(location, f"expected {name}, got {reading.kind_of(raw)}")


def joined(current: Any, wanted: Any, allowance: Allowance) -> Any:
    """Return the current terms with the wanted ones added, without duplicates."""
    if isinstance(wanted, Mapping):
        outer = current if isinstance(current, Mapping) else {}
        terms = joined(outer.get(_TERMS), wanted.get(_TERMS) or [], allowance)
        return {**outer, **wanted, _TERMS: terms}
    there = current if isinstance(current, list) else []
    allowance.spend(len(there) * len(wanted) * STEPS_OF_ELEMENT)
    return [*there, *(term for term in wanted if term not in there)]
