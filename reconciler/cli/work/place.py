"""Shared parts of the commands for a cluster's work: options, names, policies and requests."""

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from reconciler.api.kinds import named_with_kind, policy_named
from reconciler.api.meta import Object
from reconciler.cli.desk.live import LiveCluster, address_of, cluster_options, live_cluster
from reconciler.dialects.registry import policy_kinds, required_kinds
from reconciler.errors import Forbidden, InvalidSetting, NoKindMatch, NotFound
from reconciler.kube.policies import KubePolicies
from reconciler.kube.requests import KubeRequests

T = TypeVar("T", bound=Callable[..., Any])

_CLUSTER_WIDE: Final = re.compile(r"(?:(?:(?:retrofit)?clusterpolic(?:y|ies)|r?cpol)/)?([^/]+)")
_NAMESPACED: Final = re.compile(r"(?:(?:(?:retrofit)?polic(?:y|ies)|r?pol)/)?([^/]+)/([^/]+)")
_REQUEST: Final = re.compile(
    r"(?:(?:(?:retrofit)?updaterequests?|r?ur)/)?((?:ur|sweep|run|hook)-[0-9a-f]{32})"
)
_ALONE: Final = frozenset(
    {"policy", "policies", "pol", "retrofitpolicy", "retrofitpolicies", "rpol"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """A cluster with its requests and policies, accessed as the user of the kubeconfig."""

    live: LiveCluster
    requests: KubeRequests
    policies: KubePolicies
    namespace: str


def work_options(command: T) -> T:
    """Add the options for a cluster and for the namespace of the requests to a click command."""
    return click.option(
        "--requests-namespace",
        metavar="NAMESPACE",
        default="",
        envvar="RETROFIT_NAMESPACE",
        help="Where the UpdateRequests are. Default: kyverno, or kube-retrofit in its own group.",
    )(cluster_options(command))


@contextlib.asynccontextmanager
async def workplace(*, requests_namespace: str, **flags: Any) -> AsyncIterator[Workplace]:
    """Connect to the cluster of the flags of `work_options`.

    Raises:
        InvalidSetting: The cluster cannot be used; the message is one line with a remedy.
    """
    async with live_cluster(address_of(flags)) as live:
        own = live.installation
        namespace = requests_namespace or own.namespace
        with plain_words():
            yield Workplace(
                live=live,
                requests=KubeRequests(live.client, namespace, installation=own),
                policies=KubePolicies(live.client, installation=own),
                namespace=namespace,
            )


@contextlib.contextmanager
def plain_words() -> Iterator[None]:
    """Translate a missing definition or a missing right into a message for the user.

    Raises:
        InvalidSetting: Raised instead of `NoKindMatch` and `Forbidden`.
    """
    try:
        yield
    except NoKindMatch as error:
        msg = f"the cluster has no kube-retrofit: {error}; install the manifests first"
        raise InvalidSetting(msg) from error
    except Forbidden as error:
        msg = f"you may not {error.permission or str(error)}: ask for the right, or use --as"
        raise InvalidSetting(msg) from error


def policy_key(name: str) -> str:
    """Return the key of a policy from its name on the command line.

    ``NAME``, ``clusterpolicy/NAME`` and ``cpol/NAME`` are ClusterPolicies; ``NAMESPACE/NAME``,
    ``policy/NAMESPACE/NAME`` and ``pol/...`` are Policies; policies of other languages have their
    kind, as ``modrule/NAMESPACE/NAME`` and ``clusteroverridepolicy/NAME``.

    Raises:
        InvalidSetting: The name has none of these forms.
    """
    if named_with_kind(name) is not None:
        return name
    if wide := _CLUSTER_WIDE.fullmatch(name):
        return wide[1]
    inside = _NAMESPACED.fullmatch(name)
    if inside and inside[1] not in _ALONE:
        return f"{inside[1]}/{inside[2]}"
    raise InvalidSetting(
        f"{name}: name a ClusterPolicy as NAME, a Policy as NAMESPACE/NAME, and one of another"
        " language with its kind, as modrule/NAMESPACE/NAME or clusteroverridepolicy/NAME"
    )


def request_name(name: str) -> str:
    """Return the name of a request from the command line, empty where it is not one."""
    found = _REQUEST.fullmatch(name)
    return found[1] if found else ""


async def stored_policy(place: Workplace, key: str) -> dict[str, Any]:
    """Return a stored policy.

    Raises:
        InvalidSetting: The policy does not exist.
    """
    ref = policy_named(key, place.live.installation)
    try:
        return await place.policies.get(ref)
    except NotFound as error:
        hint = "" if "/" in key else "; a Policy is NAMESPACE/NAME"
        raise InvalidSetting(f"the cluster has no {ref.kind} {key}{hint}") from error


async def stored_policies(place: Workplace) -> tuple[list[Object], bool]:
    """Return the policies of all kinds that the user may list, and whether these are all.

    Raises:
        NoKindMatch: kube-retrofit is not installed.
    """
    found: list[Object] = []
    complete = True
    for kind in policy_kinds(place.live.installation):
        try:
            found += [item async for item in place.live.reader.items(kind)]
        except Forbidden:
            complete = False
        except NoKindMatch:
            if kind in required_kinds(place.live.installation):
                raise
    return found, complete


def why_not_ready(policy: Object) -> str:
    """Return the message of the condition Ready, empty where the policy is ready."""
    for item in (policy.get("status") or {}).get("conditions") or ():
        if item.get("type") == "Ready":
            return "" if item.get("status") == "True" else str(item.get("message", "unknown"))
    return "no controller has looked at it yet"
