"""The record of outages: spans in which policies were not in force and triggers may be lost.

A span begins when the policies were last seen in force, not when the outage was noticed. All
times are those of the API server's clock. The module does no I/O.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import orjson

from reconciler.api.updaterequest import parse_time, render_time

_PARTLY_EVERY = timedelta(seconds=60)
"""How often an ongoing span is searched for the triggers that it has lost so far."""
_QUIET = timedelta(seconds=15)
_MOST = 500
"""The number of spans that are stored one by one; more are stored as a single span."""

_Key = tuple[str, bool]
_ALL: Final[_Key] = ("", False)


class Cause(StrEnum):
    """Why triggers were not recorded; mostly also the reason of the condition Ready meanwhile.

    UNRECORDED: No admission server recorded them, which only ``Ignore`` allows.
    """

    MISSING = "WebhookMissing"
    CHANGED = "WebhookChanged"
    AUTHORITY = "NoCertificateAuthority"
    KIND = "KindNotServed"
    UNINSTALLING = "Uninstalling"
    UNWATCHED = "NobodyLed"
    UNRECORDED = "NotRecorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One span.

    Attributes:
        policy: The uid of the policy concerned, empty for all policies.
        changing: Only rules without targets are concerned: triggers of the others were recorded.
        until: When the policies were in force again, None while they are not.
        searched: The time up to which its triggers were searched for, None if not at all.
    """

    policy: str = ""
    changing: bool = False
    cause: Cause
    since: datetime
    until: datetime | None = None
    searched: datetime | None = None

    @property
    def key(self) -> _Key:
        """Return what is concerned; at most one span for each is ongoing."""
        return self.policy, self.changing


@dataclass(slots=True)
class Outages:
    """The ongoing spans, and the ended ones that have not been searched for triggers yet.

    Attributes:
        revision: Increases with each change, which shows when to store the spans.
    """

    revision: int = 0
    _open: dict[_Key, Outage] = field(default_factory=dict)
    _ended: list[Outage] = field(default_factory=list)

    def begin(
        self, cause: Cause, since: datetime, *, policy: str = "", changing: bool = False
    ) -> None:
        """Record that policies are not in force; an ongoing span is kept unchanged."""
        outage = Outage(policy=policy, changing=changing, cause=cause, since=since)
        if outage.key not in self._open:
            self._open[outage.key] = outage
            self.revision += 1

    def end(self, until: datetime, *, policy: str = "") -> None:
        """Record that policies are in force again, if they were not."""
        for changing in (False, True):
            if outage := self._open.pop((policy, changing), None):
                self._ended.append(replace(outage, until=max(until, outage.since)))
                self.revision += 1

    def add(self, cause: Cause, since: datetime, until: datetime) -> None:
        """Record a span that is over; it is merged with one of the same cause that it meets."""
        for index, item in enumerate(self._ended):
            if item.cause is cause and item.until is not None and since <= item.until:
                self._ended[index] = replace(item, until=max(item.until, until))
                break
        else:
            self._ended.append(Outage(cause=cause, since=since, until=until))
        self.revision += 1

    def is_open(self, policy: str = "") -> bool:
        """Return whether a span is ongoing for one policy, or if empty, for all of them."""
        return (policy, False) in self._open

    def widen(self, since: datetime) -> None:
        """Move the beginning of the ongoing span of all policies to an earlier time."""
        outage = self._open.get(_ALL)
        if outage is not None and since < outage.since:
            self._open[_ALL] = replace(outage, since=since, searched=None)
            self.revision += 1

    def due(self, before: datetime) -> tuple[Outage, ...]:
        """Return the spans to search, given the time up to which all requests are known."""
        ended = [item for item in self._ended if _is_due(item, before)]
        going_on = self._open.get(_ALL)
        if going_on and before - (going_on.searched or going_on.since) >= _PARTLY_EVERY:
            ended.append(going_on)
        return tuple(ended)

    def done(self, outages: Collection[Outage], before: datetime) -> None:
        """Record that spans were searched up to a moment."""
        kept = [item for item in self._ended if item not in outages]
        going_on = self._open.get(_ALL)
        if going_on is not None and going_on in outages:
            self._open[_ALL] = replace(going_on, searched=before)
        elif len(kept) == len(self._ended):
            return
        self._ended = kept
        self.revision += 1

    def earliest(self) -> datetime | None:
        """Return the time from which known requests must be kept, None if none are needed."""
        return min((item.since for item in self._all()), default=None)

    def forget(self, policies: Collection[str]) -> None:
        """Drop the spans of single policies that are not among the given uids."""
        gone = {item.policy for item in self._all() if item.policy} - set(policies)
        if gone:
            self._open = {key: item for key, item in self._open.items() if key[0] not in gone}
            self._ended = [item for item in self._ended if item.policy not in gone]
            self.revision += 1

    def dump(self) -> str:
        """Return all spans as JSON, empty if there are none."""
        outages = list(self._all())
        if len(outages) > _MOST:
            since = min(item.since for item in outages)
            outages = [Outage(cause=outages[0].cause, since=since)]
        return orjson.dumps([_render(item) for item in outages]).decode() if outages else ""

    def load(self, text: str) -> None:
        """Add the spans that another process dumped."""
        for outage in _parse(text):
            if outage.until is not None:
                self._ended.append(outage)
            else:
                self._open.setdefault(outage.key, outage)

    def _all(self) -> Iterable[Outage]:
        yield from self._open.values()
        yield from self._ended


def concerning(outages: Iterable[Outage], policy: str, *, ignores: bool) -> list[Outage]:
    """Return the spans in which a policy may have lost triggers.

    Args:
        policy: The uid of the policy.
        ignores: Whether its failure policy is Ignore.
    """
    return [
        item
        for item in outages
        if item.policy in ("", policy) and (ignores or item.cause is not Cause.UNRECORDED)
    ]


def _is_due(outage: Outage, before: datetime) -> bool:
    if outage.until is None or outage.until > before:
        return False
    if outage.cause is not Cause.UNRECORDED:
        return True
    # A continuous loss is added as many consecutive spans: wait for its end, or for a minute.
    return before - outage.until >= _QUIET or before - outage.since >= _PARTLY_EVERY


def _render(outage: Outage) -> dict[str, str | bool]:
    times = {"since": outage.since, "until": outage.until, "searched": outage.searched}
    return {
        "policy": outage.policy,
        "changing": outage.changing,
        "cause": outage.cause.value,
        **{name: render_time(moment) for name, moment in times.items() if moment is not None},
    }


def _parse(text: str) -> Iterable[Outage]:
    try:
        items = orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        return
    for item in items if isinstance(items, list) else ():
        known = isinstance(item, dict) and item.get("cause") in frozenset(Cause)
        since = parse_time(item.get("since")) if known else None
        if since is not None:
            yield Outage(
                policy=str(item.get("policy", "")),
                changing=item.get("changing") is True,
                cause=Cause(item["cause"]),
                since=since,
                until=parse_time(item.get("until")),
                searched=parse_time(item.get("searched")),
            )
