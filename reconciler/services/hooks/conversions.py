"""Writes CustomResourceDefinitions so that the API server has hooks convert their objects.

The setting stays when a hook is removed: without a conversion webhook the API server would only
rename the versions of objects, and lose the fields that the other version does not have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.errors import ClusterError, Conflict
from reconciler.hooks.ports import HookRef
from reconciler.services.hooks.answering import Converter
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.webhooks import Definitions, Endpoint
from reconciler.signals import Signal

_EVERY: Final = 15.0
_UNWRITTEN: Final = "its CustomResourceDefinition has not been updated yet"
_WEBHOOK: Final = "Webhook"


def path_of(definition: str) -> str:
    """Return the URL path at which objects of a definition are converted."""
    return f"/{definition}"


@dataclass(slots=True, kw_only=True)
class HookConversions:
    """Sets the conversion of CustomResourceDefinitions; only the leader does.

    Attributes:
        endpoint: Returns where the program is called; raises `NotInstalled` while that is unknown.
        assessed: Emits why a binding of a hook, by its key, is not called; empty if it is.
    """

    definitions: Definitions
    namespace: str
    endpoint: Callable[[], Endpoint]
    converters: Sequence[Converter]
    warn: Callable[[str], None]
    assessed: Signal[[HookRef, str, str]] = field(default_factory=Signal)
    _problems: dict[tuple[HookRef, str], str] = field(default_factory=dict)

    def problem(self, hook: HookRef, key: str) -> str:
        """Return why a binding is not called, empty if it is."""
        return self._problems.get((hook, key), f"{key}: {_UNWRITTEN}")

    async def run(self) -> None:
        """Reconcile periodically until cancelled."""
        await repeat(
            self.settle,
            every=_EVERY,
            pauses=(0.5, _EVERY),
            tell=WarnsOnce(warn=self.warn).tell,
            failing="cannot set the conversion of a CustomResourceDefinition: ",
        )

    async def settle(self) -> None:
        """Write the definitions that differ; a failure at one does not stop the others.

        Raises:
            ClusterError: The first failure.
        """
        errors: list[ClusterError] = []
        for name in dict.fromkeys(item.binding.crd for item in self.converters):
            problem = ""
            try:
                await self._keep(name)
            except ClusterError as error:
                errors.append(error)
                problem = str(error)
            self._assess(name, problem)
        if errors:
            raise errors[0]

    async def _keep(self, name: str) -> None:
        wanted = {
            "strategy": _WEBHOOK,
            "webhook": {
                "clientConfig": self.endpoint().client(self.namespace, path_of(name)),
                "conversionReviewVersions": ["v1"],
            },
        }
        stored = await self.definitions.conversion(name)
        if stored == wanted:
            return
        if other := self._other(stored):
            raise Conflict(
                f"CustomResourceDefinition {name} is already converted by {other}: remove that"
                " webhook, or set spec.conversion to {strategy: None}",
                status=409,
            )
        await self.definitions.convert_by(name, wanted)
        self.warn(f"CustomResourceDefinition {name} is converted by hooks now")

    def _other(self, stored: Mapping[str, Any]) -> str:
        """Return the foreign webhook that converts the objects, empty if there is none."""
        client = (stored.get("webhook") or {}).get("clientConfig") or {}
        service, url = client.get("service") or {}, str(client.get("url") or "")
        if stored.get("strategy") != _WEBHOOK:
            return ""
        if service.get("namespace") == self.namespace or (url and self.endpoint().url):
            return ""
        return url or f"Service {service.get('namespace')}/{service.get('name')}"

    def _assess(self, definition: str, problem: str) -> None:
        for item in self.converters:
            if item.binding.crd == definition:
                said = f"{item.binding.name}: {problem}" if problem else ""
                self._problems[item.hook.ref, item.binding.key] = said
                self.assessed.emit(item.hook.ref, item.binding.key, said)
