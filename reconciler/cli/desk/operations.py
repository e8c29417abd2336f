"""Which operation the request of a trigger is taken to be: one rule for all commands."""

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
"""Nobody sends a request: the policy was stored, and its rules run on what exists."""

_FLAG: Final = "POLICY-UPDATE"
_OPERATIONS: Final = (CREATE, UPDATE, DELETE, CONNECT)
# What rules with targets meet exists; a rule without targets changes what somebody sends.
_EXISTING: Final = (UPDATE, CREATE, DELETE, CONNECT)
_SENT: Final = (CREATE, UPDATE, DELETE, CONNECT)


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of a request, `POLICY_UPDATE` where there is none.

    Attributes:
        reason: Why it is this one.
    """

    name: str
    reason: str

    @override
    def __str__(self) -> str:
        return f"{word_of(self.name)} ({self.reason})"


def operation_option(command: T) -> T:
    """Give a click command ``--operation``; `operation_of_flag` reads its value."""
    return click.option(
        "--operation",
        type=click.Choice((*_OPERATIONS, _FLAG)),
        help="Of the requests for the triggers. Default: when each rule acts first, its policy's"
        " update (mutateExistingOnPolicyUpdate), else an UPDATE, else what it listens to; of rules"
        " without targets a CREATE.",
    )(command)


def operation_of_flag(value: str | None) -> str | None:
    """Return the operation that ``--operation`` names, None where it was left out."""
    return POLICY_UPDATE if value == _FLAG else value


def word_of(operation: str) -> str:
    """Return an operation as ``--operation`` takes it."""
    return operation or _FLAG


def operation_for(
    program: Program, *, flag: str | None = None, value: Any = None, sent: bool = False
) -> Operation:
    """Return the operation on which a rule is looked at.

    Without a word about it that is when the rule acts first on what exists: the change of its
    policy where the rule asks for it, else the first request that it listens to, an update before
    all others, for what exists is not created again. A rule without targets changes the object of
    the request itself, which is a new one.

    Args:
        program: The rule.
        flag: What the command line says; None: nothing.
        value: What the values say of ``request.operation``.
        sent: Somebody is named who sends a request, so there is one.
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
