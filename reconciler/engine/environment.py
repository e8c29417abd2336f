"""What an evaluation may know beside its data: the time, chance, addresses of hosts.

The engine never asks for any of these. Whoever evaluates binds them as values at the root of the
data, as ``context.bind(**surround(now=clock.now(), below=secrets.randbelow))``; a function that
needs what was not given fails and says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from reconciler.values import value_class

SURROUNDINGS = "\0surroundings"
"""The key at the root; `Run` takes it out, so no expression finds it there."""


@value_class(frozen=True, slots=True, kw_only=True)
class EvaluationEnvironment:
    """What an evaluation may know beside its data.

    Attributes:
        now: The time; aware. ``time_now()`` is written in its zone.
        below: Gives a random integer from 0 up to, but without, its argument.
        hosts: The addresses of host names, as text.
    """

    now: datetime | None = None
    below: Callable[[int], int] | None = None
    hosts: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))


NOTHING_KNOWN = EvaluationEnvironment()

_LATER = timedelta(days=400, hours=5, minutes=7, seconds=11)
"""No field of a date or a time is the same after it."""


def surround(
    *,
    now: datetime | None = None,
    below: Callable[[int], int] | None = None,
    hosts: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Give the root entry that holds these surroundings."""
    return {SURROUNDINGS: EvaluationEnvironment(now=now, below=below, hosts=hosts or {})}


def surround_later(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give the root entry for another evaluation, at another time and with other chances."""
    known: EvaluationEnvironment = data.get(SURROUNDINGS, NOTHING_KNOWN)
    below = known.below
    return {
        SURROUNDINGS: replace(
            known,
            now=None if known.now is None else known.now + _LATER,
            below=None if below is None else lambda limit: limit - 1 - below(limit),
        )
    }
