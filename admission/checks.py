"""What the checks of single kinds share: the means to look something up, the form of a refusal."""

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
"""Seconds between two looks at what is missing."""

_MOST_LINES = 10
_MOST_WARNINGS = 10
_SHORT = 120
_LONGEST = 240
"""The API server cuts warnings that are longer than 256 characters, and asks for 120."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationDeps:
    """What a check may ask for.

    Attributes:
        kinds: Discovery.
        forget: Makes discovery read everything again.
        scope: Gives what tells which kinds are namespaced.
        access: About the account that writes targets, and about those that policies name.
        conditions: Compiles those of webhooks.
        requests: Where the aggregate requests of a policy are.
        account: Its name, for people.
        controller: The account that works in the name of others.
        reader: About the admission server, which reads context entries before objects are stored.
        filters: Gives the resource filters and excluded users that hold now.
        patience: Seconds that a missing right is waited for.
        gate: Of all questions about rights.
        compiling: Whose turn it is to compile: a second thread would take time from the first.
        dry_run: Nothing is stored, and nothing was that came with the object.
        protection: Tells what no policy addresses.
        author: About who sent the request; None where it is not asked what that one may do.
        author_name: The name, for people.
        installation: Whose names stand in what is said.
        stored_entries: Gives the GlobalContextEntries of some names, None: all.
        read_entries: Gives the names of those that rules read before objects are stored.
        cue: Looks at programs in CUE; None where nobody does before they run.
        jq: Gives what compiles the jq programs of a hook, to one check after the other.
        verifier: About the admission server, which verifies deleted and old objects; None where
            it need not.
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
        """Give the turn to compile, which then takes as long as it takes.

        Raises:
            TimeoutError: It did not come by the deadline.
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
        """Return what is found when nothing is missing any more, or after a while.

        What an object needs may have been applied together with it, and a role takes a moment
        to reach the authorizer; a dry run stores none.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + (0.0 if self.dry_run else self.patience)
        while lacks(found) and loop.time() < end:
            await asyncio.sleep(_PAUSE)
            found = await again(found)
        return found


Check = Callable[[Object, ValidationDeps, Deadline], Awaitable[AdmissionResponse]]
"""Decides about an object that is new, or whose spec has changed."""


def refuse(obj: Object, lines: Sequence[str], *, code: int = INVALID) -> AdmissionResponse:
    """Return the refusal of an object, with one line per reason."""
    shown = [*lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"and {len(lines) - _MOST_LINES} more")
    return AdmissionResponse(
        allowed=False, code=code, message=f"{ref_of(obj)}: " + "\n".join(shown)
    )


def warnings(texts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return warnings as the API server wants them: few and short.

    Args:
        texts: What is to be said, and what may be added where there is room.
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
