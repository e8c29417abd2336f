"""Webhook configurations and a CA in memory."""

from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import Object
from reconciler.clock import Clock
from reconciler.errors import AlreadyExists, Conflict, Invalid
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.ports.leases import AdmissionHeartbeat, Checkpoint
from reconciler.services.ports.objects import Kinds
from reconciler.services.ports.webhooks import ConfigurationRef, Endpoint, Webhooks, ref_of
from reconciler.services.rollout.in_force import InForce
from reconciler.services.rollout.rollout import Rollout
from reconciler.services.rollout.webhook_config import RESOURCE_CONFIGURATION, WebhookConfig
from reconciler.services.rollout.webhook_writer import WebhookWriter
from tests.unit.rights import Account
from tests.unit.services.conftest import World

OWNER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "name": "ours",
    "uid": "1",
}


class Configurations:
    """Webhook configurations with resource versions, which records its calls in `log`.

    Attributes:
        refuses: Texts that no configuration may contain.
    """

    def __init__(self, log: list[str]) -> None:
        self.stored: dict[ConfigurationRef, Object] = {}
        self.log = log
        self.versions = 0
        self.reference = OWNER
        self.refuses: set[str] = set()

    async def get(self, ref: ConfigurationRef) -> Object | None:
        return self.stored.get(ref)

    async def create(self, configuration: Object) -> Object:
        ref = ref_of(configuration)
        if ref in self.stored:
            raise AlreadyExists(str(ref), status=409)
        return self.store(configuration)

    async def replace(self, configuration: Object) -> Object:
        meta = configuration["metadata"]
        if (
            meta["resourceVersion"]
            != self.stored[ref_of(configuration)]["metadata"]["resourceVersion"]
        ):
            raise Conflict(meta["name"], status=409)
        return self.store(configuration)

    async def delete(self, ref: ConfigurationRef) -> None:
        self.log.append(f"delete {ref}")
        self.stored.pop(ref, None)

    async def check(self, configuration: Object) -> None:
        self._check(configuration)

    async def owner(self) -> Object:
        return self.reference

    def edit(self, ref: ConfigurationRef, **fields: Any) -> None:
        """Change a configuration as another field manager does."""
        self.versions += 1
        old = self.stored[ref]
        meta = {
            **old["metadata"],
            "resourceVersion": str(self.versions),
            "managedFields": [
                {"manager": "kubectl-edit", "time": "2026-06-01T12:00:00Z"},
                {"manager": "kube-retrofit", "time": "2026-06-01T13:00:00Z"},
            ],
        }
        self.stored[ref] = {**old, "metadata": meta, **fields}

    def kinds(self) -> set[str]:
        return {
            resource
            for webhook in self.stored[RESOURCE_CONFIGURATION]["webhooks"]
            for rule in webhook["rules"]
            for resource in rule["resources"]
        }

    def _check(self, configuration: Object) -> None:
        for text in self.refuses:
            if text in str(configuration):
                msg = f"webhooks[0].matchConditions[0].expression: {text}"
                raise Invalid(msg, status=422)

    def store(self, configuration: Object) -> Object:
        self._check(configuration)
        self.versions += 1
        meta = {**configuration["metadata"], "resourceVersion": str(self.versions)}
        ref = ref_of(configuration)
        self.log.append(f"configuration {ref}")
        self.stored[ref] = {**configuration, "metadata": meta}
        return self.stored[ref]


@dataclass
class MemoryCheckpoint:
    """A checkpoint and the heartbeat of the admission servers, in memory."""

    current: Checkpoint = field(default_factory=Checkpoint)
    last: AdmissionHeartbeat = field(default_factory=AdmissionHeartbeat)

    async def load(self) -> Checkpoint:
        return self.current

    async def store(self, checkpoint: Checkpoint) -> None:
        self.current = checkpoint

    async def heartbeat(self) -> AdmissionHeartbeat:
        return self.last


@dataclass
class Authority:
    bundle: bytes | None = b"certificate"

    async def restore(self) -> None:
        """Do nothing: no Lease is deleted."""

    async def ca_bundle(self) -> bytes | None:
        return self.bundle


@dataclass
class Registry:
    """The cluster port of the webhook writer, in memory."""

    kinds: Kinds
    webhooks: Webhooks
    access: Account
    clock: Clock
    authority: Authority = field(default_factory=Authority)
    checkpoint: MemoryCheckpoint = field(default_factory=MemoryCheckpoint)


def new_webhook_writer(
    world: World,
    *,
    log: list[str] | None = None,
    kinds: Kinds | None = None,
    webhooks: Webhooks | None = None,
    checkpoint: MemoryCheckpoint | None = None,
    access: Account | None = None,
) -> WebhookWriter:
    """Return a writer of the webhook configurations of a world."""
    return WebhookWriter(
        cluster=Registry(
            kinds=kinds or world.cluster,
            webhooks=webhooks or Configurations([] if log is None else log),
            access=access or Account(),
            clock=world.clock,
            checkpoint=checkpoint or MemoryCheckpoint(),
        ),
        in_force=InForce(clock=world.clock),
        base=WebhookConfig(
            endpoint=Endpoint(service="svc", ca_bundle=b""),
            namespace="kyverno",
            controller_users=("system:serviceaccount:kyverno:bg",),
            timeout=10.0,
        ),
        margin=0.0,
        live=SettingsHolder.of("kyverno"),
    )


def new_rollout(world: World, webhooks: Webhooks | None = None) -> Rollout:
    """Return a rollout of the policies of a world that reports no warnings or caveats."""
    return Rollout(
        index=world.index,
        policies=world.policies,
        requests=world.requests,
        webhook_writer=new_webhook_writer(world, webhooks=webhooks),
        warn=lambda _text: None,
        on_caveat=lambda _policy, _caveat: None,
    )
