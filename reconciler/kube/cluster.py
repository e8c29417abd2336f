"""All adapters of one cluster behind the ports of the use cases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.kube.access import ProgramAccess
from reconciler.kube.authority import KubeAuthority
from reconciler.kube.client import Client
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.leases import KubeCheckpoint, KubeLeases
from reconciler.kube.mergekeys import KubeMergeKeys
from reconciler.kube.policies import KubePolicies, follow_optional
from reconciler.kube.reader import KubeReader
from reconciler.kube.requests import KubeRequests
from reconciler.kube.servertime import ServerClock
from reconciler.kube.webhooks import WebhookConfigurations
from reconciler.kube.writer import KubeWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeCluster:
    """One adapter per port, over one client.

    Reads and writes of users' objects, which policies cause, use the account that users grant
    rights to, or the account that a policy names. Everything that the programs need for
    themselves uses their own account.
    """

    kinds: KubeKinds
    reader: KubeReader
    writer: KubeWriter
    keys: KubeMergeKeys
    policies: KubePolicies
    requests: KubeRequests
    webhooks: WebhookConfigurations
    authority: KubeAuthority
    checkpoint: KubeCheckpoint
    clock: ServerClock
    access: ProgramAccess

    @classmethod
    def of(
        cls,
        client: Client,
        settings: ControllerSettings,
        clock: Clock,
        warn: Callable[[str], None],
    ) -> Self:
        """Return the adapters for a controller with these settings."""
        worker = client.speaking_for(settings.background_user)
        kinds = KubeKinds(client, clock)
        return cls(
            kinds=kinds,
            reader=KubeReader(worker, page_bytes=settings.page_bytes),
            writer=KubeWriter(worker, clock),
            keys=KubeMergeKeys(client, clock, warn),
            policies=KubePolicies(
                client, follow_optional(client, kinds, clock), installation=settings.installation
            ),
            requests=KubeRequests.of(client, settings),
            webhooks=WebhookConfigurations(client, settings.installation.owner),
            authority=KubeAuthority(client, settings.namespace),
            checkpoint=KubeCheckpoint(KubeLeases(client, settings.namespace)),
            clock=ServerClock(client, clock),
            access=ProgramAccess(
                client, namespace=settings.namespace, worker=settings.background_user
            ),
        )
