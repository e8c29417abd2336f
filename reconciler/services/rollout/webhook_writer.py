"""The writer of the webhook configurations that the policies and the settings require.

A configuration that was edited or deleted is restored: at once, or every two seconds if another
program keeps undoing it. The API server called no webhook for objects that were stored in between,
so each such time becomes an outage that catch-up searches for lost triggers. After the owner of
the configurations is deleted they are not restored, because kube-retrofit is being uninstalled.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, Self

from reconciler.api.meta import FIELD_MANAGER, Kind, Object, PolicyRef, resource_version
from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.engine.match import KindSelector
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import AlreadyExists, Conflict, Invalid, NotInstalled
from reconciler.requests.pace import Bucket, Pace
from reconciler.services.catalog.configurations import Written, is_in_step
from reconciler.services.catalog.lone_rules import LoneRules
from reconciler.services.catalog.settings import Fault, SettingsHolder, WebhookSettings
from reconciler.services.ports.access import Accesses
from reconciler.services.ports.leases import CatchUpCheckpoint
from reconciler.services.ports.objects import Kinds
from reconciler.services.ports.webhooks import (
    Authority,
    ConfigurationRef,
    Endpoint,
    Webhooks,
    ref_of,
)
from reconciler.services.rollout.in_force import InForce
from reconciler.services.rollout.outages import Cause
from reconciler.services.rollout.own_sweeps import lone_rules
from reconciler.services.rollout.webhook_config import (
    ConfigurationRefs,
    WebhookConfig,
    configurations,
    refs_of,
    silent,
)
from reconciler.services.rollout.webhook_rules import lookup, selectors
from reconciler.signals import Signal

_PACE = Pace(interval=2.0, burst=10)
"""How often configurations are restored."""
_UNUSED = Bucket.full(_PACE, 0.0)
_CONDITIONS_PLACE = "spec.webhookConfiguration.matchConditions"
_KEYS = {
    "selectors": "webhooks",
    "conditions": "matchConditions",
    "annotations": "webhookAnnotations",
    "labels": "webhookLabels",
}
"""The key of the ConfigMap for each setting."""


class Registry(Protocol):
    """The parts of the cluster that webhook configurations are made from and stored in."""

    @property
    def clock(self) -> Clock:
        """Return the clock of the API server."""

    @property
    def kinds(self) -> Kinds:
        """Return the kinds that discovery finds."""

    @property
    def webhooks(self) -> Webhooks:
        """Return access to the stored configurations."""

    @property
    def authority(self) -> Authority:
        """Return the certificate authority."""

    @property
    def checkpoint(self) -> CatchUpCheckpoint:
        """Return the store of the catch-up checkpoint."""

    @property
    def access(self) -> Accesses:
        """Return the access checks for the accounts that policies name."""


@dataclass(slots=True, kw_only=True)
class WebhookWriter:
    """Writes the webhook configurations; used by the leader only.

    Attributes:
        base: The parameters of the webhooks, without CA, owner and settings of the cluster.
        margin: Seconds until the API servers use a newly stored configuration.
        lone_rules: Receives the rules whose writes the webhooks exclude.
        restored: Emits the configuration that is being restored, and why.
    """

    cluster: Registry
    base: WebhookConfig
    margin: float
    live: SettingsHolder
    in_force: InForce
    lone_rules: LoneRules = field(default_factory=LoneRules)
    restored: Signal[[ConfigurationRef, str]] = field(default_factory=Signal)
    _written: dict[ConfigurationRef, Written] = field(default_factory=dict)
    _accepted: WebhookSettings = field(default_factory=WebhookSettings)
    _refused: dict[PolicyRef, tuple[CompiledPolicy, str]] = field(default_factory=dict)
    _owner: Mapping[str, Any] | None = None
    _owner_asked: bool = False
    _restorations: Bucket = _UNUSED

    @classmethod
    def of(
        cls,
        cluster: Registry,
        settings: ControllerSettings,
        live: SettingsHolder,
        lone_rules: LoneRules,
    ) -> Self:
        """Return the writer of a controller with these settings."""
        base = WebhookConfig(
            endpoint=Endpoint(url=settings.webhook_url, service=settings.service, ca_bundle=b""),
            namespace=settings.namespace,
            controller_users=settings.controller_users,
            timeout=settings.webhook_timeout,
            forces_ignore=settings.force_failure_policy_ignore,
            installation=settings.installation,
        )
        return cls(
            cluster=cluster,
            base=base,
            margin=settings.ready_margin,
            live=live,
            in_force=InForce(clock=cluster.clock),
            lone_rules=lone_rules,
        )

    @property
    def refs(self) -> ConfigurationRefs:
        """Return the references of the configurations that it writes."""
        return refs_of(self.base.installation)

    def is_own(self, configuration: Object) -> bool:
        """Return whether a configuration is the version that this process last wrote."""
        written = self._written.get(ref_of(configuration))
        known = "" if written is None else resource_version(written.stored)
        return bool(known) and known == resource_version(configuration)

    async def register(
        self,
        policies: Sequence[CompiledPolicy],
        stored: Iterable[Object] = (),
        kinds: Sequence[Kind] | None = None,
    ) -> Mapping[PolicyRef, str]:
        """Store the webhook configurations for the policies; return when they are in force.

        A policy whose match conditions the API server refuses is left out. Refused settings are
        replaced by the last accepted ones. A restored configuration is in force only after it
        has stayed unchanged for a while, see `in_force`.

        Args:
            policies: All policies that can act.
            stored: All stored policy objects, also those that cannot act.
            kinds: The kinds of policies to validate, see `WebhookConfig.policy_kinds`.

        Returns:
            For each policy that is left out, why.
        """
        if not self.in_force.recalled:
            self.in_force.recall(await self.cluster.checkpoint.load(), stored)
        known, asked_at = {item.ref for item in policies}, self.cluster.clock.now()
        bundle = await self.cluster.authority.ca_bundle()
        if bundle is None:
            msg = "the webhook has no CA yet: start retrofit-admission, which creates it"
            self.in_force.lose(Cause.AUTHORITY, msg)
            raise NotInstalled(msg)
        await self._look_for_owner()
        self._refused = {ref: self._refused[ref] for ref in self._refused if ref in known}
        while True:
            config = replace(self._config(bundle), policy_kinds=kinds)
            good = [item for item in policies if not self._is_refused(item)]
            resolved = self.in_force.resolve(good, await self._served(good))
            lone = lone_rules(good, resolved)
            await self.lone_rules.clear(lone)
            try:
                changed = await self._store(configurations(good, resolved, config))
            except Invalid:
                if not await self._sort_out(good, config):
                    raise
                continue
            self._accepted = config.settings
            if changed and not self.in_force.settling:
                # The API servers receive a new configuration through their own watch.
                await asyncio.sleep(self.margin)
            self.in_force.settle(asked_at, good)
            self.lone_rules.learn(lone)
            return {item.ref: self._refused[item.ref][1] for item in policies if item not in good}

    async def stand_by(self) -> None:
        """Store configurations without webhooks."""
        await self._look_for_owner()
        self.in_force.stand_by()
        await self._store(silent(self._config(b"")))
        self.in_force.stand_by()

    async def withdraw(self) -> None:
        """Delete the configurations, because the programs are being uninstalled."""
        msg = (
            f"the namespace {self.base.namespace} of kube-retrofit is being deleted: nothing is"
            " recorded until it is installed again"
        )
        self.in_force.lose(Cause.UNINSTALLING, msg)
        for ref in self.refs:
            await self.cluster.webhooks.delete(ref)
        self._written.clear()
        self.in_force.withdrawn()

    async def _look_for_owner(self) -> None:
        if not self._owner_asked:
            self._owner = await self.cluster.webhooks.owner()
            self._owner_asked = True

    def _config(self, bundle: bytes) -> WebhookConfig:
        return replace(
            self.base,
            endpoint=replace(self.base.endpoint, ca_bundle=bundle),
            settings=self.live.current.webhooks,
            owner=self._owner,
        )

    async def _served(
        self, policies: Sequence[CompiledPolicy]
    ) -> dict[KindSelector, tuple[Kind, ...]]:
        return {
            selector: await self.cluster.kinds.find(*lookup(selector))
            for selector in selectors(policies)
        }

    async def _store(self, bodies: Mapping[ConfigurationRef, Object]) -> bool:
        return any([await self._put(ref, body) for ref, body in bodies.items()])

    async def _put(self, ref: ConfigurationRef, body: Object) -> bool:
        asked_at = self.cluster.clock.now()
        live, written = await self.cluster.webhooks.get(ref), self._written.get(ref)
        untouched = self._is_untouched(ref, live, asked_at)
        if live is not None and is_in_step(live, body, written):
            self._keep(ref, body, live)
            if not untouched and ref == self.refs.resource:
                self.in_force.doubt()
            return False
        if not untouched:
            self._lose(ref, live)
        if ref == self.refs.mutating and written is None and body["webhooks"]:
            self.in_force.doubt_changing()
        body = await self._owned(body)
        if not untouched or (written is not None and written.body == body):
            self._restore(ref, live)
        stored = await self._write(live, body)
        self._keep(ref, body, stored)
        if not untouched:
            self.in_force.restored(self.margin)
        return True

    def _is_untouched(
        self, ref: ConfigurationRef, live: Object | None, asked_at: datetime
    ) -> bool:
        """Return whether no other client wrote a configuration that policies depend on."""
        version = "" if live is None else resource_version(live)
        if ref == self.refs.resource:
            return self.in_force.is_untouched(version, asked_at)
        written = self._written.get(ref)
        return (
            ref != self.refs.mutating
            or written is None
            or resource_version(written.stored) == version
        )

    def _lose(self, ref: ConfigurationRef, live: Object | None) -> None:
        """Record that another client deleted or changed a configuration."""
        happened = f"the {ref} {_what_happened(live)}: it is being restored"
        cause = Cause.MISSING if live is None else Cause.CHANGED
        if ref == self.refs.resource:
            rest = "triggers that were missed are searched for"
            self.in_force.lose(cause, f"{happened}, and {rest}")
        else:
            rest = "objects written in the meantime are not changed"
            self.in_force.stop_changing(cause, f"{happened}, and {rest}")

    def _keep(self, ref: ConfigurationRef, body: Object, stored: Object) -> None:
        self._written[ref] = Written(body=body, stored=stored)
        if ref == self.refs.resource:
            self.in_force.written(resource_version(stored))

    async def _write(self, live: Object | None, body: Object) -> Object:
        if live is not None:
            meta = {**body["metadata"], "resourceVersion": resource_version(live)}
            return await self.cluster.webhooks.replace({**body, "metadata": meta})
        try:
            return await self.cluster.webhooks.create(body)
        except AlreadyExists as error:
            raise Conflict(
                f"{ref_of(body)} was created by another client in the meantime", status=409
            ) from error

    async def _owned(self, body: Object) -> Object:
        """Return a configuration with its current owner.

        Raises:
            NotInstalled: The owner no longer exists.
        """
        owner = await self.cluster.webhooks.owner()
        if owner is None and self._owner is not None:
            raise NotInstalled(
                f"{self._owner['kind']} {self._owner['name']} is gone: kube-retrofit is being"
                " uninstalled, so the webhook configurations are not made again"
            )
        self._owner = owner
        if owner is None:
            return body
        return {**body, "metadata": {**body["metadata"], "ownerReferences": [dict(owner)]}}

    def _restore(self, ref: ConfigurationRef, live: Object | None) -> None:
        """Report a restoration.

        Raises:
            Conflict: There were too many restorations; this one has to wait.
        """
        now = self.cluster.clock.monotonic()
        what = _what_happened(live)
        if (wait := self._restorations.ready_at(_PACE, now) - now) > 0:
            msg = (
                f"{ref} {what} again and again: it is restored every {_PACE.interval:g} seconds;"
                " find out which program undoes it"
            )
            raise Conflict(msg, status=409, retry_after=wait)
        self._restorations = self._restorations.take(_PACE, now)
        self.restored.emit(ref, f"it {what}")

    def _is_refused(self, policy: CompiledPolicy) -> bool:
        known = self._refused.get(policy.ref)
        return known is not None and known[0] is policy

    async def _sort_out(self, policies: Sequence[CompiledPolicy], config: WebhookConfig) -> bool:
        """Find what the API server refuses and exclude it; return whether anything was found."""
        bare = replace(self.base, endpoint=config.endpoint, forces_ignore=False)
        found = False
        for policy in policies:
            if policy.match_conditions:
                refusal = await self._refusal([policy], bare)
                if refusal:
                    self._refused[policy.ref] = policy, f"{_CONDITIONS_PLACE}: {refusal}"
                    found = True
        return found or await self._sort_out_settings(policies, config)

    async def _sort_out_settings(
        self, policies: Sequence[CompiledPolicy], config: WebhookConfig
    ) -> bool:
        """Replace each setting that is refused by its last accepted value, or by none.

        An accepted value may be wrong as well: without webhooks no condition is checked.
        """
        kept, faults = WebhookSettings(), list[Fault]()
        if await self._refusal(policies, replace(config, settings=kept)):
            return False
        for name, key in _KEYS.items():
            wanted, before = getattr(config.settings, name), getattr(self._accepted, name)
            tried = replace(kept, **{name: wanted})
            if refusal := await self._refusal(policies, replace(config, settings=tried)):
                message = f"the API server refuses it ({refusal}): correct the value"
                faults.append(Fault(key=key, message=message))
                tried = replace(kept, **{name: before})
                if await self._refusal(policies, replace(config, settings=tried)):
                    continue
            kept = tried
        if faults:
            self.live.refuse_webhooks(kept, faults)
        return bool(faults)

    async def _refusal(self, policies: Sequence[CompiledPolicy], config: WebhookConfig) -> str:
        """Return why the API server refuses the configurations of policies, or an empty text."""
        bodies = configurations(policies, await self._served(policies), config)
        try:
            for ref in (self.refs.resource, self.refs.mutating):
                await self.cluster.webhooks.check(bodies[ref])
        except Invalid as refusal:
            return str(refusal)
        return ""


def _what_happened(live: Object | None) -> str:
    return "was deleted" if live is None else f"was changed by {_last_manager(live)}"


def _last_manager(live: Object) -> str:
    entries = (live.get("metadata") or {}).get("managedFields") or ()
    others = [item for item in entries if item.get("manager") != FIELD_MANAGER]
    last: Mapping[str, Any] = max(others, key=lambda item: str(item.get("time", "")), default={})
    return str(last.get("manager") or "an unknown client")
