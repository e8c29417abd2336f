"""Patch wars: a rule's change that another writer undoes repeatedly, or that causes itself.

The number of writes is no evidence: a flood of triggers may write one target a thousand times. So
two things count. A *field that goes back*: the rule left a value there, finds another one, and is
about to write the same value again. A *lap*: a trigger that the controller changed makes the rule
write the target again, and the controller's writes lead from that target back to the trigger. Only
digests of values are kept, in this process; a new leader starts counting again.
"""

import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import orjson

from reconciler.api.meta import FIELD_MANAGER, Object, PolicyRef, manager_of, ref_of
from reconciler.clock import Clock, SystemClock
from reconciler.config import render_duration
from reconciler.engine.patch import equal
from reconciler.engine.patch.paths import render_pointer
from reconciler.engine.program import Origin

_MAX_FIELDS: Final = 64
"""The most fields of one write that are compared: a patch war shows in any of them."""
_ABSENT: Final = object()
_NOTHING: Final = b""

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time on the monotonic clock until which a rule skips a target."""

    until: float
    message: str


@dataclass(slots=True)
class _Trace:
    """The value that a rule left in a field, and the times at which it put that value back."""

    left: bytes
    times: deque[float]


@dataclass(slots=True)
class _Field:
    seen: float
    traces: dict[Origin, _Trace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Move:
    place: Place
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The changes that one rule contributes to one write of a target.

    Attributes:
        caused_by: The uids of the rule's triggers that the controller itself changed.
    """

    origin: Origin
    moves: tuple[_Move, ...]
    caused_by: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class Run:
    """The change of an object by consecutive requests of one rule."""

    origin: Origin
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    caused_by: set[str] = field(default_factory=set)

    def go_on(self, after: Mapping[str, Any], caused_by: str) -> None:
        """Add the change by one more request of the rule."""
        self.after = after
        if caused_by:
            self.caused_by.add(caused_by)


def steps_of(obj: Mapping[str, Any], runs: Sequence[Run]) -> tuple[Step, ...]:
    """Return what each rule contributes to one write, without what a later rule overwrote."""
    net = _moves(obj, runs[-1].after) if runs else ()
    caused_by: dict[Origin, set[str]] = {}
    for run in runs:
        caused_by.setdefault(run.origin, set()).update(run.caused_by)
    if len(caused_by) == 1:
        done = dict.fromkeys(caused_by, net)
    else:
        done = {origin: _contributed(origin, net, runs) for origin in caused_by}
    return tuple(
        Step(origin=origin, moves=moves, caused_by=frozenset(caused_by[origin]))
        for origin, moves in done.items()
    )


def _contributed(origin: Origin, net: tuple[_Move, ...], runs: Iterable[Run]) -> tuple[_Move, ...]:
    left: dict[Place, bytes] = {}
    for run in runs:
        if run.origin == origin:
            left |= {move.place: move.after for move in _moves(run.before, run.after)}
    return tuple(move for move in net if left.get(move.place) == move.after)


def _moves(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[_Move, ...]:
    """Return the fields in which objects differ, always the same ones for the same difference."""
    found = sorted(_changes(before, after, ()), key=lambda item: str(item[0]))
    return tuple(
        _Move(place, _digest(old), _digest(new)) for place, old, new in found[:_MAX_FIELDS]
    )


@dataclass(slots=True, kw_only=True)
class PatchWars:
    """Counts repeated changes, and pauses a rule at a target after too many.

    Attributes:
        limit: How often a change may be repeated within the window; with 0 nothing is counted.
        window: Seconds in which repetitions count, and for which a pause lasts.
        remembered: The most fields, and the most laps, to keep; each takes about half a kilobyte.
        begun: Number of pauses that began.
    """

    limit: int = 0
    window: float = 300.0
    remembered: int = 20_000
    clock: Clock = field(default_factory=SystemClock)
    begun: int = 0
    _fields: OrderedDict[tuple[Hashable, Place], _Field] = field(default_factory=OrderedDict)
    _laps: OrderedDict[tuple[Origin, str, str], deque[float]] = field(default_factory=OrderedDict)
    _pauses: dict[tuple[Hashable, Origin], Pause] = field(default_factory=dict)

    def pause(self, target: Hashable, origin: Origin) -> Pause | None:
        """Return the pause of a rule at a target, None where there is none."""
        pause = self._pauses.get((target, origin))
        return pause if pause is not None and self.left(pause) else None

    def forgive(self, policy: PolicyRef, rule: str) -> None:
        """End the pauses of a rule, because a retry was requested."""
        for key in [key for key in self._pauses if (key[1].policy, key[1].rule) == (policy, rule)]:
            del self._pauses[key]

    def left(self, pause: Pause) -> float:
        """Return the seconds until a pause ends."""
        return max(0.0, pause.until - self.clock.monotonic())

    def paused(self) -> int:
        """Return how many targets are paused, each once per rule."""
        now = self.clock.monotonic()
        for key in [key for key, pause in self._pauses.items() if pause.until <= now]:
            del self._pauses[key]
        return len(self._pauses)

    def judge(self, target: Hashable, obj: Object, step: Step) -> bool:
        """Begin a pause if a write would be one repetition too many; return whether it would.

        Args:
            target: A key of the object, always the same one.
            obj: The object as it was read.
            step: The write that is about to be sent.
        """
        why = self._undone(target, obj, step) or self._circle(obj, step)
        if not why:
            return False
        end = self.clock.now() + timedelta(seconds=self.window)
        message = (
            f"{ref_of(obj)}: {why}; {_rule(step.origin)} pauses here until {end:%H:%M:%S} UTC"
        )
        pause = Pause(until=self.clock.monotonic() + self.window, message=message)
        self._pauses[target, step.origin] = pause
        self.begun += 1
        return True

    def written(self, target: Hashable, obj: Object, steps: Iterable[Step]) -> None:
        """Record a stored write; ``obj`` is the object before it."""
        now = self.clock.monotonic()
        uid = ref_of(obj).uid
        for step in steps:
            for move in step.moves:
                self._take_in((target, move.place), step.origin, move, now)
            for cause in step.caused_by:
                lap = step.origin, cause, uid
                self._laps.setdefault(lap, deque(maxlen=self.limit)).append(now)
                self._laps.move_to_end(lap)
        self._forget(now)

    def _take_in(
        self, key: tuple[Hashable, Place], origin: Origin, move: _Move, now: float
    ) -> None:
        known = self._fields.setdefault(key, _Field(now))
        known.seen = now
        self._fields.move_to_end(key)
        # The first write of a value does not count as a return to it.
        first = _Trace(move.before, deque(maxlen=self.limit))
        trace = known.traces.setdefault(origin, first)
        if _goes_back(trace, move):
            trace.times.append(now)
        trace.left = move.after

    def _forget(self, now: float) -> None:
        begin = now - self.window
        while self._fields and (
            len(self._fields) > self.remembered or next(iter(self._fields.values())).seen < begin
        ):
            self._fields.popitem(last=False)
        while self._laps and (
            len(self._laps) > self.remembered or next(iter(self._laps.values()))[-1] < begin
        ):
            self._laps.popitem(last=False)

    def _full(self, times: deque[float]) -> bool:
        begin = self.clock.monotonic() - self.window
        return len(times) == self.limit and times[0] >= begin

    def _undone(self, target: Hashable, obj: Object, step: Step) -> str:
        for move in step.moves:
            known = self._fields.get((target, move.place))
            trace = None if known is None else known.traces.get(step.origin)
            if known is None or trace is None:
                continue
            if _goes_back(trace, move) and self._full(trace.times):
                trace.times.clear()
                ours = [other for other in known.traces if other != step.origin]
                other = _rules(ours) or _last_manager(obj, move.place)
                return f"{render_pointer(move.place)} was undone {self._often}: check {other}"
        return ""

    def _circle(self, obj: Object, step: Step) -> str:
        uid = ref_of(obj).uid
        for cause in step.caused_by:
            times = self._laps.get((step.origin, cause, uid))
            if times is None or not self._full(times) or not self._leads(uid, cause):
                continue
            others = [lap[0] for lap in self._laps if lap[0] != step.origin and uid in lap[1:]]
            del self._laps[step.origin, cause, uid]
            by = f" by {_rules(others)}" if others else ""
            return (
                f"changed {self._often} because of kube-retrofit's own writes, which lead back"
                f" here{by}: remove skipBackgroundRequests: false, or change the rules so that"
                " they converge"
            )
        return ""

    @property
    def _often(self) -> str:
        return f"{self.limit} times within {render_duration(self.window)}"

    def _leads(self, begin: str, end: str) -> bool:
        """Return whether the controller's own writes lead from one object to another."""
        follows: dict[str, set[str]] = {}
        for _, cause, target in self._laps:
            follows.setdefault(cause, set()).add(target)
        seen, ahead = {begin}, [begin]
        while ahead:
            here = ahead.pop()
            if here == end:
                return True
            new = follows.get(here, set()) - seen
            seen |= new
            ahead += new
        return False


def _goes_back(trace: _Trace, move: _Move) -> bool:
    return move.before != trace.left and move.after == trace.left


def _rule(origin: Origin) -> str:
    return f"rule {origin.rule} of policy {origin.policy}"


def _rules(origins: Iterable[Origin]) -> str:
    return " and ".join(sorted({_rule(origin) for origin in origins}))


def _changes(
    before: Mapping[str, Any], after: Mapping[str, Any], place: Place
) -> Iterator[tuple[Place, Any, Any]]:
    for key in before.keys() | after.keys():
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if old is not new:
            yield from _differences(old, new, (*place, key))


def _differences(old: Any, new: Any, place: Place) -> Iterator[tuple[Place, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _changes(old, new, place)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(*pair, (*place, index))
    elif not equal(old, new):
        yield place, old, new


def _digest(value: Any) -> bytes:
    if value is _ABSENT:
        return _NOTHING
    try:
        content = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # An integer beyond 64 bits, or hundreds of levels, which a rule may well remove.
        content = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(content, digest_size=16).digest()


def _last_manager(obj: Object, place: Place) -> str:
    """Return the manager that probably changed a field: its owner, else the last writer."""
    entries = [
        entry
        for entry in (obj.get("metadata") or {}).get("managedFields") or ()
        if manager_of(entry) != FIELD_MANAGER and not entry.get("subresource")
    ]
    owners = [entry for entry in entries if _owns(entry.get("fieldsV1") or {}, place)]
    last = max(owners or entries, key=lambda entry: str(entry.get("time", "")), default=None)
    if last is None:
        return "the other writer of that field"
    return f"manager {last.get('manager')}, which wrote at {last.get('time')}"


def _owns(fields: Mapping[str, Any], place: Place) -> bool:
    for step in place:
        if isinstance(step, int):
            # managedFields names list elements by keys, not by index: the list is close enough.
            return True
        inner = fields.get(f"f:{step}")
        if inner is None:
            return False
        fields = inner
    return True
