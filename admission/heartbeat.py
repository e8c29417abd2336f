"""Records for the controller whether a server was always serving, or triggers may be missing.

The serving servers hold one Lease in turns. A server that acquires it without having seen the
previous holder renew cannot know whether one was serving all the time, so it records until when
triggers may be missing. So does a server that failed to record one.
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
from reconciler.observe.loops import run_loops
from reconciler.services.jobs import WarnsOnce, repeat

_log = logger("admission.heartbeat")

_TIMING = Timing(duration=10.0, renew=8.0, retry=3.0)
_PAUSE = 2.0


@dataclass(slots=True)
class Heartbeat:
    """The heartbeat of one server, to be run once it serves.

    Attributes:
        timing: Time-outs of the Lease, after which a killed server is replaced.
    """

    client: Client
    clock: Clock
    namespace: str
    timing: Timing = _TIMING
    _missed: datetime | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def missed(self) -> None:
        """Record that triggers may be missing up to now."""
        self._missed = self.clock.now()
        self._changed.set()

    async def run(self) -> None:
        """Hold or wait for the Lease until cancelled, then release it.

        Raises:
            Restored: The cluster was restored from a backup.
        """
        election = Election(
            self.client,
            self.clock,
            namespace=self.namespace,
            identity=new_identity(),
            name=ADMISSION_LEASE,
            timing=self.timing,
            warn=lambda text: _log.warning("cannot write the heartbeat", reason=text),
        )
        election.started.subscribe(lambda: None if election.witnessed else self.missed())
        unnoted = WarnsOnce(
            warn=lambda text: _log.warning("cannot record missed triggers", reason=text)
        )
        noting = repeat(
            self._note_missed,
            woken=self._changed,
            at_once=False,
            pauses=(_PAUSE, _PAUSE),
            tell=unnoted.tell,
        )
        await run_loops({"election": election.run(), "missed triggers": noting})

    async def _note_missed(self) -> None:
        self._changed.clear()
        if self._missed is not None:
            notes = {ANNOTATION_MISSED: render_time(self._missed)}
            leases = KubeLeases(self.client, self.namespace)
            await leases.patch(ADMISSION_LEASE, {"metadata": {"annotations": notes}})
            # Combines many missed triggers into one write.
            await asyncio.sleep(_PAUSE)
