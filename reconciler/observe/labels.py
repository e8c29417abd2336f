"""Label values from user-defined names: up to a limit, then ``other``."""

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

    First come, first served, until the process ends: if a name changed from a label of its own
    to ``other``, a counter would decrease.

    Attributes:
        policies: Limit of policies with a label of their own.
        rules: Limit of rules with a label of their own.
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

    Others are unbounded, because a path may contain text of a tenant or of a Secret.
    """

    _served: set[str] = field(default_factory=set)

    def label(self, resource: str, status: int) -> str:
        """Return the label value of a requested resource, given the status of the answer."""
        if status in _SERVED and not resource.startswith("/"):
            self._served.add(resource)
        return resource if resource in self._served else OTHER


@dataclass(slots=True)
class Series(Generic[M]):
    """A metric that every review updates, with bounded labels.

    Looking up a series in the metric takes three times as long as updating it.
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
