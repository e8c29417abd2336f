"""The waiting requests of hooks, as stored; no other process writes them."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from reconciler.api.meta import LABEL_RECORDED
from reconciler.api.updaterequest import RequestStatus, TargetStatus, UpdateRequest
from reconciler.clock import Clock
from reconciler.errors import Conflict, Invalid, InvalidPolicy, NotFound
from reconciler.hooks.plan import Plan, encode, parse_plan, render_plan
from reconciler.hooks.values import stored_size
from reconciler.requests.lifecycle import FINAL, Disposition, Retention, advance
from reconciler.requests.naming import plan_name, recorded_name
from reconciler.services.ports.requests import Requests

_LARGEST: Final = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class HookRequests:
    """Reads and writes the requests of hooks.

    The progress of plans is kept here as well, because it may be ahead of what could be stored.
    """

    requests: Requests
    clock: Clock
    retention: Retention
    ended: Callable[[UpdateRequest], None]
    _known: dict[str, UpdateRequest] = field(default_factory=dict)
    _plans: dict[str, Plan] = field(default_factory=dict)

    async def load(self) -> list[UpdateRequest]:
        """Return all waiting requests, including those of an earlier process."""
        self._known = {request.name: request async for request in self.requests.waiting()}
        self._plans.clear()
        return list(self._known.values())

    async def finished(self) -> AsyncIterator[UpdateRequest]:
        """Yield all finished requests, and schedule their removal."""
        async for request in self.requests.finished():
            self.ended(request)
            yield request

    def add(self, request: UpdateRequest) -> None:
        """Add a request that has just been stored."""
        self._known[request.name] = request

    def is_nudged(self, request: UpdateRequest) -> bool:
        """Return whether an update of a request asks for its next attempt now."""
        known = self._known.get(request.name)
        if known is None or known.nudge == request.nudge:
            return False
        self._known[request.name] = replace(known, nudge=request.nudge)
        return bool(request.nudge)

    def knows(self, name: str) -> bool:
        """Return whether a request waits, so was neither deleted nor has ended."""
        return name in self._known

    def remove(self, name: str) -> None:
        """Forget a request that was deleted or has ended."""
        self._known.pop(name, None)
        self._plans.pop(name, None)

    async def recorded(self, request: UpdateRequest) -> dict[str, Any]:
        """Return the recorded data of a request.

        Raises:
            NotFound: The Secret that held it is gone.
        """
        if not request.spec.recorded_secret:
            return dict(request.spec.recorded or {})
        found: dict[str, Any] = orjson.loads(await self.requests.read_recorded(request.name))
        return found

    async def recorded_or_nothing(self, request: UpdateRequest) -> dict[str, Any]:
        """Return the recorded data of a request; nothing if the Secret that held it is gone."""
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
        """Store how an attempt ended; do nothing if the request was deleted."""
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
            # plan_secret stays set: should deleting the Secret fail, it goes with the request.
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
        """Return the names of the requests that share the plan of one; none without a plan."""
        request = self._known.get(name)
        if request is None or request.status.plan is None:
            return frozenset()
        return frozenset({name, *parse_plan(request.status.plan).covers})

    async def read_plan(self, name: str) -> Plan | None:
        """Return the plan of a request with its steps to do open; None without a usable plan."""
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
        try:
            return plan.resumed()
        except InvalidPolicy:
            # Stored by an earlier version, without the nulls of its operations.
            await self.drop_plan(name)
            return None

    def note_plan(self, name: str, plan: Plan) -> None:
        """Keep the progress of this process in a plan, whether or not it can be stored."""
        if name in self._known:
            self._plans[name] = plan

    async def store_plan(self, name: str, plan: Plan) -> None:
        """Store the plan of a run and its progress.

        Raises:
            Invalid: It is too large or not JSON.
        """
        request = self._known.get(name)
        if request is None:
            return
        shown = plan
        # Outcomes make it larger, and must not end a run that has begun.
        if request.status.plan is None and len(_documents(plan)) > _LARGEST:
            raise Invalid(
                f"the operations of one run are larger than {_LARGEST >> 20} MiB: return fewer"
            )
        if _stands_apart(request, plan):
            if not request.status.plan_secret:
                marked = await self._put_aside(request, plan)
                if marked is None:
                    return
                request = marked
            shown = replace(plan, steps=tuple(replace(step, document={}) for step in plan.steps))
        stored = await self._write(name, replace(request.status, plan=render_plan(shown)))
        if stored is None and request.status.plan_secret:
            await self.requests.delete_recorded(plan_name(name))
        self.note_plan(name, plan)

    async def drop_plan(self, name: str) -> None:
        """Delete the plan of a request, so that the next attempt runs the hook again."""
        request = self._known.get(name)
        if request is None:
            return
        if request.status.plan_secret:
            await self.requests.delete_recorded(plan_name(name))
        await self._write(name, replace(request.status, plan=None, plan_secret=""))
        self._plans.pop(name, None)

    async def _put_aside(self, request: UpdateRequest, plan: Plan) -> UpdateRequest | None:
        """Store the documents of a plan in a Secret; return None if the request is gone.

        The status names the Secret first, so that the removal of the request finds it.
        """
        name = plan_name(request.name)
        status = replace(request.status, plan_secret=recorded_name(name))
        marked = await self._write(request.name, status)
        if marked is None:
            return None
        # A Secret left by a failed attempt would not be overwritten.
        await self.requests.delete_recorded(name)
        marks = {**request.labels, LABEL_RECORDED: "true"}
        await self.requests.create_recorded(name, marks, _documents(plan))
        return marked

    async def _write(self, name: str, status: RequestStatus) -> UpdateRequest | None:
        """Write a status despite concurrent annotations; return None if the request is gone."""
        known = self._known.get(name)
        if known is None:
            return None
        try:
            try:
                stored = await self.requests.write_status(known, status)
            except Conflict:
                stored = await self.requests.get(name)
                stored = await self.requests.write_status(stored, status)
        except NotFound:
            self.remove(name)
            return None
        if name in self._known:
            self._known[name] = stored
        return stored


def _stands_apart(request: UpdateRequest, plan: Plan) -> bool:
    """Return whether a Secret holds the documents of a plan.

    It does if they are confidential, or too large beside what the request itself holds.
    """
    if request.status.plan_secret:
        return True
    if any(operation.is_confidential for operation in plan.operations()):
        return True
    both = [render_plan(plan), request.spec.recorded]
    return request.status.plan is None and stored_size(encode(both)) > _LARGEST


def _documents(plan: Plan) -> bytes:
    return encode([step.document for step in plan.steps])
