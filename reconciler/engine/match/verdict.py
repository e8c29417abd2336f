"""Whether a rule concerns a subject, and why not."""

from dataclasses import dataclass
from enum import Enum


class Decision(Enum):
    """What is known about a rule and a subject.

    UNDECIDED waits for the labels of the namespace or the roles of the user.
    """

    MATCH = "match"
    NO_MATCH = "no match"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision and, unless it is MATCH, the reasons for it."""

    decision: Decision
    reasons: tuple[str, ...] = ()
