"""The requests of hooks that wait, with what is stored of each: this process alone writes them."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from reconciler.api.meta import LABEL_RECORDED
from reconciler.api.updaterequest import RequestStatus, TargetStatus, UpdateRequest
from reconciler.clock import Clock
from reconciler.errors import Conflict, Invalid, NotFound
from reconciler.hooks.plan import Plan, parse_plan, render_plan
from reconciler.requests.lifecycle import FINAL, Disposition, Retention, advance
from reconciler.requests.naming import plan_name, recorded_name
from reconciler.services.ports.requests import Requests

_LARGEST: Final = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class HookRequests:
    """Reads and writes them.

    What is done of a plan is kept here as well: it may be further than what could be stored.

    Attributes:
        ended: Gets each request that has ended.
    """

    requests: Requests
    clock: Clock
    retention: Retention
    ended: Callable[[UpdateRequest], None]
    _known: dict[str, UpdateRequest] = field(default_factory=dict)
    _plans: dict[str, Plan] = field(default_factory=dict)

    async def load(self) -> list[UpdateRequest]:
        """Return all that wait, those of a process before this one."""
        self._known = {request.name: request async for request in self.requests.waiting()}
        self._plans.clear()
        return list(self._known.values())

    async def finished(self) -> AsyncIterator[UpdateRequest]:
        """Yield all that have ended, having them removed when their time has come."""
        async for request in self.requests.finished():
            self.ended(request)
            yield request

    def add(self, request: UpdateRequest) -> None:
        """Take in one that was stored just now."""
        self._known[request.name] = request

    def is_nudged(self, request: UpdateRequest) -> bool:
        """Take in one as a watch has it; tell whether somebody wants its next attempt now."""
        known = self._known.get(request.name)
        if known is None or known.nudge == request.nudge:
            return False
        self._known[request.name] = replace(known, nudge=request.nudge)
        return bool(request.nudge)

    def remove(self, name: str) -> None:
        """Take one out that somebody deleted."""
        self._known.pop(name, None)
        self._plans.pop(name, None)

    async def recorded(self, request: UpdateRequest) -> dict[str, Any]:
        """Return what a request holds.

        Raises:
            NotFound: It stood in a Secret, which is gone.
        """
        if not request.spec.recorded_secret:
            return dict(request.spec.recorded or {})
        found: dict[str, Any] = orjson.loads(await self.requests.read_recorded(request.name))
        return found

    async def recorded_or_nothing(self, request: UpdateRequest) -> dict[str, Any]:
        """Return what a request holds; nothing where it stood in a Secret, which is gone."""
        try:
            return await self.recorded(request)
        except NotFound:
            return {}

    async def end(
        self,
        name: str,
        disposition: Disposition,
        targets: tuple[TargetStatus, ...] | None = None,
    ) -> None:
        """Store how an attempt ended; one that somebody deleted has ended anyhow."""
        request = self._known.get(name)
        if request is None:
            return
        status = advance(
            request.status,
            disposition,
            now=self.clock.now(),
            retention=self.retention,
            targets=targets,
        )
        if status.state in FINAL:
            # Where the Secret of the plan is left, that has it removed with the request.
            status = replace(status, plan=None)
        confidential = bool(request.status.plan_secret)
        stored = await self._write(name, status)
        if stored is None or stored.status.state not in FINAL:
            return
        self.remove(name)
        if confidential:
            await self.requests.delete_recorded(plan_name(name))
        self.ended(stored)

    def planned_with(self, name: str) -> frozenset[str]:
        """Return the names of the requests that the plan of one is for; none without a plan."""
        request = self._known.get(name)
        if request is None or request.status.plan is None:
            return frozenset()
        return frozenset({name, *parse_plan(request.status.plan).covers})

    async def read_plan(self, name: str) -> Plan | None:
        """Return the plan that a request holds, with all open that is to be done; else None."""
        noted = self._plans.get(name)
        if noted is not None:
            return noted.reopened()
        request = self._known.get(name)
        if request is None or request.status.plan is None:
            return None
        plan = parse_plan(request.status.plan)
        if request.status.plan_secret:
            try:
                documents = orjson.loads(await self.requests.read_recorded(plan_name(name)))
            except NotFound:
                await self.drop_plan(name)
                return None
            steps = zip(plan.steps, documents, strict=True)
            plan = replace(plan, steps=tuple(replace(step, document=item) for step, item in steps))
        return plan.resumed()

    def note_plan(self, name: str, plan: Plan) -> None:
        """Keep what this process has done of a plan, whether or not it can be stored."""
        if name in self._known:
            self._plans[name] = plan

    async def store_plan(self, name: str, plan: Plan) -> None:
        """Store what a run is to do, and how far it is.

        Raises:
            Invalid: It is too large, or no JSON.
        """
        request = self._known.get(name)
        if request is None:
            return
        shown = plan
        if any(operation.is_confidential for operation in plan.operations()):
            if not request.status.plan_secret:
                marked = await self._put_aside(request, plan)
                if marked is None:
                    return
                request = marked
            shown = replace(plan, steps=tuple(replace(step, document={}) for step in plan.steps))
        rendered = render_plan(shown)
        if len(_encoded(rendered)) > _LARGEST:
            raise Invalid(
                f"the operations of one run have more than {_LARGEST >> 20} MiB: answer fewer"
            )
        stored = await self._write(name, replace(request.status, plan=rendered))
        if stored is None and request.status.plan_secret:
            await self.requests.delete_recorded(plan_name(name))
        self.note_plan(name, plan)

    async def drop_plan(self, name: str) -> None:
        """Have the hook run again at the next attempt."""
        request = self._known.get(name)
        if request is None:
            return
        if request.status.plan_secret:
            await self.requests.delete_recorded(plan_name(name))
        await self._write(name, replace(request.status, plan=None, plan_secret=""))
        self._plans.pop(name, None)

    async def _put_aside(self, request: UpdateRequest, plan: Plan) -> UpdateRequest | None:
        """Store the documents of a plan as a Secret; None: the request is gone.

        The request says so before, so that whoever removes it finds the Secret.
        """
        name = plan_name(request.name)
        documents = _encoded([step.document for step in plan.steps])
        status = replace(request.status, plan_secret=recorded_name(name))
        marked = await self._write(request.name, status)
        if marked is None:
            return None
        # What an attempt left that came to nothing would stay as it is.
        await self.requests.delete_recorded(name)
        marks = {**request.labels, LABEL_RECORDED: "true"}
        await self.requests.create_recorded(name, marks, documents)
        return marked

    async def _write(self, name: str, status: RequestStatus) -> UpdateRequest | None:
        """Write a status over whatever somebody has annotated meanwhile; None: it is gone."""
        try:
            try:
                stored = await self.requests.write_status(self._known[name], status)
            except Conflict:
                stored = await self.requests.get(name)
                stored = await self.requests.write_status(stored, status)
        except NotFound:
            self.remove(name)
            return None
        self._known[name] = stored
        return stored


def _encoded(operations: object) -> bytes:
    try:
        return orjson.dumps(operations)
    except orjson.JSONEncodeError as error:
        raise Invalid(f"the operations cannot be written as JSON: {error}") from error
