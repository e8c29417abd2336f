"""Checks before a program starts to work: our own kinds are served and may be listed."""

import asyncio
from collections.abc import Callable

from reconciler.api.meta import Kind
from reconciler.dialects.registry import POLICY_KINDS
from reconciler.errors import ClusterError, Forbidden, NoKindMatch
from reconciler.kube.backoff import Backoff
from reconciler.kube.client import Client
from reconciler.kube.paths import collection_path
from reconciler.kube.requests import REQUESTS

CONTROLLER_KINDS = (*POLICY_KINDS, REQUESTS)


async def wait_for_kinds(
    client: Client, say: Callable[[str], None], kinds: tuple[Kind, ...] = CONTROLLER_KINDS
) -> None:
    """Return when all kinds can be listed; until then say what is in the way, with a pause.

    A program that ended instead would be started again and again, and its last words be lost.
    """
    backoff = Backoff(first=1.0, longest=30.0)
    while (problem := await _problem(client, kinds)) is not None:
        pause = backoff.pause()
        say(f"{problem}; trying again in {pause:.0f}s")
        await asyncio.sleep(pause)


async def _problem(client: Client, kinds: tuple[Kind, ...]) -> str | None:
    for kind in kinds:
        try:
            await client.request("GET", collection_path(kind), query={"limit": "1"})
        except NoKindMatch:
            return (
                f"the cluster does not serve {kind.resource}: apply crds/ (kubectl apply -k crds)"
            )
        except Forbidden as error:
            return (
                f"no right to {error.permission}: apply manifests/ (kubectl apply -k"
                " manifests/overlays/default), or grant it to the program's ServiceAccount"
            )
        except ClusterError as error:
            return str(error)
    return None
