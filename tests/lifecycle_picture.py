"""The state diagram of requests in docs/reference/updaterequest.md, derived from the code.

``python -m tests.lifecycle_picture`` updates it.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from reconciler.api.updaterequest import Reason, RequestStatus, State
from reconciler.requests.lifecycle import (
    FINAL,
    MOST_INTERRUPTIONS,
    Defer,
    Disposition,
    Done,
    Fail,
    Retention,
    Retry,
    Skip,
    advance,
    reopen,
)
from tests.architecture.conftest import ROOT

PAGE = ROOT / "docs/reference/updaterequest.md"
PICTURE = re.compile(r"(?<=^```mermaid\n)stateDiagram-v2\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)
EXAMPLES: dict[type[Disposition], Disposition] = {
    Done: Done(),
    Skip: Skip(reason=Reason.NO_MATCH, message=""),
    Fail: Fail(reason=Reason.FAILED, message=""),
    Retry: Retry(reason=Reason.CONFLICT, message="", retry_after=1),
    Defer: Defer(reason=Reason.PAUSED, message=""),
}
LABELS = {
    Done: "every target has its result",
    Skip: "nothing to do",
    Fail: "repeating would not help",
    Retry: "may still succeed",
    Defer: "held back, no attempt",
}
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_KEPT = Retention(seconds={})


def draw() -> str:
    """Return the diagram in mermaid's syntax."""
    return "stateDiagram-v2\n" + "".join(f"    {line}\n" for line in _lines())


def drawn() -> str:
    """Return the diagram that the page contains now."""
    found = PICTURE.search(PAGE.read_text())
    return found[0] if found else ""


def _lines() -> Iterator[str]:
    new = RequestStatus()
    yield f"[*] --> {new.state or State.PENDING}: recorded"
    for kind, example in EXAMPLES.items():
        yield f"{State.PENDING} --> {_after(new, example)}: {LABELS[kind]}"
    interrupted, times = new, 0
    while interrupted.state not in FINAL:
        interrupted, times = _advance(interrupted, _INTERRUPTED), times + 1
    assert times == MOST_INTERRUPTIONS
    yield f"{State.PENDING} --> {interrupted.state}: interrupted {times} times in a row"
    for state in State:
        if state in FINAL:
            ended = RequestStatus(state=state)
            assert all(_advance(ended, example) == ended for example in EXAMPLES.values())
            yield f"{state} --> {reopen(ended, '').state}: taken back if somebody else set it"
            yield f"{state} --> [*]: removed"


_INTERRUPTED = Retry(reason=Reason.CONFLICT, message="", retry_after=1, interrupted=True)


def _advance(status: RequestStatus, disposition: Disposition) -> RequestStatus:
    return advance(status, disposition, now=_NOW, retention=_KEPT)


def _after(status: RequestStatus, disposition: Disposition) -> State:
    return _advance(status, disposition).state or State.PENDING


if __name__ == "__main__":
    PAGE.write_text(PICTURE.sub(lambda _: draw(), PAGE.read_text()))
