"""Functions on times and durations, all as text."""

from collections.abc import Mapping

from reconciler.engine.values.gotime.layout import RFC3339, parse_time
from reconciler.engine.values.gotime.timestamp import Instant, from_datetime, from_epoch
from reconciler.engine.values.scalars import format_duration, parse_duration, parse_int
from reconciler.languages.jmespath.functions.signature import TEXT, Function, Refused, extension
from reconciler.languages.jmespath.limits import Run

_LONGEST_DURATION = (1 << 63) - 1
_LONGEST = 256
_COMPILING = 64  # a character of a layout takes as long as copying this many
_NOW = 384  # writing the current time takes as long as copying this many characters


def _time_now_utc(run: Run) -> str:
    now = _now(run)
    return _text(Instant(nanoseconds=now.nanoseconds, offset=0))


def _time_since(run: Run, layout: str, start: str, end: str) -> str:
    first = _parse(run, layout or RFC3339, start, position=2)
    last = _parse(run, layout or RFC3339, end, position=3) if end else _now(run)
    return _difference(first, last)


def _time_add(run: Run, time: str, duration: str) -> str:
    at, span = _time(run, time, 1), _duration(duration)
    return _text(Instant(nanoseconds=at.nanoseconds + span, offset=at.offset))


def _time_parse(run: Run, layout: str, time: str) -> str:
    if parse_int(layout) is None:
        return _text(_parse(run, layout, time, position=2))
    seconds = parse_int(time)
    if seconds is None:
        raise Refused("argument #2 is not a number of seconds since 1970")
    return _text(from_epoch(seconds))


def _time_to_cron(run: Run, time: str) -> str:
    at = _time(run, time, 1)
    civil = at.civil()
    return f"{civil.minute} {civil.hour} {civil.day} {civil.month} {at.weekday()}"


def _time_utc(run: Run, time: str) -> str:
    at = _time(run, time, 1)
    return _text(Instant(nanoseconds=at.nanoseconds, offset=0))


def _time_diff(run: Run, start: str, end: str) -> str:
    return _difference(_time(run, start, 1), _time(run, end, 2))


def _time_before(run: Run, time: str, other: str) -> bool:
    return _time(run, time, 1).nanoseconds < _time(run, other, 2).nanoseconds


def _time_after(run: Run, time: str, other: str) -> bool:
    return _time(run, time, 1).nanoseconds > _time(run, other, 2).nanoseconds


def _time_between(run: Run, time: str, start: str, end: str) -> bool:
    at, first, last = (
        _time(run, text, position).nanoseconds
        for position, text in enumerate((time, start, end), 1)
    )
    return first < at < last


def _time_truncate(run: Run, time: str, duration: str) -> str:
    at, span = _time(run, time, 1), _duration(duration)
    surplus = at.nanoseconds % span if span > 0 else 0
    return _text(Instant(nanoseconds=at.nanoseconds - surplus, offset=at.offset))


def _now(run: Run) -> Instant:
    run.read(_NOW)
    if run.environment.now is None:
        raise Refused("the current time is not available here; use a time from an object")
    return from_datetime(run.environment.now)


def _time(run: Run, text: str, position: int) -> Instant:
    return _parse(run, RFC3339, text, position=position)


def _parse(run: Run, layout: str, text: str, *, position: int) -> Instant:
    if len(layout) > _LONGEST or len(text) > _LONGEST:
        raise Refused(f"a time or layout is longer than {_LONGEST} characters")
    run.read(len(layout) * _COMPILING)
    try:
        return parse_time(layout, text)
    except ValueError as error:
        reason = f"argument #{position} is not a time in the layout {layout}: {error}"
        raise Refused(reason) from None


def _duration(text: str) -> int:
    span = parse_duration(text) if len(text) <= _LONGEST else None
    if span is None:
        raise Refused("argument #2 is not a duration, as 1h30m")
    return span


def _difference(start: Instant, end: Instant) -> str:
    span = end.nanoseconds - start.nanoseconds
    return format_duration(max(-_LONGEST_DURATION - 1, min(_LONGEST_DURATION, span)))


def _text(instant: Instant) -> str:
    try:
        return instant.rfc3339()
    except ValueError as error:
        raise Refused(f"the result cannot be written: {error}") from None


FUNCTIONS: Mapping[str, Function] = {
    "time_add": extension(_time_add, TEXT, TEXT),
    "time_after": extension(_time_after, TEXT, TEXT),
    "time_before": extension(_time_before, TEXT, TEXT),
    "time_between": extension(_time_between, TEXT, TEXT, TEXT),
    "time_diff": extension(_time_diff, TEXT, TEXT),
    "time_now": extension(lambda run: _text(_now(run)), pure=False),
    "time_now_utc": extension(_time_now_utc, pure=False),
    "time_parse": extension(_time_parse, TEXT, TEXT),
    "time_since": extension(_time_since, TEXT, TEXT, TEXT, pure=False),
    "time_to_cron": extension(_time_to_cron, TEXT),
    "time_truncate": extension(_time_truncate, TEXT, TEXT),
    "time_utc": extension(_time_utc, TEXT),
}
