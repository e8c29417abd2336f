"""What follows a change of policies: webhook configurations first, then sweeps, then Ready.

In that order nothing falls between: a trigger that is stored before the webhook is in force is
found by the sweep, a later one is recorded by the webhook. Only the leader does this, so that
configurations and policy statuses have one writer.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from reconciler.api.meta import Object, ObjectRef, resource_version
from reconciler.api.policystatus import blank_progress, observed_generation
from reconciler.api.updaterequest import RequestSpec, Source, render_time
from reconciler.clock import Clock
from reconciler.config import ControllerSettings
from reconciler.engine.match import KindSelector
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import AlreadyExists, ClusterError, Conflict, Gone
from reconciler.requests.naming import labels, sweep_name
from reconciler.services.policies import InvalidEntry, PolicyIndex, policy_key
from reconciler.services.ports import Authority, Kinds, Policies, Requests, Webhooks
from reconciler.services.registration import (
    Endpoint,
    Registration,
    configurations,
    lookup,
    selectors,
)

_GATHER = 0.05
"""Seconds that changes of several policies are given to come together."""
_AGAIN = 0.2
"""Seconds until a policy that changed meanwhile is worked on again."""
_PATROL = 30.0
"""Seconds until configurations are looked at although nothing is known to have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the webhook is and what it asks for, beside the CA."""

    url: str
    service: str
    namespace: str
    background_user: str
    timeout: float

    @classmethod
    def of(cls, settings: ControllerSettings) -> Self:
        """Return what the settings say."""
        account = settings.background_service_account
        return cls(
            url=settings.webhook_url,
            service=settings.service,
            namespace=settings.namespace,
            background_user=f"system:serviceaccount:{settings.namespace}:{account}",
            timeout=settings.webhook_timeout,
        )


@dataclass(slots=True, kw_only=True)
class Rollout:
    """Keeps the cluster in step with the policies.

    Attributes:
        margin: Seconds until a stored configuration is in force in the API server.
        say: Gets a sentence when something is in the way, for the log.
        problem: What is in the way now; empty where nothing is.
    """

    index: PolicyIndex
    policies: Policies
    requests: Requests
    kinds: Kinds
    webhooks: Webhooks
    authority: Authority
    clock: Clock
    place: Place
    margin: float
    say: Any
    problem: str = ""
    _objects: dict[str, Object] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def notice(self, policy: Object) -> None:
        """Take in a policy as stored; the index knows it already."""
        kept = {key: policy.get(key) for key in ("apiVersion", "kind", "metadata", "status")}
        before = self._objects.get(policy_key(policy))
        self._objects[policy_key(policy)] = kept
        # New figures in the status, which come every second, are nothing to follow.
        if before is None or _followed(before) != _followed(kept):
            self._changed.set()

    def forget(self, key: str) -> None:
        """A policy was deleted."""
        self._objects.pop(key, None)
        self._changed.set()

    async def run(self) -> None:
        """Follow changes until cancelled; what fails is tried again with a pause."""
        self._changed.set()
        pause = 0.5
        while True:
            try:
                await asyncio.wait_for(self._changed.wait(), _PATROL)
            except TimeoutError:
                self._changed.set()
            await asyncio.sleep(_GATHER)
            self._changed.clear()
            try:
                await self.reconcile()
            except ClusterError as error:
                self._tell(str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, 15.0)
                self._changed.set()
            else:
                self._tell("")
                pause = 0.5

    async def reconcile(self) -> None:
        """Bring configurations, sweeps and statuses in step once."""
        bundle = await self.authority.ca_bundle()
        if bundle is None:
            msg = "no CA of the webhook yet: start retrofit-admission, which makes it"
            raise Gone(msg)
        policies = {policy.key: policy for policy in self.index.policies()}
        if await self._register(tuple(policies.values()), bundle):
            # The API servers learn of a new configuration by their own watch.
            await asyncio.sleep(self.margin)
        failed: ClusterError | None = None
        for work in self._steps(policies):
            try:
                await work
            except (Conflict, Gone):
                # A newer version of the policy is on its way, perhaps with new figures only.
                asyncio.get_running_loop().call_later(_AGAIN, self._changed.set)
                continue
            except ClusterError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _steps(self, policies: Mapping[str, CompiledPolicy]) -> Iterator[Awaitable[None]]:
        for key, compiled in policies.items():
            # Only what was registered is finished: a policy that came meanwhile is not in force.
            if self.index.get(key) is compiled:
                yield self._finish(key, compiled)
        for key, invalid in self.index.invalid().items():
            yield self._write(key, _not_ready(invalid))

    async def _register(self, policies: tuple[CompiledPolicy, ...], bundle: bytes) -> bool:
        found: dict[KindSelector, Any] = {}
        for selector in selectors(policies):
            found[selector] = await self.kinds.find(*lookup(selector))
        registration = Registration(
            endpoint=Endpoint(url=self.place.url, service=self.place.service, ca_bundle=bundle),
            namespace=self.place.namespace,
            background_user=self.place.background_user,
            timeout=self.place.timeout,
        )
        bodies = configurations(policies, found, registration)
        return any([await self._put(name, body) for name, body in bodies.items()])

    async def _put(self, name: str, body: Object) -> bool:
        live = await self.webhooks.get(name)
        if live is None:
            try:
                await self.webhooks.create(body)
            except AlreadyExists as error:
                msg = f"{name} was made by somebody else meanwhile"
                raise Conflict(msg, status=409) from error
            return True
        if live.get("webhooks", []) == body["webhooks"]:
            return False
        meta = {**body["metadata"], "resourceVersion": resource_version(live)}
        await self.webhooks.replace({**body, "metadata": meta})
        return True

    async def _finish(self, key: str, compiled: CompiledPolicy) -> None:
        policy = self._objects.get(key)
        if policy is None:
            return
        wanted = _ready(compiled)
        if observed_generation(policy) != compiled.generation:
            await self._sweep(compiled)
            wanted["mutateExisting"] |= blank_progress()
        await self._write(key, wanted)

    async def _write(self, key: str, wanted: Mapping[str, Any]) -> None:
        policy = self._objects.get(key)
        status = {} if policy is None else policy.get("status") or {}
        if policy is None or not _differs(status, wanted):
            return
        condition = wanted["conditions"][0]
        moment = _since(status, condition) or render_time(self.clock.now())
        condition = {**condition, "lastTransitionTime": moment}
        await self.policies.write_status(policy, {**wanted, "conditions": [condition]})

    async def _sweep(self, policy: CompiledPolicy) -> None:
        for program in policy.programs:
            if program.on_policy_change:
                await self._create_sweep(policy, program)

    async def _create_sweep(self, policy: CompiledPolicy, program: Program) -> None:
        origin = program.origin
        spec = RequestSpec(
            policy=policy.key,
            rule=program.rule,
            resource=ObjectRef(
                api_version=policy.api_version,
                kind=policy.kind,
                namespace=policy.namespace,
                name=origin.name,
                uid=policy.uid,
            ),
            source=Source.POLICY_CHANGE,
            policy_uid=policy.uid,
            policy_generation=policy.generation,
            sweep=True,
        )
        name = sweep_name(policy.uid, policy.generation, program.rule)
        marks = labels(policy=policy.key, source=Source.POLICY_CHANGE, trigger_uid=policy.uid)
        await self.requests.create(name, marks, spec)

    def _tell(self, problem: str) -> None:
        if problem and problem != self.problem:
            self.say(problem)
        self.problem = problem


def _followed(policy: Object) -> tuple[Any, ...]:
    """Return what of a stored policy concerns the rollout."""
    meta, status = policy.get("metadata") or {}, policy.get("status") or {}
    known = (meta.get("uid"), meta.get("generation"), observed_generation(policy))
    return (*known, status.get("conditions"), status.get("ready"))


def _ready(policy: CompiledPolicy) -> dict[str, Any]:
    return {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "Ready"}
        ],
        "ready": True,
        "rulecount": dict(policy.rule_count),
        "mutateExisting": {"observedGeneration": policy.generation},
    }


def _not_ready(invalid: InvalidEntry) -> dict[str, Any]:
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Failed",
        "message": str(invalid.error),
    }
    return {"conditions": [condition], "ready": False}


def _since(status: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return since when the condition has the wanted status, empty where it has not."""
    for item in status.get("conditions") or ():
        if (item.get("type"), item.get("status")) == (wanted["type"], wanted["status"]):
            return str(item.get("lastTransitionTime", ""))
    return ""


def _differs(status: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    conditions = [
        {key: value for key, value in item.items() if key != "lastTransitionTime"}
        for item in status.get("conditions") or ()
    ]
    if conditions != wanted["conditions"]:
        return True
    observed = status.get("mutateExisting") or {}
    return any(
        observed.get(key) != value for key, value in wanted.get("mutateExisting", {}).items()
    )
