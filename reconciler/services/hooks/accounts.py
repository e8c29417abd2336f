"""State of each hook that its status shows, and from which a new leader resumes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from reconciler.api.meta import Object, resource_version, version_number
from reconciler.api.updaterequest import parse_time, render_time
from reconciler.clock import Clock
from reconciler.errors import ClusterError, Conflict, NotFound
from reconciler.hooks.bindings import MAIN_QUEUE, HookConfig
from reconciler.hooks.contexts import ContextType
from reconciler.hooks.declared import DeclaredHook
from reconciler.hooks.ports import HookRef
from reconciler.hooks.records import Passed, Record
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.watching import HookObjects

_EVERY: Final = 1.0
_YEARS: Final = range(2000, 3000)
_UNLISTED: Final = "its objects are not listed yet"
_LONGEST_MESSAGE: Final = 500
_MOST_LEFT: Final = 500
"""Cursors of left namespaces that are kept, so that the status fits into an object."""


@dataclass(slots=True, kw_only=True)
class QueueAccount:
    """A queue of a hook: how many of its requests wait there, and what blocks them."""

    waiting: int = 0
    blocked: str = ""


@dataclass(slots=True, kw_only=True)
class HookAccount:
    """The status of one hook.

    Attributes:
        object: The hook as stored, with the resourceVersion that guards the next write.
        cursors: The progress of each watch, by binding and scope.
        schedules: When each was last due, or from when on it can be missed, by name and crontab.
        started: The generation whose run at the start is recorded.
        problems: Why a binding receives no events, by name and scope, or is not called, by its
            key.
        left_out: Objects of a binding that are left out, by name and scope.
        awaited: The watches that need a cursor before the hook is Ready: later events are then
            found by the next leader too.
        failure: Why the last run failed; empty if it succeeded.
        refused: Why the hook does not compile; empty if it does.
        changed: The status has to be written.
    """

    object: Object
    cursors: dict[tuple[str, str], Passed] = field(default_factory=dict)
    schedules: dict[tuple[str, str], datetime] = field(default_factory=dict)
    started: int = 0
    runs: int = 0
    failed: int = 0
    last_run: datetime | None = None
    queues: dict[str, QueueAccount] = field(default_factory=dict)
    problems: dict[tuple[str, str], str] = field(default_factory=dict)
    left_out: dict[tuple[str, str], str] = field(default_factory=dict)
    awaited: frozenset[tuple[str, str]] = frozenset()
    failure: str = ""
    refused: str = ""
    changed: bool = True

    @classmethod
    def of(cls, obj: Object) -> "HookAccount":
        """Return the account that the status of a stored hook holds."""
        status = obj.get("status") or {}
        due = (
            ((_text(item, "binding"), _text(item, "crontab")), _moment(item.get("last")))
            for item in _list(status, "schedules")
        )
        return cls(
            object=obj,
            cursors={item.key: item for item in map(_cursor, _list(status, "cursors"))},
            schedules={key: moment for key, moment in due if moment is not None},
            started=_count(status, "startedGeneration"),
            runs=_count(status, "runs"),
            failed=_count(status, "failed"),
            last_run=parse_time(status.get("lastRun")),
        )

    def passed(self, marker: Passed) -> None:
        """Record the progress of a watch: all before a version is recorded, or part of it."""
        known = self.cursors.get(marker.key)
        if marker.partial and known is not None and not known.left:
            return
        self.cursors[marker.key] = marker
        if marker.left:
            self._forget_left()
        self.changed = True

    def _forget_left(self) -> None:
        """Forget the namespaces that were left first, if there are too many.

        A later leader that finds a request of one that is forgotten leaves it once more.
        """
        left = [key for key, cursor in self.cursors.items() if cursor.left]
        left.sort(key=lambda key: version_number(self.cursors[key].version), reverse=True)
        for key in left[_MOST_LEFT:]:
            del self.cursors[key]

    def keep(self, config: HookConfig) -> None:
        """Forget the state of bindings that the hook no longer has."""
        watched = {binding.name for binding in config.kubernetes}
        due = {(binding.name, binding.crontab) for binding in config.schedules}
        self.cursors = {key: item for key, item in self.cursors.items() if key[0] in watched}
        self.schedules = {key: item for key, item in self.schedules.items() if key in due}
        named = {binding.queue for binding in config.recorded}
        names = named or {MAIN_QUEUE}
        self.queues = {name: self.queues.get(name, QueueAccount()) for name in names}

    def expect(self, watches: Iterable[tuple[str, str]]) -> None:
        """Make Ready depend on a cursor for each of these watches, given by binding and scope.

        Problems of earlier watches are forgotten.
        """
        self.awaited, self.left_out = frozenset(watches), {}
        self.problems = {key: f"{key[0]}: {_UNLISTED}" for key in sorted(self.awaited)}

    def wait(self, queue: str, waiting: int, blocked: str) -> None:
        """Record how many requests of the hook wait in a queue, and what blocks them."""
        account = self.queues.setdefault(queue, QueueAccount())
        if (account.waiting, account.blocked) != (waiting, blocked):
            account.waiting, account.blocked = waiting, blocked
            self.changed = True

    def tell(self, binding: str, scope: str, problem: str) -> None:
        """Record why a binding receives no events in a scope; an empty text clears it."""
        self._put(self.problems, (binding, scope), problem)

    def tell_left_out(self, binding: str, scope: str, said: str) -> None:
        """Record which objects of a binding are left out; an empty text clears it."""
        self._put(self.left_out, (binding, scope), said)

    def _put(self, texts: dict[tuple[str, str], str], key: tuple[str, str], text: str) -> None:
        if texts.get(key, "") == text:
            return
        texts[key] = text
        if not text:
            del texts[key]
        self.changed = True

    def scopes_of(self, binding: str) -> frozenset[str]:
        """Return the namespaces whose objects a binding has passed to the hook."""
        given = (key for key, cursor in self.cursors.items() if not cursor.left)
        return frozenset(scope for name, scope in given if name == binding and scope)

    def keep_left(self, recorded: Collection[tuple[str, str]]) -> None:
        """Forget namespaces that were left, except those with requests that are still stored."""
        self.cursors = {
            key: cursor
            for key, cursor in self.cursors.items()
            if not cursor.left or key in recorded
        }

    def restart(self, binding: str) -> None:
        """Forget the cursors of a binding, so that it starts anew."""
        self.cursors = {key: item for key, item in self.cursors.items() if key[0] != binding}

    def begin(self, config: HookConfig, moment: datetime) -> None:
        """Start new schedules at a moment; due times after it can be missed and made up for."""
        for binding in config.schedules:
            self.schedules.setdefault((binding.name, binding.crontab), moment)

    def noted(self, record: Record) -> None:
        """Record that a request is stored for a start or a schedule, which no watch reports."""
        if record.context.type is ContextType.STARTUP:
            self.started = int(record.at)
        elif (moment := parse_time(record.at)) is not None:
            self.schedules[record.context.binding, record.scope] = moment
        self.changed = True

    def ran(self, moment: datetime, failure: str, *, counts: bool) -> None:
        """Record a run that has ended."""
        self.runs += 1
        self.failed += bool(failure)
        self.last_run = moment
        self.failure = failure if counts else ""
        self.changed = True

    @property
    def problem(self) -> str:
        """Return why a binding receives no events, empty if all work."""
        unseen = (
            f"{binding}: {_UNLISTED}"
            for binding, scope in sorted(self.awaited)
            if (binding, scope) not in self.cursors
        )
        return next(filter(None, self.problems.values()), "") or next(unseen, "")

    def render(self, now: datetime) -> dict[str, Any]:
        """Return the status as it is stored."""
        if self.refused:
            return refused_status(self.object, self.refused, now)
        queues = dict(sorted(self.queues.items()))
        blocked = next((item.blocked for item in queues.values() if item.blocked), "")
        left_out = next(iter(self.left_out.values()), "")
        return {
            **_observed(self.object, self.problem, now),
            "startedGeneration": self.started,
            "queues": [
                {"name": name, "waiting": item.waiting, "blocked": item.blocked}
                for name, item in queues.items()
            ],
            "queue": ",".join(queues),
            "waiting": sum(item.waiting for item in queues.values()),
            "runs": self.runs,
            "failed": self.failed,
            "lastRun": None if self.last_run is None else render_time(self.last_run),
            "message": (self.problem or blocked or self.failure or left_out)[:_LONGEST_MESSAGE],
            "cursors": [_rendered(self.cursors[key]) for key in sorted(self.cursors)],
            "schedules": [
                {"binding": name, "crontab": crontab, "last": render_time(moment)}
                for (name, crontab), moment in sorted(self.schedules.items())
            ],
        }


def refused_status(obj: Object, reason: str, now: datetime) -> dict[str, Any]:
    """Return the status of a hook that does not compile."""
    return {**_observed(obj, reason, now), "message": reason[:_LONGEST_MESSAGE]}


def _observed(obj: Object, problem: str, now: datetime) -> dict[str, Any]:
    """Return the generation and the conditions of a status."""
    generation = int((obj.get("metadata") or {}).get("generation", 0))
    status = "False" if problem else "True"
    known = _list(obj.get("status") or {}, "conditions")
    before = next((item for item in known if item.get("type") == "Ready"), {})
    same = before.get("status") == status
    ready = {
        "type": "Ready",
        "status": status,
        "reason": "NotReady" if problem else "Following",
        "message": problem[:_LONGEST_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": before.get("lastTransitionTime") if same else render_time(now),
    }
    return {"observedGeneration": generation, "conditions": [ready]}


def _list(raw: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    # Users with rights on the status may have put anything there.
    found = raw.get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _text(raw: Mapping[str, Any], name: str) -> str:
    return raw[name] if isinstance(raw.get(name), str) else ""


def _count(raw: Mapping[str, Any], name: str) -> int:
    return raw[name] if isinstance(raw.get(name), int) else 0


def _cursor(raw: Mapping[str, Any]) -> Passed:
    return Passed(
        binding=_text(raw, "binding"),
        scope=_text(raw, "namespace"),
        watched=_text(raw, "watched"),
        version=_text(raw, "resourceVersion"),
        partial=raw.get("partial") is True,
        left=raw.get("left") is True,
    )


def _rendered(cursor: Passed) -> dict[str, Any]:
    found = {
        "binding": cursor.binding,
        "namespace": cursor.scope,
        "watched": cursor.watched,
        "resourceVersion": cursor.version,
    }
    marks = {"partial": cursor.partial, "left": cursor.left}
    return found | {name: mark for name, mark in marks.items() if mark}


def _moment(raw: Any) -> datetime | None:
    """Return a time from which a schedule can be searched, None for any other value."""
    found = parse_time(raw)
    return found if found is not None and found.year in _YEARS else None


@dataclass(slots=True, kw_only=True)
class HookAccounts:
    """Writes the statuses of hooks, each at most once a second; only the leader does."""

    hooks: HookObjects
    clock: Clock
    warn: Callable[[str], None]
    _accounts: dict[HookRef, HookAccount] = field(default_factory=dict)

    def open(self, hook: DeclaredHook, obj: Object) -> HookAccount:
        """Return the account of a hook that compiled, reusing an existing one."""
        account = self._changed(hook.ref, obj)
        account.keep(hook.config)
        account.begin(hook.config, self.clock.now())
        return account

    def on_stored(self, ref: HookRef, obj: Object) -> None:
        """Keep a newer version of a known hook."""
        account = self._accounts.get(ref)
        if account is not None and _is_newer(obj, account.object):
            account.object = obj

    def refuse(self, ref: HookRef, obj: Object, reason: str) -> None:
        """Have the status report that a hook does not compile."""
        self._changed(ref, obj, refused=reason)

    def _changed(self, ref: HookRef, obj: Object, *, refused: str = "") -> HookAccount:
        account = self._accounts.get(ref)
        uid = (obj.get("metadata") or {}).get("uid")
        if account is None or (account.object.get("metadata") or {}).get("uid") != uid:
            account = self._accounts[ref] = HookAccount.of(obj)
        account.object, account.refused, account.changed = obj, refused, True
        return account

    def close(self, ref: HookRef) -> None:
        """Forget a hook that is gone."""
        self._accounts.pop(ref, None)

    def of(self, ref: HookRef) -> HookAccount | None:
        """Return the account of a hook, None if it has none."""
        return self._accounts.get(ref)

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(queue.waiting for queue in self._queues())

    @property
    def blocked(self) -> int:
        """Return how many queues are blocked; a shared one counts once for each hook in it."""
        return sum(bool(queue.blocked) for queue in self._queues())

    def _queues(self) -> Iterator[QueueAccount]:
        for account in self._accounts.values():
            yield from account.queues.values()

    async def run(self) -> None:
        """Write changed statuses until cancelled."""
        await repeat(
            self.flush,
            every=_EVERY,
            pauses=(_EVERY, 15.0),
            tell=WarnsOnce(warn=self.warn).tell,
            failing="the status of hooks cannot be written: ",
        )

    async def flush(self) -> None:
        """Write the statuses that have changed; a failure at one does not stop the others.

        Raises:
            ClusterError: The first failure.
        """
        now = self.clock.now()
        errors: list[ClusterError] = []
        for account in list(self._accounts.values()):
            if account.changed:
                try:
                    await self._flush(account, now)
                except ClusterError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def _flush(self, account: HookAccount, now: datetime) -> None:
        account.changed = False
        written = None
        try:
            written = await self._write(account.object, account.render(now))
        finally:
            if written is None:
                # On a conflict the watch delivers the newer version; otherwise the write failed.
                account.changed = True
            elif _is_newer(written, account.object):
                account.object = written

    async def _write(self, obj: Object, status: Mapping[str, Any]) -> Object | None:
        try:
            return await self.hooks.write_status(obj, status)
        except Conflict:
            return None
        except NotFound:
            return obj


def _is_newer(one: Object, other: Object) -> bool:
    return version_number(resource_version(one)) >= version_number(resource_version(other))
