"""The rollout of policy changes: webhook configurations first, then sweeps, then Ready.

This order misses no trigger: one that is stored before the webhook is in force is found by the
sweep, a later one is recorded by the webhook. Only the leader does this, so that configurations
and policy statuses have a single writer.
"""

import asyncio
import contextlib
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import ANNOTATION_RUN, Object, PolicyRef, policy_ref, resource_version
from reconciler.api.policystatus import (
    MAX_TEXT,
    blank_progress,
    observed_generation,
    runs_on_existing,
)
from reconciler.api.updaterequest import Source, render_time
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.errors import (
    ClusterError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    InvalidPolicy,
    NotFound,
)
from reconciler.requests.background_drafts import sweep_draft
from reconciler.requests.limits import limits_of
from reconciler.requests.naming import run_name, sweep_name
from reconciler.services.catalog.caveats import Caveat, acts, caveats
from reconciler.services.catalog.policy_store import PolicyStore, StoredPolicy
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.policies import Policies
from reconciler.services.ports.requests import Requests
from reconciler.services.rollout.delegation import Delegation
from reconciler.services.rollout.in_force import Obstacle
from reconciler.services.rollout.manual_run import why_not
from reconciler.services.rollout.webhook_writer import WebhookWriter

OnCaveat = Callable[[CompiledPolicy, Caveat], None]
"""Called with a policy in force and a caveat about it."""
_GATHER = 0.05
"""Seconds to wait for further changes of policies, so that they are handled together."""
_AGAIN = 0.2
"""Seconds until a policy that changed meanwhile is handled again."""
_PATROL = 30.0
"""Seconds until everything is reconciled although no change is known."""
_UNGRANTED = 5.0
"""Seconds until a missing impersonation right of a policy is checked again."""
_URGENT, _LONGEST = 2.0, 15.0
"""The longest retry pauses in seconds, while policies are not in force and while they are."""
_KEPT_PARTS = ("mutateExisting", "autogen", "rulecount")
"""Parts of the status that are compared field by field."""
_WHOLE_PARTS = ("phases", "kinds")
"""Parts of the status that are compared as a whole."""
_MARK = 128
"""Characters of the run annotation that are significant."""


@dataclass(slots=True, kw_only=True)
class Rollout(WarnsOnce):
    """Reconciles webhook configurations, sweeps and policy statuses with the policies.

    Attributes:
        on_caveat: Called with a caveat of a policy in force when the status message changes.
        held: Why the controller stands by without webhooks, empty if it does not.
        ending: The programs' namespace is being deleted, so the webhooks are removed first.
        ready_if_stored: A policy without any rule that is acted on is Ready, with a message.
        changed: Set while there are changes that `reconcile` has not handled yet.
    """

    index: PolicyStore
    policies: Policies
    requests: Requests
    webhook_writer: WebhookWriter
    on_caveat: OnCaveat
    held: str = ""
    ending: bool = False
    ready_if_stored: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _stale: bool = True
    _timer: asyncio.TimerHandle | None = None
    _delegation: Delegation = field(init=False)

    def __post_init__(self) -> None:
        cluster = self.webhook_writer.cluster
        self._delegation = Delegation(index=self.index, access=cluster.access, clock=cluster.clock)
        self.index.subscribe(self._on_policy)
        self.index.languages.changed.subscribe(self.changed.set)

    def _on_policy(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        # The figures in the status are updated every second and need no rollout.
        if before is None or after is None or _followed(before.head) != _followed(after.head):
            self.changed.set()

    def wake(self) -> None:
        """Reconcile after a change of something else: kinds, settings or the configurations."""
        self.changed.set()

    def hold(self, reason: str) -> None:
        """Stand by for a reason, or continue if it is empty."""
        self.held = reason
        self.changed.set()

    def end(self, *, ending: bool) -> None:
        """Record whether the programs' namespace is being deleted."""
        self.ending = ending
        self.changed.set()

    async def load(self) -> None:
        """Synchronise the policy store with the stored policies.

        When the Lease is acquired, the watch may not have delivered all policies yet. A deletion
        that the watch missed is never delivered.

        Raises:
            ClusterError: The policies cannot be listed.
        """
        known = self.index.entries()
        stored = {policy_ref(item): item for item in await self.policies.stored()}
        for policy in stored.values():
            await self.index.take_in(policy)
        for missing in known:
            if missing.ref not in stored:
                self.index.on_deleted(missing.head)

    async def run(self) -> None:
        """Reconcile after changes until cancelled; failures are retried with backoff."""
        await repeat(
            self._follow,
            every=_PATROL,
            woken=self.changed,
            pauses=(0.5, _LONGEST),
            # While policies are not in force, triggers are lost, so retry sooner.
            at_most=lambda: _URGENT if self.webhook_writer.in_force.broken else _LONGEST,
            tell=self.tell,
        )

    async def _follow(self) -> None:
        # A run without the event is the patrol or the first one.
        self._stale = self._stale or not self.changed.is_set()
        await asyncio.sleep(_GATHER)
        self.changed.clear()
        try:
            if self._stale:
                await self.load()
                self._stale = False
            await self.reconcile()
        except ClusterError:
            self.changed.set()
            raise

    async def reconcile(self) -> None:
        """Reconcile configurations, sweeps and statuses once."""
        policies = {
            policy.ref: policy for policy in self.index.policies() if self._is_ours(policy.ref)
        }
        if self.held and not self.ending:
            await self.webhook_writer.stand_by()
            return
        refused: Mapping[PolicyRef, str] = {}
        try:
            if self.ending:
                await self.webhook_writer.withdraw()
            else:
                chosen = tuple(policies.values())
                stored = tuple(item.head for item in self.index.entries())
                kinds = self.index.languages.kinds
                refused = await self.webhook_writer.register(chosen, stored, kinds)
        except ClusterError as error:
            if self.webhook_writer.in_force.broken:
                with contextlib.suppress(ClusterError):
                    await self._work(self._steps(policies, refused))
            else:
                for ref in policies:
                    await self._tell_refused(ref, error)
            raise
        if settling := self.webhook_writer.in_force.settling:
            self._wake_in(settling)
        powerless = await self._delegation.problems(policies.values())
        if powerless:
            # The right may be granted at any time, without an event.
            self._wake_in(_UNGRANTED)
        await self._work(self._steps(policies, {**powerless, **refused}))

    async def _work(self, steps: Iterator[tuple[PolicyRef, Awaitable[None]]]) -> None:
        failed: ClusterError | None = None
        for ref, work in steps:
            try:
                await work
            except (Conflict, NotFound):
                # The watch will deliver a newer version, perhaps with new figures only.
                self._wake_in(_AGAIN)
                continue
            except ClusterError as error:
                failed = failed or error
                await self._tell_refused(ref, error)
        if failed is not None:
            raise failed

    async def _tell_refused(self, ref: PolicyRef, error: ClusterError) -> None:
        """Write what was refused, if that keeps a new generation of a policy from being Ready.

        The status would have no condition otherwise, or say what held of the generation before.
        """
        stored, refused = self.index.entry(ref), isinstance(error, Denied | Forbidden | Invalid)
        if refused and stored and observed_generation(stored.head) != stored.generation:
            with contextlib.suppress(ClusterError):
                await self._write(ref, _not_ready(str(error)))

    def _wake_in(self, seconds: float) -> None:
        """Reconcile again in some seconds, or earlier: every run asks again for what it needs."""
        loop = asyncio.get_running_loop()
        now, planned = loop.time(), self._timer
        if planned is not None and now < planned.when() <= now + seconds:
            return
        if planned is not None:
            planned.cancel()
        self._timer = loop.call_later(seconds, self.changed.set)

    def _steps(
        self, policies: Mapping[PolicyRef, CompiledPolicy], refused: Mapping[PolicyRef, str]
    ) -> Iterator[tuple[PolicyRef, Awaitable[None]]]:
        in_force = self.webhook_writer.in_force
        for ref, compiled in policies.items():
            # Only registered policies are finished: one that arrived meanwhile is not in force.
            if ref in refused:
                yield ref, self._write(ref, _not_ready(refused[ref]))
            elif acts(compiled) and (obstacle := in_force.obstacle_of(compiled)):
                yield ref, self._suspend(compiled, obstacle)
            elif (stored := self.index.entry(ref)) and stored.compiled is compiled:
                yield ref, self._finish(stored, compiled)
        for invalid in self.index.invalid():
            if self._is_ours(invalid.ref):
                yield invalid.ref, self._write(invalid.ref, _not_ready(str(invalid.result)))
        for left in self.index.entries():
            if reason := self.index.languages.standing_by(left.ref):
                yield left.ref, self._write(left.ref, _not_ready(reason, "StandingBy"))

    def _is_ours(self, ref: PolicyRef) -> bool:
        """Return whether a policy is acted on, and not left to the original of its language."""
        languages = self.index.languages
        return languages.is_served(ref) and not languages.standing_by(ref)

    async def _suspend(self, compiled: CompiledPolicy, obstacle: Obstacle) -> None:
        """Write that a policy is not in force, even if its figures are written every second."""
        ref, wanted = compiled.ref, _not_ready(obstacle.message, obstacle.cause)
        try:
            await self._write(ref, wanted)
        except Conflict:
            if not compiled.in_background:
                raise
            await self.index.take_in(await self.policies.get(ref))
            await self._write(ref, wanted)

    async def _finish(self, stored: StoredPolicy, compiled: CompiledPolicy) -> None:
        policy = stored.head
        found = caveats(compiled, self.webhook_writer.live.current.filters)
        wanted = _ready(compiled, found, if_stored=self.ready_if_stored)
        changed = observed_generation(policy) != compiled.generation
        if changed:
            wanted["mutateExisting"] |= blank_progress()
            for program in (item for item in compiled.in_background if item.on_policy_change):
                name = sweep_name(compiled.uid, compiled.generation, program.rule)
                await self._sweep(name, compiled, program, Source.POLICY_CHANGE)
        elif compiled.on_existing and not runs_on_existing(policy):
            # The annotation was added without a new generation, perhaps not for the first time.
            edition = f"{compiled.generation}/{resource_version(policy)}"
            for program in compiled.on_existing:
                name = sweep_name(compiled.uid, edition, program.rule)
                await self._sweep(name, compiled, program, Source.POLICY_CHANGE)
        mark = _run_mark(policy)
        if mark and mark != _acted_on(policy):
            wanted["mutateExisting"]["manualRun"] = await self._run_now(
                compiled, mark, just_swept=changed
            )
        await self._write(stored.ref, wanted)
        if _message(policy.get("status") or {}) != _message(wanted):
            for caveat in found:
                self.on_caveat(compiled, caveat)

    def _held_back(self, policy: StoredPolicy) -> str | None:
        limits = policy.limits
        if isinstance(limits, InvalidPolicy):
            return str(limits)
        held = limits.hold(self.webhook_writer.cluster.clock.now())
        return None if held is None else held.message

    async def _run_now(
        self, compiled: CompiledPolicy, mark: str, *, just_swept: bool
    ) -> dict[str, Any]:
        """Start a manual run of all rules that support it; return its part of the status."""
        refused: list[str] = []
        for program in compiled.in_background:
            if just_swept and program.on_policy_change:
                continue
            if reason := why_not(program):
                refused.append(f"rule {program.rule}: {reason}")
                continue
            name = run_name(compiled.uid, mark, program.rule)
            await self._sweep(name, compiled, program, Source.MANUAL)
        if refused:
            self.warn(f"policy {compiled.key} cannot run now in full: {'; '.join(refused)}")
        return {"value": mark, "refused": refused}

    async def _sweep(
        self, name: str, policy: CompiledPolicy, program: Program, source: Source
    ) -> None:
        draft = sweep_draft(policy, program, source)
        await self.requests.create(name, draft.labels, draft.spec)

    async def _write(self, ref: PolicyRef, wanted: Mapping[str, Any]) -> None:
        stored = self.index.entry(ref)
        if stored is None:
            return
        status = stored.head.get("status") or {}
        generation = stored.head["metadata"].get("generation", 0)
        existing, held = wanted.get("mutateExisting", {}), self._held_back(stored)
        if held != (status.get("mutateExisting") or {}).get("heldBack"):
            wanted = {**wanted, "mutateExisting": {**existing, "heldBack": held}}
        condition = {**wanted["conditions"][0], "observedGeneration": generation}
        if not _differs(status, {**wanted, "conditions": [condition]}):
            return
        moment = _since(status, condition) or render_time(self.webhook_writer.cluster.clock.now())
        condition = {**condition, "lastTransitionTime": moment}
        await self.policies.write_status(stored.head, {**wanted, "conditions": [condition]})


def _followed(policy: Object) -> tuple[Any, ...]:
    """Return the parts of a stored policy that concern the rollout."""
    meta, status = policy.get("metadata") or {}, policy.get("status") or {}
    known = (meta.get("uid"), meta.get("generation"), observed_generation(policy))
    marks = (_run_mark(policy), _acted_on(policy), tuple(sorted(limits_of(policy).items())))
    return (*known, *marks, status.get("conditions"), status.get("ready"))


def _run_mark(policy: Object) -> str:
    """Return the value of the run annotation, empty if there is none."""
    found = (policy.get("metadata") or {}).get("annotations") or {}
    return str(found.get(ANNOTATION_RUN, ""))[:_MARK]


def _acted_on(policy: Object) -> str:
    """Return the annotation value of the last manual run."""
    existing = (policy.get("status") or {}).get("mutateExisting") or {}
    return str((existing.get("manualRun") or {}).get("value", ""))


def _ready(policy: CompiledPolicy, found: Sequence[Caveat], *, if_stored: bool) -> dict[str, Any]:
    said = textwrap.shorten("; ".join(map(str, found)), MAX_TEXT, placeholder=" ...")
    status, reason, message = "True", "Succeeded", f"Ready, but {said}" if said else "Ready"
    if not acts(policy) and not if_stored:
        status, reason, message = "False", "NotActedOn", f"no rule is acted on: {said}"
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {
        "conditions": [condition],
        "ready": status == "True",
        "rulecount": dict(policy.rule_count),
        "autogen": {"rules": list(policy.generated) or None},
        "phases": [
            phase.name.lower()
            for phase in Phase
            if any(phase in item.phases for item in (*policy.programs, *policy.on_existing))
        ],
        **({"kinds": list(policy.kinds)} if policy.kinds else {}),
        "mutateExisting": {
            "observedGeneration": policy.generation,
            "onExisting": True if policy.on_existing else None,
        },
    }


def _not_ready(message: str, reason: str = "Failed") -> dict[str, Any]:
    condition = {"type": "Ready", "status": "False", "reason": reason, "message": message}
    return {"conditions": [condition], "ready": False}


def _message(status: Mapping[str, Any]) -> str:
    return "; ".join(str(item.get("message", "")) for item in status.get("conditions") or ())


def _since(status: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return since when the condition has the wanted status, empty if it has another."""
    for item in status.get("conditions") or ():
        if (item.get("type"), item.get("status")) == (wanted["type"], wanted["status"]):
            return str(item.get("lastTransitionTime", ""))
    return ""


def _is_said(conditions: Sequence[Object], wanted: Object) -> bool:
    """Return whether the wanted condition is stored; the CRD may drop ``observedGeneration``."""
    if len(conditions) != 1:
        return False
    reported = {key: value for key, value in conditions[0].items() if key != "lastTransitionTime"}
    return {"observedGeneration": wanted["observedGeneration"], **reported} == wanted


def _differs(status: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if not _is_said(status.get("conditions") or (), wanted["conditions"][0]):
        return True
    parts = ((status.get(part) or {}, wanted.get(part, {})) for part in _KEPT_PARTS)
    return any(
        have.get(key) != value for have, want in parts for key, value in want.items()
    ) or any(status.get(key) != wanted.get(key, status.get(key)) for key in _WHOLE_PARTS)
