"""Shared parts of the validations of single kinds: dependencies, refusals and warnings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from admission.asking import TOGETHER
from admission.decide import AdmissionResponse
from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Object, ref_of
from reconciler.clock import Deadline
from reconciler.dialects.registry import CompiledEntry
from reconciler.engine.program import EntryNames
from reconciler.installation import REPLACING, Installation
from reconciler.services.authoring.lint import Scope
from reconciler.services.catalog.protection import Protection
from reconciler.services.catalog.settings import Filters
from reconciler.services.ports.access import Access, Accesses
from reconciler.services.ports.cue import Cue
from reconciler.services.ports.jq import Jq
from reconciler.services.ports.objects import Kinds
from reconciler.services.ports.policies import MatchConditions
from reconciler.services.ports.requests import Requests

T = TypeVar("T")

INVALID = 422
FORBIDDEN = 403
UNAVAILABLE = 503
_PAUSE = 0.25
"""Seconds between two checks for something missing."""

_MOST_LINES = 10
_MOST_WARNINGS = 10
_SHORT = 120
_LONGEST = 240
"""The API server truncates warnings above 256 characters, and recommends up to 120."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationDeps:
    """The dependencies of a validation.

    Attributes:
        forget: Invalidates discovery.
        scope: Returns a function that reports which kinds are namespaced.
        access: Access of the account that writes targets, and of accounts that policies name.
        requests: Finds the aggregate requests of a policy.
        account: Name of the account that writes targets, for messages.
        controller: Account that impersonates others.
        reader: Access of the admission server, which reads context entries at admission.
        filters: Returns the current filters.
        patience: Seconds to wait for a missing right.
        gate: Limits the concurrent access reviews of all validations.
        compiling: Serializes compilation: a second thread would take time from the first.
        dry_run: Nothing is stored, neither the object nor others applied with it.
        author: Access of the request's sender; None if it is not reviewed.
        installation: Installation whose names appear in messages.
        stored_entries: Returns the GlobalContextEntries of some names; None for all.
        read_entries: Returns the names of the entries that rules read at admission.
        cue: Checks CUE programs; None if they are not checked.
        jq: Opens a session that compiles the jq programs of one hook at a time.
        verifier: Access of the admission server, which verifies old objects; None if it does
            not.
    """

    kinds: Kinds
    forget: Callable[[], None]
    scope: Callable[[], Awaitable[Scope]]
    access: Accesses
    conditions: MatchConditions
    requests: Requests
    account: str
    controller: ServiceAccount
    reader: Access
    filters: Callable[[], Filters]
    patience: float
    jq: Callable[[], AbstractAsyncContextManager[Jq]]
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TOGETHER))
    compiling: asyncio.Lock = field(default_factory=asyncio.Lock)
    dry_run: bool = False
    protection: Protection = field(default_factory=Protection)
    author: Access | None = None
    author_name: str = ""
    installation: Installation = REPLACING
    verifier: Access | None = None
    stored_entries: Callable[[EntryNames], Iterable[CompiledEntry]] = lambda _: ()
    read_entries: Callable[[], EntryNames] = frozenset
    cue: Cue | None = None

    @contextlib.asynccontextmanager
    async def turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """Wait for the turn to compile, which then has no time limit.

        Raises:
            TimeoutError: The turn did not come by the deadline.
        """
        async with asyncio.timeout(deadline.left):
            await self.compiling.acquire()
        try:
            yield
        finally:
            self.compiling.release()

    async def patiently(
        self, found: T, again: Callable[[T], Awaitable[T]], lacks: Callable[[T], object]
    ) -> T:
        """Return the finding once nothing is missing, or the last one after a time limit.

        Dependencies of an object may be applied together with it, and a role takes a moment to
        reach the authorizer. A dry run stores none of them, so it does not wait.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + (0.0 if self.dry_run else self.patience)
        while lacks(found) and loop.time() < end:
            await asyncio.sleep(_PAUSE)
            found = await again(found)
        return found


Check = Callable[[Object, ValidationDeps, Deadline], Awaitable[AdmissionResponse]]
"""Validates an object that is new or whose spec has changed."""


def refuse(
    obj: Object, lines: Sequence[str], *, code: int = INVALID, cure: str = ""
) -> AdmissionResponse:
    """Return the refusal of an object, with one line per reason and then the cure."""
    shown = [*lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"and {len(lines) - _MOST_LINES} more")
    if cure:
        shown.append(cure)
    return AdmissionResponse(
        allowed=False, code=code, message=f"{ref_of(obj)}: " + "\n".join(shown)
    )


def warnings(texts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return warnings within the limits of the API server: few and short.

    Args:
        texts: Each warning, and a text that is appended if there is room.
    """
    found = list(dict.fromkeys(_warning(text, more) for text, more in texts))
    if len(found) <= _MOST_WARNINGS:
        return tuple(found)
    left = len(found) - _MOST_WARNINGS + 1
    return (*found[: _MOST_WARNINGS - 1], f"{left} more warnings: `retrofit lint` lists them all")


def _warning(text: str, more: str) -> str:
    if more and len(text) + len(more) + 2 <= _SHORT:
        text = f"{text}: {more}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3].rpartition(" ")[0] + " ..."
