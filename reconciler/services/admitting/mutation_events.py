"""Events about objects that rules changed before they were stored."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reconciler.engine.chain import StepResult
from reconciler.installation import REPLACING
from reconciler.requests.draft import AdmissionRequest
from reconciler.services.catalog.settings.reading import MUTATED
from reconciler.services.ports.reporting import Event, Events


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationEvents:
    """Emits an event on the policy of each rule that changed an object, aggregated by rule.

    Attributes:
        reporter: The reporting controller of the events; scripts of Kyverno's users filter by it.
        wants_success: Returns whether successes of an action are to be reported.
    """

    events: Events
    reporter: str = f"{REPLACING.reporter}-admission"
    wants_success: Callable[[str], bool]

    def changed(self, request: AdmissionRequest, results: Iterable[StepResult]) -> None:
        """Emit an event for each rule that changed an object."""
        if not self.wants_success(MUTATED):
            return
        ref = request.ref
        for result in results:
            policy = result.policy.as_object(result.program.origin.uid)
            self.events.emit(
                Event(
                    regarding=policy.reference,
                    severity="Normal",
                    reason="PolicyApplied",
                    action=MUTATED,
                    note=f"rule {result.rule}: {ref} mutated",
                    group=result.rule,
                    reporter=self.reporter,
                )
            )
