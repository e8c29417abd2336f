"""Checks before a program starts to work: our own kinds are served and may be listed."""

from collections.abc import Callable

from reconciler.api.meta import Kind
from reconciler.dialects.registry import REQUIRED_KINDS
from reconciler.errors import Forbidden, NoKindMatch
from reconciler.kube.client import Client
from reconciler.kube.requests import REQUESTS
from reconciler.kube.retrying import until_done

CONTROLLER_KINDS = (*REQUIRED_KINDS, REQUESTS)


async def wait_for_kinds(
    client: Client, say: Callable[[str], None], kinds: tuple[Kind, ...] = CONTROLLER_KINDS
) -> None:
    """Return when all kinds can be listed; until then say what is in the way, with a pause.

    A program that ended instead would be started again and again, and its last words be lost.
    """
    await until_done(lambda: _list(client, kinds), say)


async def _list(client: Client, kinds: tuple[Kind, ...]) -> None:
    for kind in kinds:
        try:
            await client.resource(kind).get(limit=1, serialize=False)
        except NoKindMatch as error:
            raise NoKindMatch(
                f"the cluster does not serve {kind.resource}: apply crds/ (kubectl apply -k crds)"
            ) from error
        except Forbidden as error:
            raise Forbidden(
                f"no right to {error.permission}: apply manifests/ (kubectl apply -k"
                " manifests/overlays/default), or grant it to the program's ServiceAccount",
                permission=error.permission,
            ) from error
