"""PolicyExceptions at the webhook server: validation and index updates."""

import asyncio
from dataclasses import dataclass

from admission.decide import AdmissionResponse
from admission.informers import Informer
from reconciler.api.meta import Object
from reconciler.clock import Clock, Deadline
from reconciler.dialects.registry import compile_exception
from reconciler.errors import InvalidPolicy
from reconciler.kube.watch import Watch
from reconciler.observe.logs import logger
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.catalog.exceptions import ExceptionIndex, ExceptionSettings, exception_key
from reconciler.services.ports.policies import Change

_INVALID = 422

_log = logger("admission.exceptions")


@dataclass(frozen=True, slots=True)
class ExceptionWebhook:
    """Answers the webhook calls for PolicyExceptions."""

    exception_settings: ExceptionSettings

    async def review(self, request: AdmissionRequest, _deadline: Deadline) -> AdmissionResponse:
        """Return whether an exception can be stored, with warnings for its author.

        An exception that is being deleted, or whose meaning is unchanged, is not validated.
        """
        stored = request.object
        if stored is None or (stored.get("metadata") or {}).get("deletionTimestamp"):
            return AdmissionResponse()
        if request.old_object is not None and _meaning(request.old_object) == _meaning(stored):
            return AdmissionResponse()
        try:
            compiled = await asyncio.to_thread(compile_exception, stored)
        except InvalidPolicy as error:
            return AdmissionResponse(
                allowed=False, code=_INVALID, message=f"{request.ref}: {error}"
            )
        objection = self.exception_settings.objection(request.namespace)
        return AdmissionResponse(
            warnings=(*((objection,) if objection else ()), *compiled.warnings)
        )


@dataclass(frozen=True, slots=True)
class ExceptionFeed:
    """Updates the exception index."""

    index: ExceptionIndex

    def informer(self, watch: Watch, clock: Clock) -> Informer:
        """Return the informer for the exceptions."""
        return Informer(
            name="policyexceptions",
            watch=watch,
            on_event=self.on_event,
            clock=clock,
            prepare=self.index.prepare,
        )

    def on_event(self, change: Change, obj: Object) -> None:
        """Apply one change."""
        taken = self.index.on_event(change, obj)
        if taken.problem:
            _log.warning("exception not honoured", key=exception_key(obj), reason=taken.problem)
        elif taken.policies:
            _log.info("exceptions changed", key=exception_key(obj), policies=taken.policies)


def _meaning(obj: Object) -> tuple[object, object]:
    return obj.get("spec"), (obj.get("metadata") or {}).get("annotations")
