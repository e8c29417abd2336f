"""What an evaluation may know beside its data: the time, random numbers, addresses of hosts.

The engine never asks for any of these. Whoever evaluates binds them as values at the root of the
data, as ``context.bind(**environment_entry(now=clock.now(), randbelow=secrets.randbelow))``; a
function that needs what was not given fails and says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from reconciler.values import value_class

ENVIRONMENT = "\0environment"
"""The key at the root; `Run` takes it out, so no expression finds it there."""


@value_class(frozen=True, slots=True, kw_only=True)
class EvaluationEnvironment:
    """What an evaluation may know beside its data.

    Attributes:
        now: The time; aware. ``time_now()`` is written in its zone.
        randbelow: Gives a random integer from 0 up to, but without, its argument.
        hosts: The addresses of host names, as text.
    """

    now: datetime | None = None
    randbelow: Callable[[int], int] | None = None
    hosts: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))


NOTHING_KNOWN = EvaluationEnvironment()

_LATER = timedelta(days=400, hours=5, minutes=7, seconds=11)
"""No field of a date or a time is the same after it."""


def environment_entry(
    *,
    now: datetime | None = None,
    randbelow: Callable[[int], int] | None = None,
    hosts: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the root entry that holds an environment of these."""
    return {ENVIRONMENT: EvaluationEnvironment(now=now, randbelow=randbelow, hosts=hosts or {})}


def later_environment_entry(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the root entry for another evaluation: another time, other random numbers."""
    known: EvaluationEnvironment = data.get(ENVIRONMENT, NOTHING_KNOWN)
    randbelow = known.randbelow
    return {
        ENVIRONMENT: replace(
            known,
            now=None if known.now is None else known.now + _LATER,
            randbelow=None if randbelow is None else lambda limit: limit - 1 - randbelow(limit),
        )
    }
