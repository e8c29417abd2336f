"""Changes that the settings exclude: admission is not called for them, or records nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.api.meta import FIELD_MANAGER, own_namespaces
from reconciler.engine.match import Subject
from reconciler.engine.match.selectors import compile_selector
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.services.catalog.protection import KUBE_SYSTEM
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.catalog.settings.filters import NODES
from reconciler.services.catchup.rules import why_lost

_KUBELET = "kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpScope:
    """The changes to search for under the current settings."""

    live: SettingsHolder

    @property
    def guessing(self) -> bool:
        """Return whether the settings exclude users whose changes cannot be recognised later."""
        return bool(self.live.current.filters.users - {NODES})

    @property
    def by_namespace(self) -> bool:
        """Return whether the settings select by the labels of namespaces."""
        return bool(self.live.current.webhooks.selectors.namespaces)

    def why_lost(self, policy: CompiledPolicy, program: Program) -> str:
        """Return why the lost triggers of a rule are not searched for, else empty."""
        if self.live.current.webhooks.conditions:
            return "only the API server evaluates the matchConditions of the settings"
        return why_lost(policy, program)

    def left_out(self, program: Program) -> frozenset[str]:
        """Return the field managers whose changes do not trigger the rule."""
        own = {FIELD_MANAGER} if program.skip_background else set[str]()
        nodes = {_KUBELET} if NODES in self.live.current.filters.users else set[str]()
        return frozenset(own | nodes)

    def holds(
        self, program: Program, subject: Subject, namespace_labels: Mapping[str, str]
    ) -> bool:
        """Return whether admission is called for changes of an object, and records them.

        Args:
            namespace_labels: The labels of its namespace, needed if `by_namespace` is true.
        """
        is_namespace = subject.kind == "Namespace" and not subject.group
        namespace = subject.name if is_namespace else subject.namespace
        never = own_namespaces(self.live.namespace) | {KUBE_SYSTEM}
        if namespace in never or self.live.leaves_trigger(program, subject):
            return False
        selectors = self.live.current.webhooks.selectors
        asked = subject.labels if is_namespace else namespace_labels
        return _selects(selectors.objects, subject.labels) and (
            not namespace or _selects(selectors.namespaces, asked)
        )


def _selects(selector: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    return not selector or compile_selector(selector, location="webhooks").accepts(labels)
