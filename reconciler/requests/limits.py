"""Parses the annotations that limit how a policy's work is rolled out.

Annotations do not change a policy's generation, so a limit takes effect at once, also for work
that is under way, and starts no work.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from reconciler.api.meta import (
    ANNOTATION_ALL_KINDS,
    ANNOTATION_EXISTING,
    ANNOTATION_RUN,
    ANNOTATION_SERVICE_ACCOUNT,
    PREFIX,
    Object,
)
from reconciler.api.updaterequest import Reason
from reconciler.engine.match.selectors import LabelSelector, compile_selector
from reconciler.errors import InvalidPolicy
from reconciler.requests.lifecycle import Defer
from reconciler.requests.windows import Window, opens, parse_windows

PAUSED: Final = f"{PREFIX}paused"
WINDOW: Final = f"{PREFIX}window"
RATE: Final = f"{PREFIX}rate"
BATCH: Final = f"{PREFIX}batch-size"
FAILURES: Final = f"{PREFIX}max-failures"
CANARY: Final = f"{PREFIX}canary"
PROMOTE: Final = f"{PREFIX}promote"
NAMES: Final = (PAUSED, WINDOW, RATE, BATCH, FAILURES, CANARY, PROMOTE)
_KNOWN: Final = (
    *NAMES,
    ANNOTATION_RUN,
    ANNOTATION_EXISTING,
    ANNOTATION_ALL_KINDS,
    ANNOTATION_SERVICE_ACCOUNT,
)
KNOWN: Final = ", ".join(name.removeprefix(PREFIX) for name in _KNOWN)
AUTO: Final = "auto"

_RATE: Final = re.compile(r"(\d{1,6})\s*/\s*(s|m|h)")
_PER: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_WHOLE: Final = re.compile(r"[1-9]\d{0,5}")
_TERM: Final = re.compile(
    r"(?P<absent>!)?(?P<key>[^=!,\s]+)\s*(?:(?P<op>!=|==?)\s*(?P<value>[^=!,\s]*))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How a policy's work is rolled out.

    Attributes:
        windows: When the work may be done; empty for always.
        rate: Triggers per second, 0 for no limit.
        batch: Triggers of a sweep that are worked on at the same time, 0 for no limit.
        failures: Failed triggers at which a sweep stops, 0 for no limit.
        canary: Label selector of the triggers that a sweep does first, as written; empty for none.
        promote: `AUTO`, or the generation of the policy whose canaries a user has approved.
    """

    paused: bool = False
    windows: tuple[Window, ...] = ()
    rate: float = 0.0
    batch: int = 0
    failures: int = 0
    canary: str = ""
    promote: str = ""

    def hold(self, now: datetime) -> Defer | None:
        """Return why the policy's work may not be done now, None where it may."""
        if self.paused:
            return Defer(
                reason=Reason.PAUSED, message=f"the policy is paused: annotation {PAUSED}"
            )
        until = opens(self.windows, now) if self.windows else None
        if until is None:
            return None
        message = f"outside of the policy's hours, which begin {until:%a %Y-%m-%d %H:%M %Z}"
        return Defer(reason=Reason.OUTSIDE_WINDOW, message=message, until=until)


NO_LIMITS: Final = Limits()


def parse_limits(policy: Mapping[str, Any]) -> Limits:
    """Return the limits in the annotations of a policy object.

    Raises:
        InvalidPolicy: A value cannot be parsed; the error has its place and what to write.
    """
    found = _annotations(policy)
    if not any(name in found for name in NAMES):
        return NO_LIMITS
    return Limits(
        paused=_read(found, PAUSED, _flag) or False,
        windows=_read(found, WINDOW, parse_windows) or (),
        rate=_read(found, RATE, _rate) or 0.0,
        batch=_read(found, BATCH, _whole) or 0,
        failures=_read(found, FAILURES, _whole) or 0,
        canary=_read(found, CANARY, _labels) or "",
        promote=_read(found, PROMOTE, _promote) or "",
    )


def limits_of(policy: Mapping[str, Any]) -> Object:
    """Return kube-retrofit's annotations of a policy, as they are written."""
    found = _annotations(policy)
    return {name: value for name, value in found.items() if name.startswith(PREFIX)}


def unread(policy: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of kube-retrofit's annotations that have no meaning."""
    return tuple(name for name in limits_of(policy) if name not in _KNOWN)


def compile_labels(text: str, location: str = "") -> LabelSelector:
    """Compile ``a=b,c!=d,e,!f``, all of which must hold.

    Raises:
        InvalidPolicy: The text has another form.
    """
    terms = [_term(part.strip(), location) for part in text.split(",")]
    return compile_selector({"matchExpressions": terms}, location=location)


def _annotations(policy: Mapping[str, Any]) -> Mapping[str, str]:
    meta = policy.get("metadata")
    found = meta.get("annotations") if isinstance(meta, dict) else None
    return found if isinstance(found, dict) else {}


def place_of(name: str) -> str:
    """Return the location of an annotation in a policy."""
    return f"metadata.annotations[{name}]"


def _read(found: Mapping[str, Any], name: str, parse: Callable[[str, str], Any]) -> Any:
    if name not in found:
        return None
    return parse(str(found[name]).strip(), place_of(name))


def _flag(text: str, location: str) -> bool:
    if text in {"true", "false"}:
        return text == "true"
    raise InvalidPolicy(location, f"{text!r} is neither true nor false")


def _rate(text: str, location: str) -> float:
    found = _RATE.fullmatch(text)
    if found is None or not int(found[1]):
        reason = (
            f"{text!r} is not a rate; write triggers per second, minute or hour, such as 10/s or"
            " 30/m"
        )
        raise InvalidPolicy(location, reason)
    return int(found[1]) / _PER[found[2]]


def _whole(text: str, location: str) -> int:
    if _WHOLE.fullmatch(text):
        return int(text)
    raise InvalidPolicy(location, f"{text!r} is not a whole number from 1 to 999999")


def _promote(text: str, location: str) -> str:
    if text == AUTO or _WHOLE.fullmatch(text):
        return text
    reason = f"{text!r} is neither {AUTO} nor a generation of the policy (metadata.generation)"
    raise InvalidPolicy(location, reason)


def _labels(text: str, location: str) -> str:
    compile_labels(text, location)
    return text


def _term(text: str, location: str) -> Object:
    found = _TERM.fullmatch(text)
    if found is None or (found["absent"] and found["op"]):
        reason = (
            f"{text!r} is not a label selector; write it like env=test, env!=prod, canary or !prod"
        )
        raise InvalidPolicy(location, reason)
    if found["op"] is None:
        return {"key": found["key"], "operator": "DoesNotExist" if found["absent"] else "Exists"}
    operator = "NotIn" if found["op"] == "!=" else "In"
    return {"key": found["key"], "operator": operator, "values": [found["value"]]}
