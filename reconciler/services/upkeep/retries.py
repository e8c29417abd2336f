"""Retries of failed requests, which users request with an annotation.

The new request contains what was recorded of the trigger. The controller copies that itself, so
that no user needs the right to write it.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.meta import ANNOTATION_RETRIED, LABEL_RECORDED
from reconciler.api.updaterequest import State, UpdateRequest
from reconciler.errors import ClusterError, NotFound
from reconciler.requests.background_drafts import retry_draft
from reconciler.requests.naming import retry_name
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.requests import Requests

_PAUSE: Final = 2.0
"""Seconds until a failed creation is tried again."""


@dataclass(slots=True, kw_only=True)
class Retries(WarnsOnce):
    """Creates a new request for each failed one with a requested retry; run by the leader only."""

    requests: Requests
    _wanted: dict[str, UpdateRequest] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_stored(self, request: UpdateRequest) -> None:
        """Record whether a stored request has to be retried."""
        failed = request.status.state is State.FAILED and not request.ended_by
        if failed and request.retry_requested and not request.retried:
            self._wanted[request.name] = request
            self._changed.set()
        else:
            self._wanted.pop(request.name, None)

    def on_deleted(self, request: UpdateRequest) -> None:
        """Forget a deleted request."""
        self._wanted.pop(request.name, None)

    def wants(self, name: str) -> bool:
        """Return whether the retry of a request is yet to be created."""
        return name in self._wanted

    async def run(self) -> None:
        """Create the requested retries until cancelled."""
        await repeat(self._settle_changed, woken=self._changed, at_once=False)

    async def _settle_changed(self) -> None:
        self._changed.clear()
        await self.settle()
        if self._wanted:
            await asyncio.sleep(_PAUSE)
            self._changed.set()

    async def settle(self) -> None:
        """Create a new request for each requested retry; those that fail stay requested."""
        problem = ""
        for request in list(self._wanted.values()):
            try:
                await self._again(request)
            except ClusterError as error:
                problem = f"{request.name} cannot be retried yet: {error}"
            else:
                self._wanted.pop(request.name, None)
        self.tell(problem)

    async def _again(self, request: UpdateRequest) -> None:
        name = retry_name(request.uid, sweep=request.spec.sweep)
        draft = retry_draft(request, name)
        if request.spec.recorded_secret:
            # If the Secret is gone, the new request ends with that as its reason.
            with contextlib.suppress(NotFound):
                former = LABEL_RECORDED not in request.labels
                data = await self.requests.read_recorded(request.name, former=former)
                await self.requests.create_recorded(name, draft.labels, data)
        await self.requests.create(name, draft.labels, draft.spec)
        with contextlib.suppress(NotFound):
            await self.requests.annotate(request.name, {ANNOTATION_RETRIED: name})
