"""Spans in which policies were not in force, so that nobody was asked about their triggers; pure.

A span begins at the last moment at which everything was seen in its place, not when somebody
noticed that it is not. All times are the API server's.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

import orjson

from reconciler.api.updaterequest import parse_time, render_time

_PARTLY_EVERY = timedelta(seconds=60)
"""How often what a span that goes on has lost so far is looked for."""
_QUIET = timedelta(seconds=15)
_MOST = 500
"""Spans of single policies that are stored one by one."""


class Cause(StrEnum):
    """Why nobody recorded triggers; mostly also the reason of the condition Ready meanwhile.

    UNRECORDED: no admission server did, which lets triggers pass under Ignore only.
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
        policy: The uid of the only policy concerned; empty for all of them.
        until: When everything was in force again, None while it is not.
        searched: Up to when its triggers were looked for already, None for not at all.
    """

    policy: str = ""
    cause: Cause
    since: datetime
    until: datetime | None = None
    searched: datetime | None = None


@dataclass(slots=True)
class Outages:
    """The spans that go on, and those in which nobody has looked for triggers yet.

    Attributes:
        revision: Another number after each change, so that it can be stored when it must.
    """

    revision: int = 0
    _open: dict[str, Outage] = field(default_factory=dict)
    _ended: list[Outage] = field(default_factory=list)

    def begin(self, cause: Cause, since: datetime, *, policy: str = "") -> None:
        """Take in that policies are not in force; one that goes on is the same span."""
        if policy not in self._open:
            self._open[policy] = Outage(policy=policy, cause=cause, since=since)
            self.revision += 1

    def end(self, until: datetime, *, policy: str = "") -> None:
        """Take in that they are in force again, if they were not."""
        if outage := self._open.pop(policy, None):
            self._ended.append(replace(outage, until=max(until, outage.since)))
            self.revision += 1

    def add(self, cause: Cause, since: datetime, until: datetime) -> None:
        """Take in a span that is over; with one that ended in it, it is one."""
        for index, item in enumerate(self._ended):
            if item.cause is cause and item.until is not None and since <= item.until:
                self._ended[index] = replace(item, until=max(item.until, until))
                break
        else:
            self._ended.append(Outage(cause=cause, since=since, until=until))
        self.revision += 1

    def is_open(self, policy: str = "") -> bool:
        """Return whether a policy is in no force of its own, or all are for an empty one."""
        return policy in self._open

    def widen(self, since: datetime) -> None:
        """Let the span of all policies that goes on begin earlier."""
        outage = self._open.get("")
        if outage is not None and since < outage.since:
            self._open[""] = replace(outage, since=since, searched=None)
            self.revision += 1

    def due(self, before: datetime) -> tuple[Outage, ...]:
        """Return the spans to look into, given up to when all requests are known."""
        ended = [item for item in self._ended if _is_due(item, before)]
        going_on = self._open.get("")
        if going_on is not None:
            looked = going_on.searched or going_on.since
            if before - looked >= _PARTLY_EVERY:
                ended.append(going_on)
        return tuple(ended)

    def done(self, outages: Collection[Outage], before: datetime) -> None:
        """Take in that spans were looked into up to a moment."""
        kept = [item for item in self._ended if item not in outages]
        going_on = self._open.get("")
        if going_on is not None and going_on in outages:
            self._open[""] = replace(going_on, searched=before)
        elif len(kept) == len(self._ended):
            return
        self._ended = kept
        self.revision += 1

    def earliest(self) -> datetime | None:
        """Return from when on requests must not be forgotten, None where none are needed."""
        return min((item.since for item in self._all()), default=None)

    def forget(self, policies: Collection[str]) -> None:
        """Drop the spans of all single policies but those given."""
        gone = {item.policy for item in self._all() if item.policy} - set(policies)
        if gone:
            self._open = {key: item for key, item in self._open.items() if key not in gone}
            self._ended = [item for item in self._ended if item.policy not in gone]
            self.revision += 1

    def dump(self) -> str:
        """Return all of it as text, empty where there is nothing."""
        outages = list(self._all())
        if len(outages) > _MOST:
            since = min(item.since for item in outages)
            outages = [Outage(cause=outages[0].cause, since=since)]
        return orjson.dumps([_render(item) for item in outages]).decode() if outages else ""

    def load(self, text: str) -> None:
        """Take in what another process dumped."""
        for outage in _parse(text):
            if outage.until is not None:
                self._ended.append(outage)
            elif outage.policy not in self._open:
                self._open[outage.policy] = outage

    def _all(self) -> Iterable[Outage]:
        yield from self._open.values()
        yield from self._ended


def concerning(outages: Iterable[Outage], policy: str, *, ignores: bool) -> list[Outage]:
    """Return those of some spans in which a policy may have lost triggers.

    Args:
        outages: The spans.
        policy: Its uid.
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
    # While triggers are lost all the time, that is many spans which follow each other.
    return before - outage.until >= _QUIET or before - outage.since >= _PARTLY_EVERY


def _render(outage: Outage) -> dict[str, str]:
    times = {"since": outage.since, "until": outage.until, "searched": outage.searched}
    return {
        "policy": outage.policy,
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
                cause=Cause(item["cause"]),
                since=since,
                until=parse_time(item.get("until")),
                searched=parse_time(item.get("searched")),
            )
