"""What an evaluation says."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class RuleStatus(StrEnum):
    """The field's words for a rule's result at one object."""

    PASS = "pass"  # noqa: S105 - the field's word
    SKIP = "skip"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChange:
    """The result of a rule at one target.

    Attributes:
        after: The object as it shall be; with any status but PASS the object as it was.
        bare: The message without any value of an object; empty where it has none anyway.
        repeats: The rule would change its own result again (an append, a timestamp).
    """

    status: RuleStatus
    message: str
    after: Mapping[str, Any]
    bare: str = ""
    repeats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerDecision:
    """Whether a rule acts on a trigger; ``message`` says why not.

    Attributes:
        matched: match and exclude hold; then only preconditions keep a rule from acting.
    """

    fires: bool
    matched: bool = True
    message: str = ""
