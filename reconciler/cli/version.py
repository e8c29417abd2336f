"""The command `retrofit version`."""

import asyncio
import platform
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any, Final

import click

from reconciler.api.meta import Kind
from reconciler.cli.desk.live import (
    Address,
    LiveCluster,
    address_of,
    cluster_options,
    live_cluster,
)
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.exits import NOT_RUN
from reconciler.cli.output.screen import warn
from reconciler.errors import ClusterError, Forbidden, InvalidSetting

_PATIENCE: Final = 5.0
_SELECTOR: Final = "app.kubernetes.io/part-of={}"
_DEPLOYMENTS: Final = Kind(
    group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True
)

_EPILOG = """\b
Examples:
  retrofit version --client
  kubectl retrofit version -o json

\b
Exit code:
  0  everything requested is printed
  2  the cluster does not answer, or may not be read; the version of retrofit
     is printed
"""


@click.command("version", epilog=_EPILOG)
@click.option(
    "--client",
    "alone",
    is_flag=True,
    help="Only the version of this program; contacts no cluster.",
)
@click.option(
    "--namespace",
    "-n",
    default="",
    help="Where kube-retrofit runs. Default: kyverno, or kube-retrofit in its own group.",
)
@click.option(
    "--output", "-o", type=click.Choice(("text", "json")), default="text", show_default=True
)
@cluster_options
def version(*, alone: bool, namespace: str, output: str, **address: Any) -> None:
    """Show the version of retrofit, of the cluster, and of what is installed there."""
    found: dict[str, Any] = {"client": {"version": _own(), "python": platform.python_version()}}
    where, problem = address_of(address), ""
    namespace = namespace or where.installation.namespace
    if not alone:
        try:
            found |= asyncio.run(_ask(where, namespace))
        except (ClusterError, InvalidSetting) as error:
            problem = str(error)
    if output == "json":
        click.echo(json_of(found))
    else:
        click.echo("\n".join(_lines(found, namespace)))
    if problem:
        warn(f"Error: {problem}; --client contacts no cluster")
        sys.exit(NOT_RUN)


def _own() -> str:
    try:
        return installed("kube-retrofit")
    except PackageNotFoundError:
        return "unknown, not installed as a package"


async def _ask(address: Address, namespace: str) -> dict[str, Any]:
    async with live_cluster(address) as live:
        answer = await live.client.json("GET", "/version", timeout=_PATIENCE, repeat=False)
        server = {"version": str(answer.get("gitVersion", "unknown"))}
        return {"server": server, "programs": await _programs(live, namespace)}


async def _programs(live: LiveCluster, namespace: str) -> list[dict[str, Any]]:
    """Return the installed Deployments; `retrofit dev` runs the same programs as processes."""
    deployments = live.client.resource(_DEPLOYMENTS)
    selector = _SELECTOR.format(live.installation.settings)
    try:
        listed = await deployments.get(
            namespace=namespace, label_selector=selector, timeout=_PATIENCE, repeat=False
        )
    except Forbidden as error:
        msg = f"you may not {error.permission or str(error)}: ask for the right, or use --as"
        raise InvalidSetting(msg) from error
    return [
        {
            "name": item["metadata"]["name"],
            "images": [
                container["image"] for container in item["spec"]["template"]["spec"]["containers"]
            ],
            "ready": item.get("status", {}).get("readyReplicas", 0),
            "replicas": item["spec"].get("replicas", 1),
        }
        for item in listed["items"]
    ]


def _lines(found: dict[str, Any], namespace: str) -> list[str]:
    client = found["client"]
    lines = [f"retrofit    {client['version']} (Python {client['python']})"]
    if "server" in found:
        lines.append(f"Kubernetes  {found['server']['version']}")
    for program in found.get("programs", ()):
        lines.append(
            f"{namespace}/{program['name']}  {program['ready']} of {program['replicas']} ready"
        )
        lines += [f"  {image}" for image in program["images"]]
    if found.get("programs") == []:
        lines.append(f"no Deployment of kube-retrofit in namespace {namespace}")
    return lines
