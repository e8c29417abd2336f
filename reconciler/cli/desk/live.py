"""Access to a live cluster for the commands of the CLI, as their flags describe it.

Nothing here writes. All requests are sent as the user of the kubeconfig, or as the user that
``--as`` names.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reconciler.cli.desk.cue import cue_of
from reconciler.cli.output.screen import warn
from reconciler.clock import Clock, SystemClock
from reconciler.errors import ClusterError, Forbidden, InvalidSetting, NoKindMatch, NotFound
from reconciler.installation import INSTALLATIONS, REPLACING, Installation

if TYPE_CHECKING:
    from reconciler.kube.client import Client
    from reconciler.kube.discovery import KubeKinds
    from reconciler.kube.mergekeys import KubeMergeKeys
    from reconciler.kube.reader import KubeReader
    from reconciler.services.ports.objects import RuleLoader

T = TypeVar("T", bound=Callable[..., Any])

_PATIENCE = 10.0
"""The timeout of the first request in seconds; a person waits for it."""

_CONNECTION = (
    click.option(
        "--kubeconfig", metavar="FILE", default="", help="Path of the kubeconfig, as for kubectl."
    ),
    click.option("--context", metavar="NAME", default="", help="Context of the kubeconfig."),
    click.option("--as", "user", metavar="USER", default="", help="User to impersonate."),
)
_GROUP = click.option(
    "--policy-group",
    type=click.Choice(tuple(INSTALLATIONS)),
    default=REPLACING.group,
    show_default=True,
    envvar="RETROFIT_POLICY_GROUP",
    help="API group of the policies that the cluster stores.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A cluster and the user of its requests; empty fields mean the defaults of kubectl.

    Attributes:
        user: The impersonated user; ``system:serviceaccount:NAMESPACE:NAME`` for an account.
        policy_group: The API group of the installation; a cluster can have two installations.
    """

    kubeconfig: str = ""
    context: str = ""
    user: str = ""
    policy_group: str = REPLACING.group

    @property
    def installation(self) -> Installation:
        """Return the installation with this API group."""
        return INSTALLATIONS[self.policy_group]

    @property
    def given(self) -> str:
        """Return the first flag that was given, empty where none was."""
        pairs = (
            ("--kubeconfig", self.kubeconfig),
            ("--context", self.context),
            ("--as", self.user),
        )
        return next((flag for flag, value in pairs if value), "")


@dataclass(slots=True)
class Calls:
    """Counts requests to the API server."""

    total: int = 0

    def add(self, _verb: str, _resource: str, _status: int, _seconds: float) -> None:
        """Count one request."""
        self.total += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """A reachable cluster, with the same ports that the controller uses.

    Attributes:
        installation: The installation whose objects are read.
        loader: Reads context entries; its only POSTs to the API server are access reviews.
    """

    installation: Installation
    client: "Client"
    clock: Clock
    calls: Calls
    kinds: "KubeKinds"
    keys: "KubeMergeKeys"
    reader: "KubeReader"
    loader: "RuleLoader"


def connection_options(command: T) -> T:
    """Add the options of an `Address` to a click command, without ``--policy-group``."""
    for option in reversed(_CONNECTION):
        command = option(command)
    return command


def cluster_options(command: T) -> T:
    """Add the options of an `Address` to a click command; ``--as`` becomes ``user``."""
    return connection_options(_GROUP(command))


def address_of(flags: dict[str, Any]) -> Address:
    """Return the address of the flags of `cluster_options`, and remove them from ``flags``."""
    return Address(**{item.name: flags.pop(item.name) for item in fields(Address)})


@contextlib.asynccontextmanager
async def live_cluster(
    address: Address, *, service_hosts: str = "", cue: str = ""
) -> AsyncIterator[LiveCluster]:
    """Connect to a cluster, and close the connection at the end.

    Args:
        service_hosts: Comma-separated patterns of services that context entries may call.
        cue: The command that evaluates CUE programs; empty where none is named.

    Raises:
        InvalidSetting: There are no usable credentials, or the cluster does not respond. The
            message is one line that names the context and a remedy.
    """
    if not address.user.isprintable() or not address.user.isascii():
        raise InvalidSetting(f"--as {address.user!r}: a user's name is printable ASCII")
    # Imported lazily: it takes a second, and the same commands also work on files alone.
    from reconciler.isolation.cue import NoCue, WithCue  # noqa: PLC0415
    from reconciler.kube.client import connect  # noqa: PLC0415
    from reconciler.kube.discovery import KubeKinds  # noqa: PLC0415
    from reconciler.kube.loader import KubeLoader  # noqa: PLC0415
    from reconciler.kube.mergekeys import KubeMergeKeys  # noqa: PLC0415
    from reconciler.kube.reader import KubeReader  # noqa: PLC0415

    programs = cue_of(cue)
    calls, clock = Calls(), SystemClock()
    async with await connect(
        address.kubeconfig,
        address.context,
        user=address.user,
        clock=clock,
        on_call=calls.add,
    ) as client:
        await _reach(client, address)
        kinds = KubeKinds(client, clock)
        loader = KubeLoader(client, filter(None, service_hosts.split(",")), kinds=kinds)
        yield LiveCluster(
            installation=address.installation,
            client=client,
            clock=clock,
            calls=calls,
            kinds=kinds,
            keys=KubeMergeKeys(client, clock, warn),
            reader=KubeReader(client),
            loader=WithCue(loader, programs or NoCue()),
        )


async def _reach(client: "Client", address: Address) -> None:
    try:
        # A 403 or 404 response also proves that the API server is reachable.
        with contextlib.suppress(Forbidden, NotFound, NoKindMatch):
            await client.request("GET", "/version", timeout=_PATIENCE, repeat=False)
    except ClusterError as error:
        where = f"context {address.context}" if address.context else "the current context"
        said = str(error).removeprefix("get /version: ")
        msg = f"{said}; this is {where}: name another with --context or --kubeconfig"
        raise InvalidSetting(msg) from error
