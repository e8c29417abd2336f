"""What follows a change of policies: webhook configurations first, then sweeps, then Ready.

In that order nothing falls between: a trigger that is stored before the webhook is in force is
found by the sweep, a later one is recorded by the webhook. Only the leader does this, so that
configurations and policy statuses have one writer.
"""

import asyncio
import contextlib
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import (
    ANNOTATION_RUN,
    Object,
    PolicyRef,
    policy_ref,
    resource_version,
)
from reconciler.api.policystatus import (
    MAX_TEXT,
    blank_progress,
    observed_generation,
    runs_on_existing,
)
from reconciler.api.updaterequest import Source, render_time
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.errors import ClusterError, Conflict, InvalidPolicy, NotFound
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
"""Gets what a policy that is in force does not do."""
_GATHER = 0.05
"""Seconds that changes of several policies are given to come together."""
_AGAIN = 0.2
"""Seconds until a policy that changed meanwhile is worked on again."""
_PATROL = 30.0
"""Seconds until everything is looked at although nothing is known to have changed."""
_UNGRANTED = 5.0
"""Seconds until a right is asked for again that a policy cannot work without."""
_URGENT, _LONGEST = 2.0, 15.0
"""Seconds between two tries at most, while policies are not in force, and while they are."""
_KEPT_PARTS = ("mutateExisting", "autogen", "rulecount")
"""Parts of the status that are written field by field."""
_WHOLE_PARTS = ("phases", "kinds")
"""Lists."""
_MARK = 128
"""Characters of the run annotation that tell one value from another."""


@dataclass(slots=True, kw_only=True)
class Rollout(WarnsOnce):
    """Keeps the cluster in step with the policies.

    Attributes:
        on_caveat: Called with what a policy in force does not do, when its status first says so.
        held: Why nothing is rolled out and nobody asked; empty where it is.
        ending: The programs' namespace is being deleted, so the webhooks go first.
        ready_if_stored: A policy none of whose rules is acted on is Ready, and says so.
        changed: Set while there is something that `reconcile` has not seen yet.
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
    _delegation: Delegation = field(init=False)

    def __post_init__(self) -> None:
        """Follow the policies, and ask about their accounts where configurations are kept."""
        access, clock = self.webhook_writer.cluster.access, self.webhook_writer.clock
        self._delegation = Delegation(index=self.index, access=access, clock=clock)
        self.index.subscribe(self._on_policy)
        self.index.languages.changed.subscribe(self.changed.set)

    def _on_policy(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        # New figures in the status, which come every second, are nothing to follow.
        if before is None or after is None or _followed(before.head) != _followed(after.head):
            self.changed.set()

    def wake(self) -> None:
        """Something beside the policies changed: kinds, settings, the configurations."""
        self.changed.set()

    def hold(self, reason: str) -> None:
        """Stand by for a reason; an empty one is to go on."""
        self.held = reason
        self.changed.set()

    def end(self, *, ending: bool) -> None:
        """Take in whether the programs' namespace is being deleted."""
        self.ending = ending
        self.changed.set()

    async def load(self) -> None:
        """Take in what is stored, and forget what is not.

        The watch has not delivered all policies yet when a Lease is won, and a deletion that it
        missed it never delivers.

        Raises:
            ClusterError: The policies cannot be listed.
        """
        known = self.index.entries()
        stored = {policy_ref(item): item for item in await self.policies.stored()}
        for policy in stored.values():
            self.index.apply(policy)
        for missing in known:
            if missing.ref not in stored:
                self.index.on_deleted(missing.head)

    async def run(self) -> None:
        """Follow changes until cancelled; what fails is tried again with a pause."""
        await repeat(
            self._follow,
            every=_PATROL,
            woken=self.changed,
            pauses=(0.5, _LONGEST),
            # While nothing is recorded, every second counts.
            at_most=lambda: _URGENT if self.webhook_writer.in_force.broken else _LONGEST,
            tell=self.tell,
        )

    async def _follow(self) -> None:
        # What nobody woke is the patrol, or the begin.
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
        """Bring configurations, sweeps and statuses in step once."""
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
        except ClusterError:
            if self.webhook_writer.in_force.broken:
                with contextlib.suppress(ClusterError):
                    await self._work(self._steps(policies, refused))
            raise
        if settling := self.webhook_writer.in_force.settling:
            asyncio.get_running_loop().call_later(settling, self.changed.set)
        powerless = await self._delegation.problems(policies.values())
        if powerless:
            # The right may be granted any time, and nobody tells.
            asyncio.get_running_loop().call_later(_UNGRANTED, self.changed.set)
        await self._work(self._steps(policies, {**powerless, **refused}))

    async def _work(self, steps: Iterator[Awaitable[None]]) -> None:
        failed: ClusterError | None = None
        for work in steps:
            try:
                await work
            except (Conflict, NotFound):
                # A newer version of the policy is on its way, perhaps with new figures only.
                asyncio.get_running_loop().call_later(_AGAIN, self.changed.set)
                continue
            except ClusterError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _steps(
        self, policies: Mapping[PolicyRef, CompiledPolicy], refused: Mapping[PolicyRef, str]
    ) -> Iterator[Awaitable[None]]:
        in_force = self.webhook_writer.in_force
        for ref, compiled in policies.items():
            # Only what was registered is finished: a policy that came meanwhile is not in force.
            if ref in refused:
                yield self._write(ref, _not_ready(refused[ref]))
            elif acts(compiled) and (obstacle := in_force.obstacle_of(compiled)):
                yield self._suspend(compiled, obstacle)
            elif self.index.get(ref) is compiled:
                yield self._finish(ref, compiled)
        for invalid in self.index.invalid():
            if self._is_ours(invalid.ref):
                yield self._write(invalid.ref, _not_ready(str(invalid.result)))
        for left in self.index.entries():
            if reason := self.index.languages.standing_by(left.ref):
                yield self._write(left.ref, _not_ready(reason, "StandingBy"))

    def _is_ours(self, ref: PolicyRef) -> bool:
        """Return whether a policy is acted on, and not left to the system that it was made for."""
        languages = self.index.languages
        return languages.is_served(ref) and not languages.standing_by(ref)

    async def _suspend(self, compiled: CompiledPolicy, obstacle: Obstacle) -> None:
        """Say that a policy is not in force, also while its figures are written every second."""
        ref, wanted = compiled.ref, _not_ready(obstacle.message, obstacle.cause)
        try:
            await self._write(ref, wanted)
        except Conflict:
            if not compiled.in_background:
                raise
            await self.index.take_in(await self.policies.get(ref))
            await self._write(ref, wanted)

    async def _finish(self, ref: PolicyRef, compiled: CompiledPolicy) -> None:
        stored = self.index.entry(ref)
        if stored is None:
            return
        policy = stored.head
        found = caveats(compiled, self.webhook_writer.live.current.filters)
        wanted = _ready(compiled, found, if_stored=self.ready_if_stored)
        changed = observed_generation(policy) != compiled.generation
        if changed:
            wanted["mutateExisting"] |= blank_progress()
            for program in _on_policy_change(compiled):
                name = sweep_name(compiled.uid, compiled.generation, program.rule)
                await self._sweep(name, compiled, program, Source.POLICY_CHANGE)
        elif compiled.on_existing and not runs_on_existing(policy):
            # The annotation came without a generation, perhaps not for the first time.
            edition = f"{compiled.generation}/{resource_version(policy)}"
            for program in compiled.on_existing:
                name = sweep_name(compiled.uid, edition, program.rule)
                await self._sweep(name, compiled, program, Source.POLICY_CHANGE)
        wanted["mutateExisting"]["heldBack"] = self._held_back(stored)
        mark = _run_mark(policy)
        if mark and mark != _acted_on(policy):
            wanted["mutateExisting"]["manualRun"] = await self._run_now(
                compiled, mark, just_swept=changed
            )
        await self._write(ref, wanted)
        if _message(policy.get("status") or {}) != _message(wanted):
            for caveat in found:
                self.on_caveat(compiled, caveat)

    def _held_back(self, policy: StoredPolicy) -> str | None:
        """Return why nothing of a policy is worked on now, None where it is."""
        limits = policy.limits
        if isinstance(limits, InvalidPolicy):
            return str(limits)
        held = limits.hold(self.webhook_writer.clock.now())
        return None if held is None else held.message

    async def _run_now(
        self, compiled: CompiledPolicy, mark: str, *, just_swept: bool
    ) -> dict[str, Any]:
        """Run all rules that can be, and return what the status says about it."""
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
        condition = {**wanted["conditions"][0], "observedGeneration": generation}
        if not _differs(status, {**wanted, "conditions": [condition]}):
            return
        moment = _since(status, condition) or render_time(self.webhook_writer.clock.now())
        condition = {**condition, "lastTransitionTime": moment}
        await self.policies.write_status(stored.head, {**wanted, "conditions": [condition]})


def _followed(policy: Object) -> tuple[Any, ...]:
    """Return what of a stored policy concerns the rollout."""
    meta, status = policy.get("metadata") or {}, policy.get("status") or {}
    known = (meta.get("uid"), meta.get("generation"), observed_generation(policy))
    marks = (_run_mark(policy), _acted_on(policy), tuple(sorted(limits_of(policy).items())))
    return (*known, *marks, status.get("conditions"), status.get("ready"))


def _run_mark(policy: Object) -> str:
    """Return the value that asks for a run, empty where nobody does."""
    found = (policy.get("metadata") or {}).get("annotations") or {}
    return str(found.get(ANNOTATION_RUN, ""))[:_MARK]


def _acted_on(policy: Object) -> str:
    """Return the value of the last run."""
    existing = (policy.get("status") or {}).get("mutateExisting") or {}
    return str((existing.get("manualRun") or {}).get("value", ""))


def _on_policy_change(policy: CompiledPolicy) -> list[Program]:
    return [program for program in policy.in_background if program.on_policy_change]


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
    """Return since when the condition has the wanted status, empty where it has not."""
    for item in status.get("conditions") or ():
        if (item.get("type"), item.get("status")) == (wanted["type"], wanted["status"]):
            return str(item.get("lastTransitionTime", ""))
    return ""


def _is_said(conditions: Sequence[Object], wanted: Object) -> bool:
    """Return whether a status has the one condition, as far as its definition keeps the fields."""
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
