"""Label values out of names that users give: so many at most, then ``other``."""

from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

OTHER = "other"
MAX_POLICIES = 100
MAX_RULES = 300


@dataclass(slots=True, kw_only=True)
class BoundedLabels:
    """The policies and rules that have series of their own in this process.

    First come, first served, until the process ends: a name that changed from a label of its own
    to ``other`` would make a counter fall.

    Attributes:
        policies: How many policies have a label of their own.
        rules: How many rules have.
    """

    policies: int = MAX_POLICIES
    rules: int = MAX_RULES
    _policies: set[str] = field(default_factory=set)
    _rules: set[tuple[str, str]] = field(default_factory=set)

    def policy(self, key: str) -> str:
        """Return the label value of a policy."""
        return key if _admit(self._policies, key, self.policies) else OTHER

    def rule(self, policy: str, rule: str) -> tuple[str, str]:
        """Return the label values of a policy and its rule."""
        label = self.policy(policy)
        if label == OTHER or not _admit(self._rules, (policy, rule), self.rules):
            return label, OTHER
        return label, rule


def resource_label(resource: str) -> str:
    """Return the label value of a resource; addresses that are none have one together."""
    return "other" if resource.startswith("/") else resource


def _admit(known: set[T], value: T, most: int) -> bool:
    if value in known:
        return True
    if len(known) >= most:
        return False
    known.add(value)
    return True
