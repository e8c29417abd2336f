"""Registration of hooks at the API server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from reconciler.clock import Clock
from reconciler.hooks.ports import HookRef
from reconciler.kube.client import Client
from reconciler.kube.definitions import KubeDefinitions
from reconciler.kube.watch import Watch
from reconciler.kube.webhooks import WEBHOOK_KINDS, WebhookConfigurations
from reconciler.services.hooks.accounts import HookAccounts
from reconciler.services.hooks.conversions import HookConversions
from reconciler.services.hooks.webhooks import HookWebhooks
from reconciler.services.ports.webhooks import Endpoint
from reconciler.wiring.answering import AnsweringHooks


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledHooks:
    """Registers hooks at the API server; the leader runs it."""

    webhooks: HookWebhooks
    conversions: HookConversions

    @classmethod
    def of(
        cls,
        client: Client,
        hooks: AnsweringHooks,
        *,
        namespace: str,
        name: str,
        endpoints: tuple[Callable[[], Endpoint], Callable[[], Endpoint]],
        complete: bool,
        warn: Callable[[str], None],
    ) -> Self:
        """Return the registration for the hooks of a program.

        Args:
            name: Name of the webhook configurations and of the ClusterRole that owns them.
            endpoints: Return the endpoints of the servers for admission and conversion.
            complete: No executable is refused.
        """
        admission, conversion = endpoints
        return cls(
            webhooks=HookWebhooks(
                webhooks=WebhookConfigurations(client, name),
                name=name,
                namespace=namespace,
                endpoint=admission,
                asked=hooks.asked,
                complete=complete,
                warn=warn,
            ),
            conversions=HookConversions(
                definitions=KubeDefinitions(client),
                namespace=namespace,
                endpoint=conversion,
                converters=hooks.converters,
                warn=warn,
            ),
        )

    def uncalled(self, hook: HookRef, key: str) -> str:
        """Return why the API server does not call a binding, by its key, or "" if it does."""
        keys = {item.binding.key for item in self.conversions.converters}
        return (self.conversions if key in keys else self.webhooks).problem(hook, key)

    def notify(self, accounts: HookAccounts) -> None:
        """Report problems of bindings to the statuses of their hooks."""

        def tell(hook: HookRef, key: str, problem: str) -> None:
            if (account := accounts.of(hook)) is not None:
                account.tell(key, "", problem)

        for keeper in (self.webhooks, self.conversions):
            keeper.assessed.subscribe(tell)

    def loops(self, client: Client, clock: Clock) -> dict[str, Awaitable[None]]:
        """Return the leader's loops for the registration."""
        found: dict[str, Awaitable[None]] = {"webhook configurations": self.webhooks.run()}
        if self.webhooks.asked:
            for kind in WEBHOOK_KINDS:
                watch = Watch(client, kind, clock, name=self.webhooks.name)
                found[f"watch of {kind.plural}"] = self._look_at(watch)
        if self.conversions.converters:
            found["definitions"] = self.conversions.run()
        return found

    async def _look_at(self, watch: Watch) -> None:
        """Restore the configurations at once after changes by other clients."""
        async for _ in watch.events():
            self.webhooks.look()
