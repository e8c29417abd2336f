"""Install the CRDs and manifests of this project into a cluster that has no nodes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from devcluster.cluster import Cluster
from reconciler.cli.manifests import find_manifests
from reconciler.errors import InvalidSetting
from reconciler.installation import INSTALLATIONS, REPLACING, Installation

NAMESPACE = REPLACING.namespace
# libyaml, if available, parses the definitions in a tenth of the time.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OVERLAYS = ("default", "demo", "conformance", "beside-kyverno", "conformance-beside")
_GROUP_FLAG = "--policy-group="
# Without kinds that need a kubelet or a pod network: the programs run as processes.
_KINDS = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "CustomResourceDefinition",
        "Namespace",
        "Role",
        "RoleBinding",
        "Secret",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)
# The rest may contain objects that need these.
_FIRST = {"CustomResourceDefinition": 0, "Namespace": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSettings:
    """The settings of one program in the manifests."""

    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def installation(self) -> Installation:
        """Return the installation that the program belongs to."""
        given = (flag.removeprefix(_GROUP_FLAG) for flag in self.flags if _GROUP_FLAG in flag)
        return INSTALLATIONS[next(given, REPLACING.group)]


def install(cluster: Cluster, overlay: str = "demo") -> dict[str, ProgramSettings]:
    """Apply an overlay without its workloads and Services, and wait until its kinds are served.

    Returns:
        The settings of each program in the overlay, by the program's name.

    Raises:
        ClusterError: kubectl failed.
        InvalidSetting: The overlay does not exist.
    """
    folder = find_manifests() / "manifests" / "overlays" / overlay
    if not folder.is_dir():
        raise InvalidSetting(f"no overlay {overlay!r} in {folder.parent}; there are {OVERLAYS}")
    rendered = _rendered(cluster, folder)
    rendered += _missing_reports(cluster)
    wanted = [document for document in rendered if document["kind"] in _KINDS]
    wanted.sort(key=lambda document: _FIRST.get(document["kind"], len(_FIRST)))
    _apply(cluster, wanted)
    names = [
        f"crd/{document['metadata']['name']}"
        for document in wanted
        if document["kind"] == "CustomResourceDefinition"
    ]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    return dict(_settings(rendered))


def _missing_reports(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the CRDs of reports that the cluster lacks; existing ones are not changed."""
    folder = find_manifests() / "crds" / "reports"
    there = cluster.kubectl("get", "crd", "-o", "name").split()
    return [
        document
        for document in _rendered(cluster, folder)
        if f"customresourcedefinition.apiextensions.k8s.io/{document['metadata']['name']}"
        not in there
    ]


def _apply(cluster: Cluster, documents: list[dict[str, Any]]) -> None:
    cluster.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=retrofit-dev",
        # Tests validate these files; here, the API server would have to render its OpenAPI for it.
        "--validate=false",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}),
    )


def _settings(documents: list[dict[str, Any]]) -> Iterator[tuple[str, ProgramSettings]]:
    for document in documents:
        if document["kind"] == "Deployment":
            for container in document["spec"]["template"]["spec"]["containers"]:
                yield (
                    container["command"][0],
                    ProgramSettings(
                        flags=tuple(container.get("args", ())),
                        env={
                            entry["name"]: entry["value"]
                            for entry in container.get("env", ())
                            if "value" in entry
                        },
                    ),
                )


def _rendered(cluster: Cluster, folder: Path) -> list[dict[str, Any]]:
    text = cluster.kubectl("kustomize", str(folder))
    return [document for document in yaml.load_all(text, Loader=_Loader) if document]
