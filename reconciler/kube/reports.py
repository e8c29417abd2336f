"""The `ReportStore` port: this project's own report in each namespace."""

import contextlib

from reconciler.api.meta import Object, resource_version
from reconciler.api.policyreport import CLUSTER_POLICY_REPORTS, POLICY_REPORTS, labels_of
from reconciler.errors import NotFound
from reconciler.installation import REPLACING, Installation
from reconciler.kube.client import Client
from reconciler.kube.dynamic import ApiResource
from reconciler.kube.reader import KubeReader


class KubeReports:
    """PolicyReports, and for the namespace ``""`` the ClusterPolicyReport."""

    def __init__(
        self, client: Client, installation: Installation = REPLACING, *, page: int = 500
    ) -> None:
        self._client = client
        self._name = installation.prefix
        self._labels = ",".join(f"{key}={value}" for key, value in labels_of(installation).items())
        self._reader = KubeReader(client, metadata_only=True)
        self._page = page

    async def get(self, namespace: str) -> Object | None:
        """Return the report of a namespace, or None if it does not exist."""
        return await self._reports(namespace).find(self._name, namespace)

    async def put(self, namespace: str, report: Object) -> None:
        """Store a report; if it has a resourceVersion, replace exactly that version."""
        reports = self._reports(namespace)
        write = reports.replace if resource_version(report) else reports.create
        await write(report, namespace=namespace)

    async def delete(self, namespace: str) -> None:
        """Delete the report; it is no error if it does not exist."""
        with contextlib.suppress(NotFound):
            await self._reports(namespace).delete(self._name, namespace)

    async def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a report; ``""`` stands for the cluster's."""
        found = [
            item["metadata"]
            for kind in (POLICY_REPORTS, CLUSTER_POLICY_REPORTS)
            async for item in self._reader.items(kind, labels=self._labels, limit=self._page)
        ]
        return frozenset(meta.get("namespace", "") for meta in found if meta["name"] == self._name)

    def _reports(self, namespace: str) -> ApiResource:
        return self._client.resource(POLICY_REPORTS if namespace else CLUSTER_POLICY_REPORTS)
