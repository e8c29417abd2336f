"""Label values out of names that users give: so many at most, then ``other``."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from prometheus_client import Counter, Histogram

T = TypeVar("T")
M = TypeVar("M", Counter, Histogram)

OTHER = "other"
MAX_POLICIES = 100
MAX_RULES = 300
_SERVED = range(200, 300)


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


@dataclass(slots=True)
class ResourceLabels:
    """The resources that have series of their own: those that the API server has served.

    A path may be made of what a tenant wrote, or of what stands in a Secret.
    """

    _served: set[str] = field(default_factory=set)

    def label(self, resource: str, status: int) -> str:
        """Return the label value of a resource that was asked for, given the answer's status."""
        if status in _SERVED and not resource.startswith("/"):
            self._served.add(resource)
        return resource if resource in self._served else OTHER


@dataclass(slots=True)
class Series(Generic[M]):
    """A metric that every review counts in, by labels that are bounded.

    To ask the metric for a series takes three times as long as to count in it.
    """

    metric: M
    _known: dict[tuple[str, ...], M] = field(default_factory=dict)

    def of(self, *values: str) -> M:
        """Return the series of some label values, in the order of the metric's labels."""
        found = self._known.get(values)
        if found is None:
            found = self._known[values] = self.metric.labels(*values)
        return found


def _admit(known: set[T], value: T, most: int) -> bool:
    if value in known:
        return True
    if len(known) >= most:
        return False
    known.add(value)
    return True
