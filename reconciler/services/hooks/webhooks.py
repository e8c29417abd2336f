"""Keeps the webhook configurations of a program's hooks in line with their bindings.

An edited or deleted configuration is restored; one that no hook needs any more is removed.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.api.meta import Object, resource_version
from reconciler.errors import AlreadyExists, ClusterError, Conflict, Forbidden, Invalid
from reconciler.hooks.ports import HookRef
from reconciler.services.catalog.configurations import Written, is_in_step
from reconciler.services.hooks.answering import AskedBinding
from reconciler.services.hooks.webhook_config import MANAGER, OWNER, configuration
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.webhooks import (
    MANAGED_BY,
    MUTATING,
    VALIDATING,
    ConfigurationRef,
    Endpoint,
    Webhooks,
)
from reconciler.signals import Signal

_EVERY: Final = 15.0
_NAME_FLAG: Final = "--validating-webhook-configuration-name"
_FAILING: Final = "cannot write the webhook configurations of hooks: "
_UNWRITTEN: Final = "its webhook configuration has not been written yet"


@dataclass(slots=True, kw_only=True)
class HookWebhooks:
    """Writes the webhook configurations; only the leader does.

    Attributes:
        name: The name of both configurations.
        endpoint: Returns where the bindings are called; raises `NotInstalled` while unknown.
        complete: No executable is refused, whose bindings would be unknown.
        assessed: Emits why a binding of a hook, by its key, is not called; empty if it is.
    """

    webhooks: Webhooks
    name: str
    namespace: str
    endpoint: Callable[[], Endpoint]
    asked: Sequence[AskedBinding]
    complete: bool
    warn: Callable[[str], None]
    assessed: Signal[[HookRef, str, str]] = field(default_factory=Signal)
    _problems: dict[tuple[HookRef, str], str] = field(default_factory=dict)
    _written: dict[ConfigurationRef, Written] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self) -> None:
        """Reconcile soon, because a configuration was changed or deleted."""
        self._woken.set()

    def problem(self, hook: HookRef, key: str) -> str:
        """Return why a binding is not called, empty if it is."""
        return self._problems.get((hook, key), f"{key}: {_UNWRITTEN}")

    async def run(self) -> None:
        """Reconcile periodically until cancelled."""
        await repeat(
            self.settle,
            # Without admission bindings there is nothing to restore.
            every=_EVERY if self.asked else math.inf,
            woken=self._woken,
            pauses=(0.5, _EVERY),
            tell=WarnsOnce(warn=self.warn).tell,
            failing=_FAILING,
        )

    async def settle(self) -> None:
        """Create, restore and remove configurations; a failure at one does not stop the other.

        Raises:
            ClusterError: The first failure.
        """
        self._woken.clear()
        errors: list[ClusterError] = []
        for kind, mutating in ((VALIDATING, False), (MUTATING, True)):
            ref = ConfigurationRef(kind, self.name)
            asked = [item for item in self.asked if item.mutating is mutating]
            try:
                if asked:
                    await self._keep(ref, asked)
                elif self.complete:
                    await self._remove(ref)
            except ClusterError as error:
                errors.append(error)
                self._assess(asked, f"{_FAILING}{error}")
        if errors:
            raise errors[0]

    async def _keep(self, ref: ConfigurationRef, asked: Sequence[AskedBinding]) -> None:
        live = await self.webhooks.get(ref)
        if live is not None and (reason := self._why_foreign(live)):
            raise Conflict(f"{ref} {reason}: choose another name with {_NAME_FLAG}", status=409)
        left, refused = asked, dict[str, str]()
        kept = self._unknown(live, asked)
        try:
            await self._put(ref, live, left, kept)
        except Invalid:
            refused = await self._refused(ref, asked)
            if not refused:
                raise
            left = [item for item in asked if item.binding.name not in refused]
            await self._put(ref, live, left, kept)
        self._assess(left, "")
        for item in asked:
            if reason := refused.get(item.binding.name, ""):
                self._assess((item,), f"{item.binding.name}: the API server refuses it: {reason}")

    def _unknown(self, live: Object | None, asked: Sequence[AskedBinding]) -> list[Object]:
        """Return the stored webhooks that may be those of a refused executable.

        They stay, so that their failure policies decide. Without them nothing would be reviewed.
        """
        if live is None or self.complete or not _is_marked(live, self.namespace):
            return []
        names = {item.binding.name for item in asked}
        return [item for item in live.get("webhooks") or () if item["name"] not in names]

    async def _put(
        self,
        ref: ConfigurationRef,
        live: Object | None,
        asked: Sequence[AskedBinding],
        kept: Sequence[Object],
    ) -> None:
        written, body = self._written.get(ref), await self._body(ref, asked)
        body = {**body, "webhooks": [*body["webhooks"], *kept]}
        if live is not None and is_in_step(live, body, written):
            self._written[ref] = Written(body=body, stored=live)
            return
        if written is not None and written.body == body:
            what = "deleted" if live is None else "changed"
            self.warn(f"restoring {ref}, which another client {what}")
        if live is None:
            stored = await self._create(ref, body)
        else:
            meta = {**body["metadata"], "resourceVersion": resource_version(live)}
            stored = await self.webhooks.replace({**body, "metadata": meta})
        self._written[ref] = Written(body=body, stored=stored)

    async def _create(self, ref: ConfigurationRef, body: Object) -> Object:
        try:
            return await self.webhooks.create(body)
        except AlreadyExists as error:
            raise Conflict(f"{ref} was created by another client meanwhile", status=409) from error

    async def _body(self, ref: ConfigurationRef, asked: Sequence[AskedBinding]) -> Object:
        owner = await self.webhooks.owner()
        return configuration(ref, asked, self.endpoint(), self.namespace, owner)

    async def _refused(
        self, ref: ConfigurationRef, asked: Iterable[AskedBinding]
    ) -> dict[str, str]:
        """Return why the API server refuses bindings, by their names."""
        found: dict[str, str] = {}
        for item in asked:
            try:
                await self.webhooks.check(await self._body(ref, (item,)))
            except Invalid as error:
                found[item.binding.name] = str(error)
        return found

    async def _remove(self, ref: ConfigurationRef) -> None:
        try:
            live = await self.webhooks.get(ref)
        except Forbidden:
            # A program that never had such a hook needs no right to read configurations.
            return
        if live is not None and _is_marked(live, self.namespace):
            await self.webhooks.delete(ref)
            self.warn(f"removed {ref}, which no hook needs any longer")

    def _why_foreign(self, live: Object) -> str:
        """Return why a configuration must not be changed, empty if it may be."""
        meta = live.get("metadata") or {}
        if (meta.get("labels") or {}).get(MANAGED_BY) == MANAGER:
            other = (meta.get("annotations") or {}).get(OWNER, "")
            same = other in {"", self.namespace}
            return "" if same else f"belongs to the hooks of namespace {other}"
        # A configuration that shell-operator left for this namespace is taken over.
        called = {_service_namespace(item) for item in live.get("webhooks") or ()}
        return "" if called <= {self.namespace} else "was created by another client"

    def _assess(self, asked: Iterable[AskedBinding], problem: str) -> None:
        for item in asked:
            self._problems[item.hook.ref, item.binding.key] = problem
            self.assessed.emit(item.hook.ref, item.binding.key, problem)


def _is_marked(live: Object, namespace: str) -> bool:
    meta = live.get("metadata") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    return labels.get(MANAGED_BY) == MANAGER and notes.get(OWNER) == namespace


def _service_namespace(webhook: Mapping[str, Any]) -> str:
    service = (webhook.get("clientConfig") or {}).get("service") or {}
    return str(service.get("namespace") or "")
