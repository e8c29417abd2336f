"""What an installation is called in a cluster: one API group, and names that follow from it.

There are two of them. One takes the place of a Kyverno: it has its API group, namespace and
accounts, so that what users wrote for these goes on working. The other stands beside a Kyverno
that is alive: the same kinds in a group of its own, and no object in common. Both run the same
code; which one a process belongs to is a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The names of one installation.

    Attributes:
        group: Of policies, and of what belongs to them.
        version: Of exceptions, requests and GlobalContextEntries; policies are ``v1``.
        plural_prefix: Of the plurals. kubectl takes the first group that has a plural, so a
            second group of the same ones would take Kyverno's from those who type them.
        prefix: Of what is cluster-wide and of no kind of its own, as webhook configurations.
        namespace: Of the programs; the ConfigMap, Service and accounts are in it.
        recorded: Namespace of what is recorded of Secrets and of nothing else, so that rights on
            them are rights on nothing else.
        settings: The ConfigMap.
        service: In front of the admission servers.
        admission_account: ServiceAccount of the admission servers.
        background_account: In whose name policies work.
        owner: The ClusterRole with which the webhook configurations go.
        reporter: Who PolicyReports and events say they are of.
        stands_by: A live Kyverno has the same policies, so only one of both may work.
    """

    group: str
    version: str
    plural_prefix: str
    prefix: str
    namespace: str
    recorded: str
    settings: str
    service: str
    admission_account: str
    background_account: str
    controller_account: str
    owner: str
    reporter: str
    stands_by: bool

    @property
    def background_label(self) -> str:
        """Return the label of roles whose rights policies get."""
        return f"rbac.{self.group}/aggregate-to-background-controller"

    @property
    def role_prefix(self) -> str:
        """Return what the names of the roles begin with that are installed."""
        return self.owner.partition(":")[0] + ":"

    @property
    def admission_label(self) -> str:
        """Return the label of roles whose rights the admission servers get."""
        return f"rbac.{self.group}/aggregate-to-admission-controller"


REPLACING: Final = Installation(
    group="kyverno.io",
    version="v2",
    plural_prefix="",
    prefix="kube-retrofit",
    namespace="kyverno",
    recorded="kube-retrofit-recorded",
    settings="kyverno",
    service="kyverno-svc",
    admission_account="kyverno-admission-controller",
    background_account="kyverno-background-controller",
    controller_account="kube-retrofit-controller",
    owner="kyverno:background-controller:core",
    reporter="kyverno",
    stands_by=True,
)
"""In the place of a Kyverno."""

BESIDE: Final = Installation(
    group="kube-retrofit.dev",
    version="v1",
    plural_prefix="retrofit",
    prefix="kube-retrofit-beside",
    namespace="kube-retrofit",
    recorded="kube-retrofit-beside-recorded",
    settings="kube-retrofit",
    service="kube-retrofit-svc",
    admission_account="kube-retrofit-admission",
    background_account="kube-retrofit-background",
    controller_account="kube-retrofit-controller",
    owner="kube-retrofit-beside:background-controller:core",
    reporter="kube-retrofit",
    stands_by=False,
)
"""Beside a Kyverno that is alive."""

INSTALLATIONS: Final[Mapping[str, Installation]] = {
    item.group: item for item in (REPLACING, BESIDE)
}
"""By the API group."""
