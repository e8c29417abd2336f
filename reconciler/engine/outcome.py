"""The results of evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from reconciler.values import value_class


class RuleStatus(StrEnum):
    """A rule's result at one object, in the usual words of policy engines."""

    PASS = "pass"  # noqa: S105 - the field's word
    SKIP = "skip"
    ERROR = "error"
    FAIL = "fail"
    """The rule refuses the request."""


@value_class(frozen=True, slots=True, kw_only=True)
class TargetChange:
    """The result of a rule at one target.

    Attributes:
        after: The changed object; with any status but PASS the object as it was.
        bare: The message without values of objects; empty where the message has none.
        repeats: The rule would change its own result again (an append, a timestamp).
        unchanged: The patch does not change the object.
    """

    status: RuleStatus
    message: str
    after: Mapping[str, Any]
    bare: str = ""
    repeats: bool = False
    unchanged: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class TriggerDecision:
    """Whether a rule acts on a trigger; ``message`` gives the reason if it does not.

    Attributes:
        matched: Match and exclude hold, so only preconditions can keep the rule from acting.
    """

    fires: bool
    matched: bool = True
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """The object does not meet a condition of the patch, so nothing is changed.

    Attributes:
        reason: The condition, for the message of the rule.
        bare: The reason without values of objects; empty where the reason has none.
    """

    reason: str
    bare: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResult:
    """Whether conditions hold, with the messages of the deciding ones."""

    passed: bool
    message: str = ""


class Convergence(Enum):
    """Whether a rule's result, fed back to the rule, changes nothing.

    PROBED is decided for each object, by evaluating the rule on its own result.
    """

    YES = "yes"
    PROBED = "probed"
    NO = "no"
