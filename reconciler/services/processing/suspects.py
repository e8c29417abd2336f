"""Requests that may have ended an earlier controller process.

Normally an attempt leaves no trace before it ends, which saves one write per request. Only if the
previous leader did not release its Lease, each request that waits then gets a note before it is
worked on. A request that is found with such a note was in work when a controller ended, perhaps
beside others. So these are worked on alone first, and only attempts alone count against them.
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
        f"the controller was terminated {MOST_INTERRUPTIONS} times in a row while it processed"
        " this request, most recently without processing any other; the request is abandoned, so"
        " that the others can continue"
    ),
)


@dataclass(slots=True)
class Suspects:
    """The suspects by name, from the first list of a leader on.

    Attributes:
        expected: Whether the previous leader ended without releasing its Lease.
        alone: Whether the attempt that begins now is the only one in work.
    """

    requests: Requests
    expected: bool = False
    alone: bool = False
    _found: dict[str, int] = field(default_factory=dict)

    def expect(self) -> None:
        """Note that the previous leader did not release its Lease."""
        self.expected = True

    def take(self, waiting: Iterable[UpdateRequest]) -> None:
        """Record the requests that waited when this process began to lead."""
        if self.expected:
            self._found = {item.name: item.status.interruptions for item in waiting}

    @contextlib.contextmanager
    def alone_in_work(self) -> Iterator[list[str]]:
        """Yield the requests to work on alone, the most suspect first."""
        suspect = [(-times, name) for name, times in self._found.items() if times]
        self.alone = True
        yield [name for _, name in sorted(suspect)]
        self.alone = False

    def given_up(self, request: UpdateRequest) -> Fail | None:
        """Return the failure of a request that ended the controller too often, else None."""
        found = self._found.get(request.name, 0)
        return _GIVEN_UP if found >= MOST_INTERRUPTIONS else None

    async def note(self, request: UpdateRequest) -> UpdateRequest:
        """Note in a suspect that an attempt begins, and return the request as stored.

        The returned status is without the note, so the next status made from it has none.
        """
        if request.name not in self._found:
            return request
        found = self._found[request.name]
        plain = replace(request.status, interruptions=found)
        noted = begun(plain, alone=self.alone)
        stored = await self.requests.write_status(request, noted)
        # A sweep keeps a note in the progress that it writes, and its count starts again.
        times = 1 if request.spec.sweep else found
        return replace(stored, status=replace(plain, interruptions=times))

    def without_note(self, request: UpdateRequest) -> UpdateRequest:
        """Return a sweep after its run without the note, so that its next status has none."""
        return replace(request, status=replace(request.status, interruptions=0))

    def pending(self, name: str) -> bool:
        """Return whether a request has a note, or is about to get one."""
        return name in self._found

    def proven(self, name: str) -> None:
        """Forget a request: an attempt at it ended, and its status is stored without a note."""
        self._found.pop(name, None)
