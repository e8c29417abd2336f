"""The bindings of a hook across successive states of a cluster."""

from typing import Any

from reconciler.cli.desk.file_objects import FileObjects
from reconciler.cli.desk.hooks.bindings import DeskBindings
from reconciler.hooks import contexts
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.contexts import STARTUP, Context
from reconciler.hooks.monitor import Monitor
from reconciler.services.ports.jq import Jq


class HookStage:
    """Computes binding contexts as a cluster changes; the hook starts with the first state."""

    def __init__(self, config: HookConfig, jq: Jq) -> None:
        self._config = config
        self._jq = jq
        self._monitors = [Monitor(binding) for binding in config.kubernetes]
        self._started = False

    async def change(self, file_objects: FileObjects) -> list[dict[str, Any]]:
        """Return the binding contexts of a hook when the cluster changes to a new state.

        Raises:
            EvaluationError: The jq filter of a binding fails for an object.
        """
        desk = DeskBindings(self._config, self._jq, file_objects)
        found: list[Context] = []
        if not self._started and self._config.startup is not None:
            found.append(STARTUP)
        for monitor in self._monitors:
            changes = monitor.replace(await desk.seen(monitor.binding))
            if self._started:
                found += [contexts.of_change(monitor.binding, change) for change in changes]
            elif first := contexts.of_synchronization(monitor.binding):
                found.append(first)
        self._started = True
        return self._rendered(found)

    def tick(self, crontab: str) -> list[dict[str, Any]]:
        """Return the binding contexts for the schedules with a crontab that is due."""
        due = [item for item in self._config.schedules if item.crontab == crontab]
        return self._rendered([contexts.of_schedule(item) for item in due])

    def _rendered(self, found: list[Context]) -> list[dict[str, Any]]:
        shown = {monitor.binding.name: monitor for monitor in self._monitors}
        return contexts.render(found, lambda name: shown[name].snapshot())
