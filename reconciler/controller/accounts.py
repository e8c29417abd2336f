"""Everything that tells people what the work came to: log, metrics, events, figures, reports."""

from dataclasses import dataclass

from reconciler.api.meta import Object
from reconciler.api.updaterequest import SUCCESSES, RequestSpec, RequestStatus, UpdateRequest
from reconciler.controller.report import Reporter
from reconciler.services.notices import Notices
from reconciler.services.process import Attempt
from reconciler.services.progress import Progress
from reconciler.services.reports import Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Told of what is stored; none of it decides anything."""

    reporter: Reporter
    notices: Notices
    progress: Progress
    reports: Reports

    def observe(self, request: UpdateRequest, status: RequestStatus, attempt: Attempt) -> None:
        """Take in an attempt whose status is stored."""
        self.reporter.observe(request, status, attempt)
        self.notices.observe(request, status, attempt)
        self.progress.observe(request, status)
        told = request.status.targets
        self.reports.add(request.spec, [item for item in attempt.targets if item not in told])

    def found(self, request: UpdateRequest) -> None:
        """Take in a finished request that is stored when this process begins to lead."""
        self.progress.found(request)
        self.reports.found(request)

    def swept(self, spec: RequestSpec, attempt: Attempt) -> None:
        """Take in what a sweep did for one trigger; what failed goes on as a request."""
        self.reporter.swept(spec, attempt)
        self.notices.swept(spec, attempt)
        done = [item for item in attempt.targets if item.outcome in SUCCESSES]
        self.reports.add(spec, done)

    def notice(self, policy: Object) -> None:
        """Take in a policy as stored."""
        self.progress.notice(policy)
        self.reports.notice(policy)

    def forget(self, key: str) -> None:
        """A policy was deleted."""
        self.progress.forget(key)
        self.reports.forget(key)
        self.notices.forget(key)
