"""Records runs for due schedules; one that was missed without a leader runs once.

So does one that is due again before the run that is recorded for it has ended.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from reconciler.api.updaterequest import render_time
from reconciler.clock import Clock
from reconciler.hooks.bindings import ScheduleBinding
from reconciler.hooks.contexts import Context, of_schedule
from reconciler.hooks.crontab import parse_crontab
from reconciler.hooks.ports import HookRef
from reconciler.hooks.records import Record
from reconciler.services.hooks.active import ActiveHook
from reconciler.services.jobs import repeat

_EVERY: Final = 0.5


@dataclass(slots=True, kw_only=True)
class Schedules:
    """Records a run for each schedule that is due.

    Attributes:
        holds: Returns whether a stored request of a hook, in a queue, still has a context.
    """

    hooks: Mapping[HookRef, ActiveHook]
    clock: Clock
    holds: Callable[[ActiveHook, str, Context], bool]
    _due: dict[tuple[HookRef, int, str, str], datetime | None] = field(default_factory=dict)

    async def run(self) -> None:
        """Record due schedules until cancelled."""
        await repeat(self.look, every=_EVERY)

    async def look(self) -> None:
        """Record the schedules that are due now.

        One whose last run has not ended stays due, so that a blocked queue keeps one request of
        it, and a recorder that cannot store delays no other hook.
        """
        now = self.clock.now()
        known = dict(self._due)
        self._due.clear()
        for ref, hook in list(self.hooks.items()):
            for binding in hook.declared.config.schedules:
                key = (ref, hook.declared.generation, binding.name, binding.crontab)
                if key in known:
                    due = known[key]
                else:
                    due = _schedule(binding, hook.account.schedules[binding.name, binding.crontab])
                if due is not None and due <= now and not self._is_held(hook, binding):
                    self._record(hook, binding, due)
                    due = _schedule(binding, now)
                self._due[key] = due

    def _is_held(self, hook: ActiveHook, binding: ScheduleBinding) -> bool:
        context = of_schedule(binding)
        return hook.recorder.holds(context) or self.holds(hook, binding.queue, context)

    def _record(self, hook: ActiveHook, binding: ScheduleBinding, due: datetime) -> None:
        record = Record(
            context=of_schedule(binding),
            queue=binding.queue,
            allow_failure=binding.allow_failure,
            scope=binding.crontab,
            at=render_time(due),
            resource=hook.declared.ref.as_object(hook.declared.uid),
        )
        hook.recorder.put(record)


def _schedule(binding: ScheduleBinding, after: datetime) -> datetime | None:
    return parse_crontab(binding.crontab, location="crontab").next(after)
