"""All adapters of one cluster behind the ports of the use cases."""

from collections.abc import Callable

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


class KubeCluster:
    """One adapter per port, over one client, for a controller with these settings.

    Reads and writes of users' objects, which policies cause, use the account that users grant
    rights to, or the account that a policy names. Everything that the programs need for
    themselves uses their own account.
    """

    def __init__(
        self,
        client: Client,
        settings: ControllerSettings,
        clock: Clock,
        warn: Callable[[str], None],
    ) -> None:
        own, installation = settings.namespace, settings.installation
        worker = client.speaking_for(settings.background_user)
        self.kinds = KubeKinds(client, clock)
        self.reader = KubeReader(worker, page_bytes=settings.page_bytes)
        self.writer = KubeWriter(worker, clock)
        self.keys = KubeMergeKeys(client, clock, warn)
        optional = follow_optional(client, self.kinds, clock)
        self.policies = KubePolicies(client, optional, installation=installation)
        self.requests = KubeRequests.of(client, settings)
        self.webhooks = WebhookConfigurations(client, installation.owner)
        self.authority = KubeAuthority(client, own)
        self.checkpoint = KubeCheckpoint(KubeLeases(client, own))
        self.clock = ServerClock(client, clock)
        self.access = ProgramAccess(client, namespace=own, worker=settings.background_user)
