"""Does the work of failed requests again where somebody asks for it with an annotation.

The new request holds what was recorded of the trigger. The controller copies that itself, so that
nobody else has to be allowed to write it.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field

from reconciler.api.meta import ANNOTATION_RETRIED, LABEL_RECORDED
from reconciler.api.updaterequest import State, UpdateRequest
from reconciler.errors import ClusterError, NotFound
from reconciler.requests.background_drafts import retry_draft
from reconciler.requests.naming import retry_name
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.requests import Requests


@dataclass(slots=True, kw_only=True)
class Retries(WarnsOnce):
    """Knows the failed requests that somebody wants done again; only a leader runs it.

    Attributes:
        pause: Seconds until what could not be stored is tried again.
    """

    requests: Requests
    pause: float = 2.0
    _wanted: dict[str, UpdateRequest] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_stored(self, request: UpdateRequest) -> None:
        """Take in a request as it is stored."""
        failed = request.status.state is State.FAILED and not request.ended_by
        if failed and request.retry_requested and not request.retried:
            self._wanted[request.name] = request
            self._changed.set()
        else:
            self._wanted.pop(request.name, None)

    def on_deleted(self, request: UpdateRequest) -> None:
        """A request was deleted."""
        self._wanted.pop(request.name, None)

    async def run(self) -> None:
        """Store what is asked for until cancelled."""
        await repeat(self._settle_changed, woken=self._changed, at_once=False)

    async def _settle_changed(self) -> None:
        self._changed.clear()
        await self.settle()
        if self._wanted:
            await asyncio.sleep(self.pause)
            self._changed.set()

    async def settle(self) -> None:
        """Store a new request for each that is asked for; one that cannot be stays asked for."""
        problem = ""
        for request in list(self._wanted.values()):
            try:
                await self._again(request)
            except ClusterError as error:
                problem = f"{request.name} cannot be done again yet: {error}"
            else:
                self._wanted.pop(request.name, None)
        self.tell(problem)

    async def _again(self, request: UpdateRequest) -> None:
        name = retry_name(request.uid, sweep=request.spec.sweep)
        draft = retry_draft(request, name)
        if request.spec.recorded_secret:
            # Where it is gone the new request ends with that as its reason.
            with contextlib.suppress(NotFound):
                former = LABEL_RECORDED not in request.labels
                data = await self.requests.read_recorded(request.name, former=former)
                await self.requests.create_recorded(name, draft.labels, data)
        await self.requests.create(name, draft.labels, draft.spec)
        with contextlib.suppress(NotFound):
            await self.requests.annotate(request.name, {ANNOTATION_RETRIED: name})
