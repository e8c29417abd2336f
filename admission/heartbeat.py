"""Tells the controller that a server was there all the time, or that triggers may be missing.

The servers that serve hold one Lease in turns. Who takes it without having seen the holder
before it alive cannot know whether there was one all the time, so it notes until when triggers
may be missing. So does a server that failed to record one.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.api.meta import ANNOTATION_MISSED
from reconciler.api.updaterequest import render_time
from reconciler.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.lease import Election, Timing, new_identity
from reconciler.kube.leases import ADMISSION_LEASE, KubeLeases
from reconciler.observe.logs import logger
from reconciler.observe.problems import tell_problems
from reconciler.services.jobs import WarnsOnce, repeat

_log = logger("admission.heartbeat")

_TIMING = Timing(duration=10.0, renew=8.0, retry=3.0)
_PAUSE = 2.0
_PATROL = 5.0


@dataclass(slots=True)
class Heartbeat:
    """Of one server; run it once that serves.

    Attributes:
        timing: A server that is killed is followed after so long.
    """

    client: Client
    clock: Clock
    namespace: str
    timing: Timing = _TIMING
    _missed: datetime | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def missed(self) -> None:
        """Triggers may be missing up to now."""
        self._missed = self.clock.now()
        self._changed.set()

    async def run(self) -> None:
        """Hold or wait for the Lease until cancelled, then give it back."""
        election = Election(
            self.client,
            self.clock,
            namespace=self.namespace,
            identity=new_identity(),
            name=ADMISSION_LEASE,
            timing=self.timing,
        )
        election.started.subscribe(lambda: None if election.witnessed else self.missed())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(election.run(), name="election")
            tasks.create_task(self._note(), name="missed triggers")
            reporting = tell_problems(
                lambda: election.problem,
                lambda text: _log.warning("cannot write the heartbeat", reason=text),
                every=_PATROL,
            )
            tasks.create_task(reporting, name="election problems")

    async def _note(self) -> None:
        def warn(reason: str) -> None:
            _log.warning("cannot record missed triggers", reason=reason)

        await repeat(
            self._note_missed,
            woken=self._changed,
            at_once=False,
            pauses=(_PAUSE, _PAUSE),
            tell=WarnsOnce(warn=warn).tell,
        )

    async def _note_missed(self) -> None:
        self._changed.clear()
        if self._missed is not None:
            notes = {ANNOTATION_MISSED: render_time(self._missed)}
            leases = KubeLeases(self.client, self.namespace)
            await leases.patch(ADMISSION_LEASE, {"metadata": {"annotations": notes}})
            # Many that are missed together are noted together.
            await asyncio.sleep(_PAUSE)
