"""The command line of `retrofit clean`, which removes kube-retrofit's annotations from objects."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import click

from reconciler.api.meta import ANNOTATION_APPLIED, Kind, Object, ObjectRef
from reconciler.cli.output.exits import FINDINGS
from reconciler.cli.output.screen import warn
from reconciler.cli.output.words import number
from reconciler.cli.work.board import holder_of
from reconciler.cli.work.place import Workplace, work_options, workplace
from reconciler.errors import ClusterError, Forbidden, InvalidSetting, NotFound
from reconciler.kube.lease import LEASE_NAME
from reconciler.kube.leases import KubeLeases
from reconciler.kube.reader import KubeReader

_EPILOG = """\b
Examples:
  kubectl retrofit clean            show what is left
  kubectl retrofit clean --yes      remove it
"""


@click.command("clean", epilog=_EPILOG)
@click.option("--namespace", "-n", default="", help="Only objects in this namespace.")
@click.option(
    "--yes", is_flag=True, help="Remove the annotation; without this flag nothing is written."
)
@work_options
def clean(*, namespace: str, yes: bool, **address: Any) -> None:
    """Remove what an uninstalled kube-retrofit left on objects.

    This is the annotation kube-retrofit.dev/applied, which records what a rule that does not
    converge has done. The command searches the metadata of objects of all kinds. It does not undo
    what policies changed.

    \b
    Exit code:
      0  nothing is left, or without --yes: everything was searched
      1  some kinds could not be searched, or some objects not changed
      2  could not run: wrong usage, no cluster, a controller is at work
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    if not asyncio.run(_clean(namespace, yes=yes, address=address)):
        sys.exit(FINDINGS)


async def _clean(namespace: str, *, yes: bool, address: dict[str, str]) -> bool:
    async with workplace(**address) as place:
        if yes:
            await _nobody_leads(place)
        reader = KubeReader(place.live.client, metadata_only=True)
        found, good = 0, True
        for kind in await place.live.kinds.find("*", "*"):
            if namespace and not kind.namespaced:
                continue
            try:
                async for item in _marked(reader, kind, namespace):
                    found += 1
                    click.echo(_named(kind, item))
                    if yes:
                        good = await _removed(place, kind, item) and good
            except ClusterError as error:
                missing = error.permission if isinstance(error, Forbidden) else ""
                reason = f"you may not {missing}" if missing else str(error)
                warn(f"{kind.resource} could not be searched: {reason}")
                good = False
        what = number(found, "object")
        end = "removed" if yes else "nothing was written; --yes removes it"
        click.echo(f"{what} with {ANNOTATION_APPLIED}{f': {end}' if found else ''}")
        return good


async def _nobody_leads(place: Workplace) -> None:
    """Check that no controller is running that needs the annotation.

    Raises:
        InvalidSetting: A controller is running, or its Lease may not be read.
    """
    leases = KubeLeases(place.live.client, place.namespace)
    try:
        holder = holder_of(await leases.lease(LEASE_NAME), place.live.clock.now())
    except Forbidden as error:
        msg = f"cannot tell whether a controller is running: you may not {error.permission}"
        raise InvalidSetting(msg) from error
    if holder.name and holder.fresh:
        raise InvalidSetting(
            f"a controller is running in namespace {place.namespace} ({holder.name}), and would"
            " repeat the changes that the annotation marks as done: uninstall it first"
        )


async def _marked(reader: KubeReader, kind: Kind, namespace: str) -> AsyncIterator[Object]:
    async for item in reader.items(kind, namespace=namespace):
        if ANNOTATION_APPLIED in (item["metadata"].get("annotations") or {}):
            yield item


async def _removed(place: Workplace, kind: Kind, item: Object) -> bool:
    meta = item["metadata"]
    patch = {"metadata": {"annotations": {ANNOTATION_APPLIED: None}}}
    resource = place.live.client.resource(kind)
    try:
        await resource.merge(patch, meta["name"], meta.get("namespace", ""))
    except NotFound:
        return True
    except ClusterError as error:
        warn(f"{_named(kind, item)} could not be changed: {error}")
        return False
    return True


def _named(kind: Kind, item: Object) -> str:
    meta = item["metadata"]
    ref = ObjectRef(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
    )
    return str(ref)
