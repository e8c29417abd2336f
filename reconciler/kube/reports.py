"""The `ReportStore` port: this project's own report in each namespace."""

from reconciler.api.meta import FIELD_MANAGER, Kind, Object, resource_version
from reconciler.api.policyreport import CLUSTER_POLICY_REPORTS, LABELS, NAME, POLICY_REPORTS
from reconciler.errors import NotFound
from reconciler.kube.client import JSON, Client, encode
from reconciler.kube.paths import collection_path, object_path

_QUERY = {"fieldManager": FIELD_MANAGER}
_METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())


class KubeReports:
    """PolicyReports, and for the namespace ``""`` the ClusterPolicyReport."""

    def __init__(self, client: Client, *, page: int = 500) -> None:
        self._client = client
        self._page = page

    async def get(self, namespace: str) -> Object | None:
        """Return the report of a namespace, None where there is none."""
        try:
            answer: Object = await self._client.json("GET", _path(namespace))
        except NotFound:
            return None
        return answer

    async def put(self, namespace: str, report: Object) -> None:
        """Store a report; with a resourceVersion in it only in place of that version."""
        if resource_version(report):
            method, path = "PUT", _path(namespace)
        else:
            method, path = "POST", collection_path(_kind(namespace), namespace)
        await self._client.request(method, path, query=_QUERY, body=encode(report))

    async def delete(self, namespace: str) -> None:
        """Remove the report; absent is success."""
        try:
            await self._client.request("DELETE", _path(namespace))
        except NotFound:
            return

    async def namespaces(self) -> frozenset[str]:
        """Return where there are reports."""
        found: set[str] = set()
        for kind in (POLICY_REPORTS, CLUSTER_POLICY_REPORTS):
            query = {"labelSelector": _SELECTOR, "limit": str(self._page)}
            while True:
                answer = await self._client.json(
                    "GET", collection_path(kind), query=query, accept=_METADATA_LIST
                )
                metas = [item["metadata"] for item in answer.get("items") or ()]
                found |= {meta.get("namespace", "") for meta in metas if meta["name"] == NAME}
                token = (answer.get("metadata") or {}).get("continue")
                if not token:
                    break
                query["continue"] = token
        return frozenset(found)


def _kind(namespace: str) -> Kind:
    return POLICY_REPORTS if namespace else CLUSTER_POLICY_REPORTS


def _path(namespace: str) -> str:
    return object_path(_kind(namespace), namespace, NAME)
