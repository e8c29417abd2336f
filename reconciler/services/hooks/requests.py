"""The requests of hooks that wait, with what is stored of each: this process alone writes them."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from reconciler.api.meta import LABEL_RECORDED
from reconciler.api.updaterequest import RequestStatus, TargetStatus, UpdateRequest
from reconciler.clock import Clock
from reconciler.errors import Conflict, Invalid, NotFound
from reconciler.hooks.plan import Plan, parse_plan, render_plan
from reconciler.requests.lifecycle import FINAL, Disposition, Retention, advance
from reconciler.requests.naming import recorded_name
from reconciler.services.ports.requests import Requests

_LARGEST: Final = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class HookRequests:
    """Reads and writes them.

    Attributes:
        ended: Gets each request that has ended.
    """

    requests: Requests
    clock: Clock
    retention: Retention
    ended: Callable[[UpdateRequest], None]
    _known: dict[str, UpdateRequest] = field(default_factory=dict)
    _former: set[str] = field(default_factory=set)

    async def load(self) -> list[UpdateRequest]:
        """Return all that wait, those of a process before this one."""
        self._known = {request.name: request async for request in self.requests.waiting()}
        self._former = set(self._known)
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
        self._former.discard(name)

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
            status = replace(status, plan=None, plan_secret="")
        confidential = bool(request.status.plan_secret)
        stored = await self._write(name, status)
        if stored is None or stored.status.state not in FINAL:
            return
        self.remove(name)
        if confidential:
            await self.requests.delete_recorded(_plan_of(name))
        self.ended(stored)

    def planned_with(self, name: str) -> frozenset[str]:
        """Return the names of the requests that the plan of one is for; none without a plan."""
        request = self._known.get(name)
        if request is None or request.status.plan is None:
            return frozenset()
        return frozenset({name, *parse_plan(request.status.plan).covers})

    async def read_plan(self, name: str) -> Plan | None:
        """Return the plan that a request holds, None where there is none."""
        request = self._known.get(name)
        if request is None or request.status.plan is None:
            return None
        plan = parse_plan(request.status.plan)
        if request.status.plan_secret:
            try:
                documents = orjson.loads(await self.requests.read_recorded(_plan_of(name)))
            except NotFound:
                await self.drop_plan(name)
                return None
            steps = zip(plan.steps, documents, strict=True)
            plan = replace(plan, steps=tuple(replace(step, document=item) for step, item in steps))
        if name not in self._former:
            return plan
        self._former.discard(name)
        return plan.resumed()

    async def store_plan(self, name: str, plan: Plan) -> None:
        """Store what a run is to do, and how far it is.

        Raises:
            Invalid: It is too large.
        """
        request = self._known.get(name)
        if request is None:
            return
        secret = request.status.plan_secret
        if any(operation.is_confidential for operation in plan.operations()):
            if not secret:
                secret = await self._put_aside(request, plan)
            plan = replace(plan, steps=tuple(replace(step, document={}) for step in plan.steps))
        rendered = render_plan(plan)
        if len(orjson.dumps(rendered)) > _LARGEST:
            raise Invalid(
                f"the operations of one run have more than {_LARGEST >> 20} MiB: answer fewer"
            )
        await self._write(name, replace(request.status, plan=rendered, plan_secret=secret))

    async def drop_plan(self, name: str) -> None:
        """Have the hook run again at the next attempt."""
        request = self._known.get(name)
        if request is None:
            return
        if request.status.plan_secret:
            await self.requests.delete_recorded(_plan_of(name))
        await self._write(name, replace(request.status, plan=None, plan_secret=""))

    async def _put_aside(self, request: UpdateRequest, plan: Plan) -> str:
        name = _plan_of(request.name)
        documents: Sequence[Any] = [step.document for step in plan.steps]
        # What an attempt left that came to nothing would stay as it is.
        await self.requests.delete_recorded(name)
        marks = {**request.labels, LABEL_RECORDED: "true"}
        await self.requests.create_recorded(name, marks, orjson.dumps(documents))
        return recorded_name(name)

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


def _plan_of(name: str) -> str:
    return f"{name}-plan"
