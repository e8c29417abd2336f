"""What an evaluation says."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from reconciler.values import value_class


class RuleStatus(StrEnum):
    """The field's words for a rule's result at one object."""

    PASS = "pass"  # noqa: S105 - the field's word
    SKIP = "skip"
    ERROR = "error"
    FAIL = "fail"
    """The rule refuses the request."""


@value_class(frozen=True, slots=True, kw_only=True)
class TargetChange:
    """The result of a rule at one target.

    Attributes:
        after: The object as it becomes; with any status but PASS the object as it was.
        bare: The message without any value of an object; empty where it has none anyway.
        repeats: The rule would change its own result again (an append, a timestamp).
        unchanged: The patch leaves the object as it is.
    """

    status: RuleStatus
    message: str
    after: Mapping[str, Any]
    bare: str = ""
    repeats: bool = False
    unchanged: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class TriggerDecision:
    """Whether a rule acts on a trigger; ``message`` says why not.

    Attributes:
        matched: match and exclude hold; then only preconditions keep a rule from acting.
    """

    fires: bool
    matched: bool = True
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """The object does not fulfil a condition of the patch; nothing is to be changed.

    Attributes:
        reason: Which condition, for the message of the rule.
        bare: The reason without any value; empty where it has none anyway.
    """

    reason: str
    bare: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResult:
    """Whether conditions hold, with the messages of those that decided it."""

    passed: bool
    message: str = ""


class Convergence(Enum):
    """Whether a rule's result, fed back to the rule, changes nothing.

    PROBED is decided at each object, by evaluating the rule on its own result.
    """

    YES = "yes"
    PROBED = "probed"
    NO = "no"
