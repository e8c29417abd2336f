"""The hooks of a program, and the work that it does for them while it leads."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from reconciler.api.meta import Object, policy_ref, version_number
from reconciler.api.updaterequest import UpdateRequest
from reconciler.clock import Clock
from reconciler.errors import InvalidPolicy
from reconciler.hooks.declared import DeclaredHook, compile_hook, is_executable
from reconciler.hooks.ports import HookRef, Runs
from reconciler.hooks.records import HookIdentity, Passed, passed_of
from reconciler.services.hooks.accounts import HookAccount, HookAccounts
from reconciler.services.hooks.active import ActiveHook
from reconciler.services.hooks.compiling import compile_programs
from reconciler.services.hooks.dispatch import HookDispatcher
from reconciler.services.hooks.following import InformerDeps
from reconciler.services.hooks.namespaces import informers_of
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.hooks.recorder import Recorder, RecorderDeps
from reconciler.services.hooks.requests import HookRequests
from reconciler.services.hooks.running import HookRun
from reconciler.services.hooks.schedules import Schedules
from reconciler.services.hooks.telling import tell_failure
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.watching import HookObjects

RunsHere = Callable[[Object], bool | None]
"""Returns whether a program runs a stored hook: False if it does so once the hook is restored,
None if the hook belongs to another program.
"""
_AGAIN: Final = 15.0
"""Seconds until programs are compiled again if that was interrupted."""
_TERM: Final = 32
"""Bits of an order that count up within the term of one leader."""


@dataclass(slots=True, kw_only=True)
class Orders:
    """Order numbers of requests in queues: later ones are higher, in the terms of all leaders."""

    term: Callable[[], int]
    _last: int = 0

    def begin(self, stored: int) -> None:
        """Begin a term, above the highest stored order."""
        self._last = max(self.term() << _TERM, stored, self._last)

    def next(self) -> int:
        """Return the next order number."""
        self._last += 1
        return self._last


async def compile_in_thread(hook: Object) -> DeclaredHook:
    """Compile a hook; the largest takes seconds, for which nothing else should have to wait."""
    return await asyncio.to_thread(compile_hook, hook)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDeps:
    """Dependencies of the service.

    Attributes:
        runs_of: Returns the adapter that runs a hook.
        uncalled: Returns why the API server does not call a binding, by its key; empty if it does.
    """

    objects: HookObjects
    requests: HookRequests
    recorder: RecorderDeps
    informer: InformerDeps
    operations: Callable[[str], OperationRunner]
    runs_here: RunsHere
    runs_of: Callable[[DeclaredHook], Runs]
    uncalled: Callable[[HookRef, str], str]
    orders: Orders
    clock: Clock
    warn: Callable[[str], None]
    compile: Callable[[Object], Awaitable[DeclaredHook]] = compile_in_thread


@dataclass(slots=True, kw_only=True)
class Hooks:
    """Watches the hook objects and keeps the hooks active, while the process leads."""

    deps: HookDeps
    accounts: HookAccounts
    dispatcher: HookDispatcher
    active: dict[HookRef, ActiveHook]
    _recorded: dict[tuple[str, str, str, bool], Passed] = field(default_factory=dict)
    _tasks: dict[HookRef, asyncio.Task[None]] = field(default_factory=dict)
    _seen: dict[HookRef, tuple[str, int]] = field(default_factory=dict)
    _all_begun: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.dispatcher.ran.subscribe(partial(tell_failure, self.deps.informer.events))

    async def run(self) -> None:
        """Watch and run hooks until cancelled."""
        await repeat(
            self._work,
            pauses=(0.5, 15.0),
            tell=WarnsOnce(warn=self.deps.warn).tell,
            failing="hooks cannot be read: ",
        )

    def look(self) -> None:
        """Check now whether the kinds of hooks are served, because a definition has been added."""
        self.deps.objects.look()

    async def _work(self) -> None:
        stored = await self.deps.objects.stored()
        waiting = await self.dispatcher.load()
        await self._look_back(waiting)
        schedules = Schedules(
            hooks=self.active, clock=self.deps.clock, holds=self.dispatcher.holds
        )
        try:
            async with asyncio.TaskGroup() as group:
                self._all_begun.clear()
                for obj in sorted(stored, key=_startup_order):
                    await self._on_stored(group, obj)
                self._all_begun.set()
                for work in (self.dispatcher.run, schedules.run, self.accounts.run):
                    group.create_task(work())
                async for change, obj in self.deps.objects.events():
                    if change == "DELETED":
                        await self._on_deleted(obj)
                    else:
                        await self._on_stored(group, obj)
        finally:
            self._tasks.clear()
            self._seen.clear()
            self.dispatcher.stored.clear()
            self.active.clear()

    async def _look_back(self, waiting: list[UpdateRequest]) -> None:
        """Read from the stored requests up to which version the watches are recorded."""
        self._recorded.clear()
        highest = 0
        for request in waiting:
            highest = max(highest, await self._look_at(request))
        async for request in self.deps.requests.finished():
            highest = max(highest, await self._look_at(request))
        self.deps.orders.begin(highest)

    async def _look_at(self, request: UpdateRequest) -> int:
        """Read the progress that one request records; return its order."""
        recorded = await self.deps.requests.recorded_or_nothing(request)
        for marker in passed_of(recorded):
            key = request.spec.policy_uid, marker.binding, marker.scope, marker.partial
            known = self._recorded.get(key)
            if known is None or version_number(marker.version) > version_number(known.version):
                self._recorded[key] = marker
        return request.spec.order

    async def _on_stored(self, group: asyncio.TaskGroup, obj: Object) -> None:
        ref, meta = policy_ref(obj), obj.get("metadata") or {}
        seen = str(meta.get("uid", "")), int(meta.get("generation", 0))
        if self._seen.get(ref) == seen:
            self.accounts.on_stored(ref, obj)
            return
        runs_here = self.deps.runs_here(obj)
        self.dispatcher.stored[ref] = "" if runs_here is None else seen[0]
        await self._stop(ref)
        self._seen[ref] = seen
        self.dispatcher.wake()
        if runs_here is None:
            # Another program writes its status now.
            self.accounts.close(ref)
        if not runs_here:
            return
        try:
            declared = await self.deps.compile(obj)
        except InvalidPolicy as error:
            self._refuse(obj, error)
            return
        begun = asyncio.Event()
        work = self._live(declared, obj, begun)
        self._tasks[ref] = group.create_task(work, name=f"hook {ref.kind} {ref}")
        await begun.wait()

    async def _live(self, declared: DeclaredHook, obj: Object, begun: asyncio.Event) -> None:
        """Run a hook once its programs compile.

        The others wait until its run at the start is stored, but not for its programs.
        """
        account: HookAccount | None = None

        def stored() -> Object:
            return obj if account is None else account.object

        def tell(problem: str) -> None:
            nonlocal account
            if problem:
                account = self.accounts.open(declared, stored())
                account.tell("", "", f"its jq programs cannot be compiled: {problem}")
                begun.set()

        async def work() -> None:
            try:
                await compile_programs(declared.programs, self.deps.informer.jq)
            except InvalidPolicy as error:
                self._refuse(stored(), error)
                begun.set()
                return
            hook = self.active[declared.ref] = self._activate(declared, stored())
            self.dispatcher.wake()
            await hook.run(begun, self._all_begun)

        await repeat(work, pauses=(_AGAIN, _AGAIN), tell=tell)

    def _refuse(self, obj: Object, error: InvalidPolicy) -> None:
        # The status of an executable's Hook is written by the program that registered it.
        if not is_executable(obj):
            said = "; ".join(map(str, (error, *error.others)))
            self.accounts.refuse(policy_ref(obj), obj, said)

    async def _on_deleted(self, obj: Object) -> None:
        ref = policy_ref(obj)
        self._seen.pop(ref, None)
        self.dispatcher.stored.pop(ref, None)
        await self._stop(ref)
        self.accounts.close(ref)
        self.dispatcher.wake()

    async def _stop(self, ref: HookRef) -> None:
        self.active.pop(ref, None)
        task = self._tasks.pop(ref, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _activate(self, declared: DeclaredHook, obj: Object) -> ActiveHook:
        account = self.accounts.open(declared, obj)
        self._catch_up(account, declared)
        identity = HookIdentity(ref=declared.ref, uid=declared.uid, generation=declared.generation)
        recorder = Recorder(deps=self.deps.recorder, hook=identity, account=account)
        informers = tuple(
            informers_of(
                self.deps.informer,
                declared.config.kubernetes,
                account,
                recorder,
                synchronized=self.dispatcher.wake,
            )
        )
        account.expect((item.binding.name, item.scope) for item in informers)
        for binding in declared.config.answered:
            account.tell(binding.key, "", self.deps.uncalled(declared.ref, binding.key))
        runner = HookRun(
            requests=self.deps.requests,
            runs=self.deps.runs_of(declared),
            operations=self.deps.operations(declared.confined_to),
            ref=declared.ref,
            config=declared.config,
        )
        return ActiveHook(
            declared=declared,
            account=account,
            recorder=recorder,
            informers=informers,
            runner=runner,
        )

    def _catch_up(self, account: HookAccount, declared: DeclaredHook) -> None:
        """Advance the cursors to the last stored requests, which may be later than the status."""
        whole_first = sorted(self._recorded.items(), key=lambda item: item[1].partial)
        for (uid, binding, scope, _), marker in whole_first:
            cursor = account.cursors.get((binding, scope))
            version = "" if cursor is None else cursor.version
            if uid == declared.uid and version_number(marker.version) > version_number(version):
                account.passed(marker)
        # Stored requests of a left namespace are older than its end, so they must not reopen it.
        account.keep_left(frozenset((binding, scope) for _, binding, scope, _ in self._recorded))


def _startup_order(obj: Object) -> tuple[int, str]:
    spec = obj.get("spec") or {}
    order, path = spec.get("onStartup"), spec.get("executable")
    return (order if isinstance(order, int) else 1 << 31, str(path or policy_ref(obj).key))
