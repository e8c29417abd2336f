"""Everything that tells people what the work came to: log, metrics, events, figures."""

from dataclasses import dataclass

from reconciler.api.meta import Object
from reconciler.api.updaterequest import RequestStatus, UpdateRequest
from reconciler.controller.report import Reporter
from reconciler.services.process import Attempt
from reconciler.services.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Told of what is stored; none of it decides anything."""

    reporter: Reporter
    progress: Progress

    def observe(self, request: UpdateRequest, status: RequestStatus, attempt: Attempt) -> None:
        """Take in an attempt whose status is stored."""
        self.reporter.observe(request, status, attempt)
        self.progress.observe(request, status)

    def notice(self, policy: Object) -> None:
        """Take in a policy as stored."""
        self.progress.notice(policy)

    def forget(self, key: str) -> None:
        """A policy was deleted."""
        self.progress.forget(key)
