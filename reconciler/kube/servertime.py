"""The API server's time, which is the time in the metadata of objects."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from reconciler.clock import Clock
from reconciler.kube.client import Client


class ServerClock:
    """A clock set by every answer of the API server, accurate to about a second."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._read: tuple[str, datetime] | None = None

    def now(self) -> datetime:
        """Return the API server's time, or this machine's until the first answer."""
        text, heard = self._client.date
        # All answers within a second have the same text.
        if self._read is None or self._read[0] != text:
            try:
                said = parsedate_to_datetime(text)
            except ValueError:
                return self._clock.now()
            said = said.replace(tzinfo=UTC) if said.tzinfo is None else said.astimezone(UTC)
            self._read = text, said
        return self._read[1] + timedelta(seconds=self._clock.monotonic() - heard)

    def monotonic(self) -> float:
        """Return monotonic seconds, for durations."""
        return self._clock.monotonic()
