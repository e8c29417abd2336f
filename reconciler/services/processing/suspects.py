"""Requests that may have ended the controller before this one.

On the usual way an attempt leaves no trace before it ends: that would be a write more per request.
Only where the leader before did not give its Lease back are the requests that waited then noted
before they are worked on. One that is found with such a note was in work when a controller ended,
as others were: so these are worked on alone first, and only an attempt alone is held against them.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.api.updaterequest import Reason, UpdateRequest
from reconciler.requests.lifecycle import MOST_INTERRUPTIONS, Fail, begun
from reconciler.services.ports.requests import Requests

_GIVEN_UP: Final = Fail(
    reason=Reason.INTERRUPTED,
    message=(
        f"the controller was ended {MOST_INTERRUPTIONS} times in a row while it worked on this"
        " request, the last times on nothing else; it is given up, for the sake of the others"
    ),
)


@dataclass(slots=True)
class Suspects:
    """Knows them by name, from the first list of a leader on.

    Attributes:
        expected: The leader before ended without a word.
        alone: What begins now is the only one in work.
    """

    requests: Requests
    expected: bool = False
    alone: bool = False
    _found: dict[str, int] = field(default_factory=dict)

    def expect(self) -> None:
        """The leader before did not give its Lease back."""
        self.expected = True

    def take(self, waiting: Iterable[UpdateRequest]) -> None:
        """Take in what waited when this process began to lead."""
        if self.expected:
            self._found = {item.name: item.status.interruptions for item in waiting}

    @contextlib.contextmanager
    def alone_in_work(self) -> Iterator[list[str]]:
        """Give those that are to be worked on alone, the most suspect first."""
        suspect = [(-times, name) for name, times in self._found.items() if times]
        self.alone = True
        yield [name for _, name in sorted(suspect)]
        self.alone = False

    def given_up(self, request: UpdateRequest) -> Fail | None:
        """Return how a request ends that ended the controller too often, None for others."""
        found = self._found.get(request.name, 0)
        return _GIVEN_UP if found >= MOST_INTERRUPTIONS else None

    async def note(self, request: UpdateRequest) -> UpdateRequest:
        """Note in a request that an attempt begins, where that has to be; return it as stored.

        The status that comes back is without the note: what is decided on it takes the note away.
        """
        if request.name not in self._found:
            return request
        found = self._found[request.name]
        plain = replace(request.status, interruptions=found)
        noted = begun(plain, alone=self.alone)
        stored = await self.requests.write_status(request, noted)
        # A sweep keeps its note where it writes how far it is, and then begins to count anew.
        times = 1 if request.spec.sweep else found
        return replace(stored, status=replace(plain, interruptions=times))

    def without_note(self, request: UpdateRequest) -> UpdateRequest:
        """Return a sweep whose run came to its end, so that what is decided on it has no note."""
        return replace(request, status=replace(request.status, interruptions=0))

    def pending(self, name: str) -> bool:
        """Return whether a request bears a note, or is about to."""
        return name in self._found

    def proven(self, name: str) -> None:
        """An attempt at it came to its end, and its status is stored without a note."""
        self._found.pop(name, None)
