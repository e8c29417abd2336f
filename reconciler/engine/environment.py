"""What an evaluation may know beside its data: the time, chance, addresses of hosts.

The engine never asks for any of these. Whoever evaluates binds them as values at the root of the
data, as ``context.bind(**surround(now=clock.now(), below=secrets.randbelow))``; a function that
needs what was not given fails and says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

SURROUNDINGS = "\0surroundings"
"""The key at the root; `Run` takes it out, so no expression finds it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


def surround(
    *,
    now: datetime | None = None,
    below: Callable[[int], int] | None = None,
    hosts: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Give the root entry that holds these surroundings."""
    return {SURROUNDINGS: EvaluationEnvironment(now=now, below=below, hosts=hosts or {})}
