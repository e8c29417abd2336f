"""The requests that are not final, for whoever decides by what waits."""

from dataclasses import dataclass, field

from reconciler.api.updaterequest import UpdateRequest


@dataclass(slots=True)
class KnownRequests:
    """Kept by the dispatcher.

    Attributes:
        by_name: As they were stored last.
        listed: All that wait were listed once.
    """

    by_name: dict[str, UpdateRequest] = field(default_factory=dict)
    listed: bool = False

    def note_list(self) -> None:
        """All that wait were listed."""
        self.listed = True

    def unended(self) -> tuple[UpdateRequest, ...]:
        """Return all of them."""
        return tuple(self.by_name.values())

    def unfinished(self, name: str) -> bool:
        """Return whether the final status of a request, or a sweep's part, is yet to be stored."""
        return not self.listed or name.partition("/")[0] in self.by_name
