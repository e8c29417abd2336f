"""The result of matching a subject: whether a rule applies to it, and why not."""

from dataclasses import dataclass
from enum import Enum


class Decision(Enum):
    """Whether a rule matches a subject.

    UNDECIDED means that labels of the namespace or roles of the user are not known yet.
    """

    MATCH = "match"
    NO_MATCH = "no match"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision and, unless it is MATCH, its reasons."""

    decision: Decision
    reasons: tuple[str, ...] = ()
