"""Conversions between versions of a CustomResourceDefinition: the steps, and their checks.

A version may be written with or without its group. Without, it matches any group.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from reconciler.api.meta import Object
from reconciler.engine.reading import kind_of
from reconciler.errors import InvalidPolicy

Owner = TypeVar("Owner", bound=Hashable)

_PLACE = "$CONVERSION_RESPONSE_PATH: convertedObjects"
_KEPT = ("name", "namespace", "uid")


@dataclass(frozen=True, slots=True)
class ConversionStep(Generic[Owner]):
    """A conversion from one version to another.

    Attributes:
        owner: The hook binding that does it.
    """

    start: str
    goal: str
    owner: Owner


def is_version(one: str, other: str) -> bool:
    """Return whether two texts name the same version."""
    if "/" in one and "/" in other:
        return one == other
    return one.rpartition("/")[2] == other.rpartition("/")[2]


def shortest_chain(
    steps: Sequence[ConversionStep[Owner]], start: str, goal: str
) -> tuple[ConversionStep[Owner], ...]:
    """Return the shortest chain of steps from one version to another; empty if there is none.

    Among equally short chains, one whose versions are spelled as requested is preferred, then the
    one that was declared first.
    """
    waiting: deque[tuple[str, tuple[ConversionStep[Owner], ...]]] = deque([(start, ())])
    seen = {start}
    while waiting:
        version, chain = waiting.popleft()
        fitting = [step for step in steps if is_version(step.start, version)]
        # The sort is stable; versions with the same spelling come first.
        fitting.sort(key=lambda step: (step.goal != goal, step.start != version))
        for step in fitting:
            longer = (*chain, step)
            if is_version(step.goal, goal):
                return longer
            if step.goal not in seen:
                seen.add(step.goal)
                waiting.append((step.goal, longer))
    return ()


def check_converted(
    before: Sequence[Object], after: Sequence[Any], versions: Sequence[str]
) -> tuple[Object, ...]:
    """Return the objects to which a hook converted others, in their order, after a check.

    Raises:
        InvalidPolicy: They are not the given objects in an allowed version.
    """
    if len(after) != len(before):
        raise InvalidPolicy(_PLACE, f"has {len(after)} objects, expected {len(before)}")
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        _check(old, new, versions, f"{_PLACE}[{index}]")
    return tuple(after)


def _check(old: Object, new: Any, versions: Sequence[str], place: str) -> None:
    meta = new.get("metadata") if isinstance(new, Mapping) else None
    if not isinstance(new, Mapping) or not isinstance(meta, Mapping):
        what = "an object" if not isinstance(new, Mapping) else "an object with metadata"
        raise InvalidPolicy(place, f"expected {what}, got {kind_of(new)}")
    version = new.get("apiVersion")
    if not isinstance(version, str) or not any(is_version(version, item) for item in versions):
        raise InvalidPolicy(f"{place}.apiVersion", f"is {version!r:.80}, expected {versions[0]}")
    if new.get("kind") != old.get("kind"):
        reason = f"is {new.get('kind')!r:.80}, but a conversion must keep {old.get('kind')!r}"
        raise InvalidPolicy(f"{place}.kind", reason)
    for name in _KEPT:
        kept = (old.get("metadata") or {}).get(name)
        if meta.get(name) != kept:
            reason = f"is {meta.get(name)!r:.80}, but a conversion must keep {kept!r}"
            raise InvalidPolicy(f"{place}.metadata.{name}", reason)


def versions_of(objects: Sequence[Object]) -> tuple[str, ...]:
    """Return the distinct versions of objects, in order of appearance."""
    return tuple(dict.fromkeys(str(obj.get("apiVersion", "")) for obj in objects))
