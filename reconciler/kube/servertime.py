"""The time as the API server has it, which is the one that it notes in objects."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from reconciler.clock import Clock
from reconciler.kube.client import Client


class ServerClock:
    """A clock that is set by every answer of the API server; right to about a second."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._read: tuple[str, datetime] | None = None

    def now(self) -> datetime:
        """Return the API server's time; this machine's as long as nothing was heard of it."""
        text, heard = self._client.date
        # All answers of a second say the same.
        if self._read is None or self._read[0] != text:
            try:
                said = parsedate_to_datetime(text)
            except ValueError:
                return self._clock.now()
            said = said.replace(tzinfo=UTC) if said.tzinfo is None else said.astimezone(UTC)
            self._read = text, said
        return self._read[1] + timedelta(seconds=self._clock.monotonic() - heard)

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations."""
        return self._clock.monotonic()
