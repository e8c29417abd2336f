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

    What policies ask for, reads and writes of users' objects, goes in the name of the account
    that users grant rights to, or of the one that a policy names; what keeps the programs going
    goes in their own name.
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
        """Return the adapters that a controller with these settings uses."""
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
