"""The environment of an evaluation beside its data: the time and random numbers.

The engine never reads either itself. The caller binds them as values at the root of the
data, as ``context.bind(**environment_entry(now=clock.now(), randbelow=secrets.randbelow))``. A
function that needs a missing one fails with a message that names it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from reconciler.values import value_class

ENVIRONMENT = "\0environment"
"""The key at the root; `Run` removes it, so that no expression can read it."""


@value_class(frozen=True, slots=True, kw_only=True)
class EvaluationEnvironment:
    """The values that an evaluation may use beside its data.

    Attributes:
        now: The time, with a time zone, which ``time_now()`` uses for its output.
        randbelow: Returns a random integer from 0 up to, but not including, its argument.
    """

    now: datetime | None = None
    randbelow: Callable[[int], int] | None = None


NOTHING_KNOWN = EvaluationEnvironment()

_LATER = timedelta(days=400, hours=5, minutes=7, seconds=11)
"""Long enough to change every field of a date and time."""


def environment_entry(
    *, now: datetime | None = None, randbelow: Callable[[int], int] | None = None
) -> dict[str, Any]:
    """Return the root entry that holds an environment with these values."""
    return {ENVIRONMENT: EvaluationEnvironment(now=now, randbelow=randbelow)}


def later_environment_entry(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the root entry for a later evaluation: another time, other random numbers."""
    known: EvaluationEnvironment = data.get(ENVIRONMENT, NOTHING_KNOWN)
    randbelow = known.randbelow
    return {
        ENVIRONMENT: replace(
            known,
            now=None if known.now is None else known.now + _LATER,
            randbelow=None if randbelow is None else lambda limit: limit - 1 - randbelow(limit),
        )
    }
