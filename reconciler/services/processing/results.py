"""The result of one request at one target, and the results that errors lead to."""

from dataclasses import replace
from typing import Self

from reconciler.api.updaterequest import Outcome, Reason
from reconciler.errors import (
    ClusterError,
    Denied,
    Forbidden,
    Interrupted,
    Invalid,
    NoKindMatch,
    NotReady,
    Throttled,
)
from reconciler.requests.redaction import quotable_permission, withheld
from reconciler.values import value_class


@value_class(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """The result of one request at one target.

    Attributes:
        retryable: Whether another attempt may succeed, at the earliest after ``retry_after`` s.
        interrupted: Whether the evaluation was ended from outside.
        reason: The reason for the request's status, where the outcome is not specific enough.
        permission: The right to grant, where one is missing.
        uid: The uid of the object, where it was read.
        bare: The message without values of objects; empty where the message contains none.
    """

    outcome: Outcome
    message: str = ""
    version_before: str = ""
    version_after: str = ""
    retryable: bool = False
    retry_after: float = 0.0
    interrupted: bool = False
    reason: Reason | None = None
    permission: str = ""
    uid: str = ""
    bare: str = ""

    @property
    def why(self) -> Reason:
        """The reason why the request waits for the target."""
        return self.reason or Reason(self.outcome)

    @property
    def may_quote(self) -> bool:
        """Whether the message may quote values of the target, apart from names."""
        evaluated = self.outcome in {Outcome.FAILED, Outcome.SKIPPED} and not self.retryable
        return evaluated or self.outcome in {Outcome.INVALID, Outcome.DENIED}

    def withheld(self, namespaces: frozenset[str]) -> Self:
        """Return the result as it may be shown where a Secret is involved.

        Args:
            namespaces: The namespaces that may be named.
        """
        right = quotable_permission(self.permission, namespaces)
        message = withheld(self.bare) if self.bare else self.message
        if right:
            message += f"; grant: {right}"
        return replace(self, message=message, permission=right, bare="")


NOT_FOUND = TargetResult(outcome=Outcome.NOT_FOUND, message="not found")
"""The result for an object that does not exist and that a target names exactly."""
VANISHED = TargetResult(
    outcome=Outcome.SKIPPED,
    message="it was deleted after it was listed, and is no longer a target",
)
"""The result for an object that a target only selects: its deletion needs no correction."""


def failure(error: ClusterError | Interrupted) -> TargetResult:
    """Return the result for an error that is not the fault of the rule."""
    result = TargetResult(
        outcome=Outcome.FAILED, message=str(error), retryable=True, bare=error.without_values
    )
    match error:
        case Interrupted():
            return replace(result, interrupted=True, reason=Reason.INTERRUPTED)
        case Forbidden(permission=permission):
            return replace(
                result, outcome=Outcome.FORBIDDEN, retry_after=5.0, permission=permission
            )
        case Denied():
            return replace(result, outcome=Outcome.DENIED, retry_after=10.0)
        case Invalid():
            return replace(result, outcome=Outcome.INVALID, retryable=False)
        case NoKindMatch():
            return replace(result, outcome=Outcome.NOT_FOUND, retry_after=30.0)
        case NotReady():
            return replace(result, reason=Reason.ENTRY_NOT_READY)
        case Throttled(retry_after=wait):
            return replace(result, retry_after=wait or 0.0)
        case _:
            return result
