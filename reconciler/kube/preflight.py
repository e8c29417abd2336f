"""Checks before a program starts to work: the project's kinds are served and may be listed."""

from collections.abc import Callable

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind
from reconciler.config import ProcessSettings
from reconciler.dialects.registry import required_kinds
from reconciler.errors import Forbidden, NoKindMatch
from reconciler.installation import Installation
from reconciler.kube.client import Client
from reconciler.kube.retrying import until_done


def controller_kinds(installation: Installation) -> tuple[Kind, ...]:
    """Return the kinds that a controller watches with kopf and cannot work without."""
    return (*required_kinds(installation), kinds_of(installation).requests)


def exception_kinds(settings: ProcessSettings) -> tuple[Kind, ...]:
    """Return the kind of exceptions if they are enabled, else nothing."""
    return (kinds_of(settings.installation).exceptions,) * settings.enable_policy_exception


async def wait_for_kinds(
    client: Client, warn: Callable[[str], None], kinds: tuple[Kind, ...]
) -> None:
    """Return when all kinds can be listed; until then, warn and retry after a pause.

    A program that exited instead would be restarted again and again, and its last log be lost.
    """
    await until_done(lambda: _list(client, kinds), warn)


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
