"""The operation that is assumed for a trigger's request: one rule for all commands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
from typing_extensions import override

from reconciler.engine.program import Program

T = TypeVar("T", bound=Callable[..., Any])

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
CONNECT: Final = "CONNECT"
POLICY_UPDATE: Final = ""
"""There is no request: the policy was stored, and its rules run on existing objects."""

_FLAG: Final = "POLICY-UPDATE"
OPERATIONS: Final = (CREATE, UPDATE, DELETE, CONNECT)
# Rules with targets run on existing triggers; rules without targets change a sent object.
_EXISTING: Final = (UPDATE, CREATE, DELETE, CONNECT)
_SENT: Final = (CREATE, UPDATE, DELETE, CONNECT)


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation that is assumed for a request, `POLICY_UPDATE` where there is none."""

    name: str
    reason: str

    @override
    def __str__(self) -> str:
        return f"{word_of(self.name)} ({self.reason})"


def operation_option(command: T) -> T:
    """Add ``--operation`` to a click command; `operation_of_flag` reads its value."""
    return click.option(
        "--operation",
        type=click.Choice((*OPERATIONS, _FLAG)),
        help="Operation of the requests for the triggers. Default, for each rule: POLICY-UPDATE"
        " with mutateExistingOnPolicyUpdate, else UPDATE, or CREATE without targets; if the rule"
        " does not listen to that, one to which it listens.",
    )(command)


def operation_of_flag(value: str | None) -> str | None:
    """Return the operation that ``--operation`` names, None where it was not given."""
    return POLICY_UPDATE if value == _FLAG else value


def word_of(operation: str) -> str:
    """Return an operation in the notation of ``--operation``."""
    return operation or _FLAG


def operation_for(
    program: Program, *, flag: str | None = None, value: Any = None, sent: bool = False
) -> Operation:
    """Return the operation for which a rule is evaluated.

    By default this is the first occasion on which the rule acts on an existing object: the change
    of its policy where the rule asks for it, else a request that it listens to. UPDATE comes
    first, since an existing object is not created again. A rule without targets changes the
    object of the request itself, so CREATE comes first.

    Args:
        flag: The operation of the command line, None where it is not given.
        value: The given value of ``request.operation``.
        sent: Whether a user is given who sends the request, which implies that there is one.
    """
    if flag is not None:
        return Operation(flag, "--operation")
    if value:
        return Operation(str(value), "the value of request.operation")
    matcher = program.match
    if program.on_policy_change and not (program.changes_trigger or sent) and matcher.listings():
        return Operation(POLICY_UPDATE, "mutateExistingOnPolicyUpdate")
    order = _SENT if program.changes_trigger else _EXISTING
    scopes = matcher.kinds()
    if any(not scope.operations for scope in scopes):
        return Operation(order[0], "the rule listens to every operation")
    listed = {name for scope in scopes for name in scope.operations}
    name = next((name for name in order if name in listed), order[0])
    return Operation(name, f"the rule listens to {', '.join(sorted(listed)) or 'none'}")
