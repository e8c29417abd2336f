"""Events about what was changed before it was stored."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reconciler.engine.chain import StepResult
from reconciler.installation import REPLACING
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.catalog.settings.reading import MUTATED
from reconciler.services.ports.reporting import Event, Events


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationEvents:
    """Tells of rules that changed something, on their policies; many of one rule are one event.

    Attributes:
        reporter: Who says so; scripts of this API's users look for it.
        wants_success: Tells of an action whether anybody wants to know that it went well.
    """

    events: Events
    reporter: str = f"{REPLACING.reporter}-admission"
    wants_success: Callable[[str], bool]

    def changed(self, request: AdmissionRequest, results: Iterable[StepResult]) -> None:
        """Tell which rules changed an object."""
        if not self.wants_success(MUTATED):
            return
        ref = request.ref
        for result in results:
            policy = result.policy.as_object(result.program.origin.uid)
            self.events.emit(
                Event(
                    regarding={
                        "apiVersion": policy.api_version,
                        "kind": policy.kind,
                        "namespace": policy.namespace,
                        "name": policy.name,
                        "uid": policy.uid,
                    },
                    severity="Normal",
                    reason="PolicyApplied",
                    action=MUTATED,
                    note=f"rule {result.rule}: {ref} mutated",
                    group=result.rule,
                    reporter=self.reporter,
                )
            )
