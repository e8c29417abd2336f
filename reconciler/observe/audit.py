"""The audit log: which user triggered which rule, and the outcome.

The admission server writes one line of JSON for each trigger before it answers, and the controller
one for each target that it processed. The name of the request links them. A line names users and
objects, and never contains their content.
"""

import logging
import logging.handlers
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Self, TextIO

import orjson
from typing_extensions import override

from reconciler.api.meta import ObjectRef, PolicyRef
from reconciler.api.updaterequest import RequestSpec, TargetStatus, render_time
from reconciler.errors import InvalidSetting
from reconciler.requests.draft import AdmissionRequest, Draft

STDOUT: Final = "-"

Complain = Callable[..., object]


class AuditLog:
    """Appends lines to a destination; without one it does nothing.

    A file is opened for appending, and opened again after it was moved away, so that log
    rotation works.
    """

    def __init__(
        self, handler: logging.Handler | None = None, now: Callable[[], datetime] | None = None
    ) -> None:
        self._handler, self._now = handler, now

    @classmethod
    def to(
        cls,
        place: str,
        now: Callable[[], datetime],
        complain: Complain,
        *,
        stdout: TextIO | None = None,
    ) -> Self:
        """Return a log that writes to a file, to standard output (``-``), or nowhere (empty).

        Args:
            complain: Called with a text and a ``reason`` on the first line that cannot be
                written, and again only after a success.

        Raises:
            InvalidSetting: The file cannot be opened.
        """
        if not place:
            return cls()
        if place == STDOUT:
            return cls(_Stream(stdout or sys.stdout, complain), now)
        try:
            return cls(_File(place, complain), now)
        except OSError as error:
            raise InvalidSetting(f"--audit-log {place}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            self._handler.close()

    def triggered(self, how: str, request: AdmissionRequest, drafts: Iterable[Draft]) -> None:
        """Write a line for each rule that an admission request triggers.

        Args:
            how: ``recorded``, ``joined``, ``aggregated`` or ``lost``.
            drafts: One for each rule.
        """
        if self._handler is None:
            return
        for draft in drafts:
            names = {"request": draft.name}
            if draft.alone and how == "recorded":
                names["ownRequest"] = draft.alone
            self._write(how, names | _rule(draft.spec.policy, draft.spec.rule) | _who(request))

    def changed(self, request: AdmissionRequest, policy: PolicyRef, rule: str) -> None:
        """Write that a rule changed an object before it was stored."""
        if self._handler is None:
            return
        self._write("changed", _rule(policy, rule) | _who(request))

    def worked(self, spec: RequestSpec, targets: Iterable[TargetStatus], name: str = "") -> None:
        """Write the outcome of a rule at targets; ``name`` is that of its request, if any."""
        if self._handler is None:
            return
        for target in targets:
            facts = {
                **_rule(spec.policy, spec.rule),
                "source": spec.source.value,
                "trigger": _object(spec.resource),
                "target": _object(target.ref, target.subresource),
                "outcome": target.outcome.value,
                "before": target.version_before,
                "after": target.version_after,
            }
            self._write("target", ({"request": name} if name else {}) | facts)

    def _write(self, event: str, facts: Mapping[str, Any]) -> None:
        if self._handler is None or self._now is None:
            return
        line = orjson.dumps({"time": render_time(self._now()), "event": event, **facts}).decode()
        self._handler.handle(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))


class _Appending(logging.StreamHandler[TextIO]):
    """Reports the first line that cannot be written, and the next only after a success."""

    complain: Complain
    failing: bool = False

    @override
    def flush(self) -> None:
        super().flush()
        self.failing = False

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        if not self.failing:
            self.complain("audit log cannot be written", reason=str(sys.exc_info()[1]))
        self.failing = True


class _File(_Appending, logging.handlers.WatchedFileHandler):
    def __init__(self, place: str, complain: Complain) -> None:
        logging.handlers.WatchedFileHandler.__init__(self, place, encoding="utf-8")
        self.complain = complain

    @override
    def emit(self, record: logging.LogRecord) -> None:
        # Opening the file is the one step whose errors the handler does not catch.
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


class _Stream(_Appending):
    def __init__(self, stream: TextIO, complain: Complain) -> None:
        super().__init__(stream)
        self.complain = complain


def _rule(policy: PolicyRef, rule: str) -> dict[str, Any]:
    return {"policyKind": policy.kind, "policy": policy.key, "rule": rule}


def _who(request: AdmissionRequest) -> dict[str, Any]:
    return {
        "user": str(request.user.get("username", "")),
        "groups": list(request.user.get("groups") or ()),
        "manager": request.manager,
        "operation": request.operation,
        "trigger": _object(request.ref, request.subresource),
        "uid": request.uid,
    }


def _object(ref: ObjectRef, subresource: str = "") -> dict[str, str]:
    return ref.reference | ({"subresource": subresource} if subresource else {})
