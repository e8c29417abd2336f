"""The `Definitions` port."""

from collections.abc import Mapping
from typing import Any, Final

from reconciler.api.meta import Kind
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON_PATCH

DEFINITIONS: Final = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)


class KubeDefinitions:
    """Reads and patches CustomResourceDefinitions by name."""

    def __init__(self, client: Client) -> None:
        self._definitions = client.resource(DEFINITIONS)

    async def conversion(self, name: str) -> Mapping[str, Any]:
        """Return ``spec.conversion`` of a CustomResourceDefinition."""
        found = await self._definitions.get(name)
        conversion: Mapping[str, Any] = found["spec"].get("conversion") or {}
        return conversion

    async def convert_by(self, name: str, conversion: Mapping[str, Any]) -> None:
        """Replace ``spec.conversion`` of a CustomResourceDefinition."""
        # The whole field, so that no part of the previous strategy remains.
        patch = [{"op": "add", "path": "/spec/conversion", "value": dict(conversion)}]
        await self._definitions.patch(patch, name, content_type=JSON_PATCH)
