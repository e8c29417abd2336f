"""Reading of affinities, and merging with those of an object."""

from collections.abc import Mapping
from typing import Any, Final

from reconciler.engine import reading
from reconciler.engine.allowance import STEPS_OF_ELEMENT, Allowance
from reconciler.errors import InvalidPolicy

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_AFFINITIES: Final = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_TERMS: Final = "nodeSelectorTerms"


def read_affinity(raw: Any, location: str) -> dict[str, dict[str, Any]]:
    """Read an affinity, down to its terms.

    Raises:
        InvalidPolicy: A field is unknown, or a term is not an object.
    """
    found: dict[str, dict[str, Any]] = {}
    for kind, parts in reading.mapping(raw, location, allowed=_AFFINITIES).items():
        place = f"{location}.{kind}"
        found[kind] = dict(reading.mapping(parts, place, allowed=(_REQUIRED, _PREFERRED)))
        for name, terms in found[kind].items():
            is_node = kind == "nodeAffinity" and name == _REQUIRED
            _check_terms(terms, f"{place}.{name}", is_node=is_node)
    return found


def _check_terms(raw: Any, location: str, *, is_node: bool) -> None:
    if not isinstance(raw, Mapping if is_node else list):
        wanted = "an object with nodeSelectorTerms" if is_node else "a list of terms"
        raise InvalidPolicy(location, f"expected {wanted}")
    if isinstance(raw, Mapping):
        raw, location = raw.get(_TERMS), f"{location}.{_TERMS}"
    reading.each(reading.object_at, raw, location)


def joined(current: Any, wanted: Any, allowance: Allowance) -> Any:
    """Return the current terms with the wanted ones added, without duplicates."""
    if isinstance(wanted, Mapping):
        outer = current if isinstance(current, Mapping) else {}
        terms = joined(outer.get(_TERMS), wanted.get(_TERMS) or [], allowance)
        return {**outer, **wanted, _TERMS: terms}
    there = current if isinstance(current, list) else []
    allowance.spend(len(there) * len(wanted) * STEPS_OF_ELEMENT)
    return [*there, *(term for term in wanted if term not in there)]
