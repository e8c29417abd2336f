"""The names of an installation in a cluster: an API group, and names that follow from it.

There are two installations. One replaces a Kyverno: it has its API group, namespace and accounts,
so that users' resources for these keep working. The other runs beside a live Kyverno: the same
kinds in a group of its own, and no object in common. Both run the same code; a setting decides
which one a process belongs to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The names of one installation.

    Attributes:
        group: API group of policies and of their auxiliary kinds.
        version: Version of exceptions, requests and GlobalContextEntries; policies are ``v1``.
        plural_prefix: Prefix of plurals. kubectl resolves a plural to the first group that has
            it, so a second group with the same plurals would hide Kyverno's from its users.
        prefix: Prefix of cluster-wide objects of other kinds, as webhook configurations.
        namespace: Namespace of the programs, with the ConfigMap, Service and accounts.
        recorded: Namespace only for data recorded from Secrets, so that rights on them are
            rights on nothing else.
        settings: Name of the ConfigMap.
        service: Service in front of the admission servers.
        admission_account: ServiceAccount of the admission servers.
        background_account: Default ServiceAccount for the work of policies.
        owner: ClusterRole that owns the webhook configurations.
        reporter: Source that PolicyReports and events name.
        stands_by: Whether a live Kyverno has the same policies, so that only one may work.
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
        """Return the label of roles that are aggregated to the account of policies."""
        return f"rbac.{self.group}/aggregate-to-background-controller"

    @property
    def role_prefix(self) -> str:
        """Return the prefix of the names of installed roles."""
        return self.owner.partition(":")[0] + ":"

    @property
    def admission_label(self) -> str:
        """Return the label of roles that are aggregated to the admission servers."""
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
"""The installation that replaces a Kyverno."""

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
"""The installation beside a live Kyverno."""

INSTALLATIONS: Final[Mapping[str, Installation]] = {
    item.group: item for item in (REPLACING, BESIDE)
}
"""The installations by API group."""
