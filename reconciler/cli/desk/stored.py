"""Reads stored policies by name, PolicyExceptions and resource filters from a cluster."""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import click

from reconciler.api.kinds import kinds_of, named_with_kind
from reconciler.api.meta import CONFIG_MAPS, Object
from reconciler.cli.desk.files import SUFFIXES, is_file
from reconciler.cli.desk.live import LiveCluster
from reconciler.cli.output.screen import warn
from reconciler.dialects.registry import compile_exception
from reconciler.engine.exceptions import PolicyException
from reconciler.errors import Forbidden, InvalidPolicy, InvalidSetting, NotFound
from reconciler.services.catalog.exceptions import ExceptionSettings
from reconciler.services.catalog.settings import Filters, default_settings, read_settings

_NAME = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_CLUSTER_WIDE: Final = re.compile(r"(?:(?:retrofit)?clusterpolic(?:y|ies)|r?cpol)/([^/]+)")
_NAMESPACED: Final = re.compile(r"(?:(?:retrofit)?polic(?:y|ies)|r?pol)/(?:([^/]+)/)?([^/]+)")
_PLAIN: Final = re.compile(rf"{_NAME}(/{_NAME})?")

exception_namespace = click.option(
    "--exception-namespace",
    metavar="PATTERNS",
    default=None,
    help="With a cluster: namespaces whose stored PolicyExceptions are honoured, like the flag of"
    " the programs. Default: all; empty: none.",
)


def policy_key(name: str) -> str:
    """Return the key of the stored policy that a name refers to, empty for a file.

    An existing file takes precedence, because the user can see it.

    Raises:
        InvalidSetting: A Policy is named without its namespace.
    """
    if is_file(name):
        return ""
    if wide := _CLUSTER_WIDE.fullmatch(name):
        return wide[1]
    if named_with_kind(name) is not None:
        return name
    if inside := _NAMESPACED.fullmatch(name):
        if not inside[1]:
            msg = f"{name}: no such file; a Policy of the cluster is policy/NAMESPACE/NAME"
            raise InvalidSetting(msg)
        return f"{inside[1]}/{inside[2]}"
    if Path(name).suffix not in SUFFIXES and _PLAIN.fullmatch(name):
        return name
    return ""


async def honoured_exceptions(
    live: LiveCluster,
    namespaces: str | None,
    policies: AbstractSet[str],
    given: Iterable[PolicyException],
) -> tuple[PolicyException, ...]:
    """Return the exceptions of files, and those of a cluster that name one of the policies.

    An exception of a file replaces the stored one of the same name. Stored exceptions are
    reported on stderr: whether the programs honour them depends on their flags.

    Args:
        namespaces: Comma-separated patterns of the stored exceptions' namespaces; None for all.
        policies: The keys of the policies.
        given: The exceptions of files.

    Raises:
        ClusterError: Reading fails, other than for missing rights.
    """
    chosen = "*" if namespaces is None else namespaces
    exception_settings = ExceptionSettings(enabled=True, namespaces=chosen)
    own = {item.key: item for item in given}
    found: dict[str, PolicyException] = {}
    for obj in await _stored(live) if chosen else ():
        if exception_settings.objection(obj["metadata"].get("namespace", "")):
            continue
        try:
            item = compile_exception(obj)
        except InvalidPolicy:
            continue  # The programs do not honour it either.
        if item.key not in own and not item.policies.isdisjoint(policies):
            found[item.key] = item
    if found:
        warn(
            f"honoured, as the cluster stores them: PolicyException {', '.join(sorted(found))};"
            " the programs do so with --enable-policy-exception and --exception-namespace"
        )
    return tuple(item for _, item in sorted({**found, **own}.items()))


async def _stored(live: LiveCluster) -> Sequence[Object]:
    known = kinds_of(live.installation).exceptions
    served = await live.kinds.find(known.api_version, known.kind)
    found: list[Object] = []
    for kind in served:
        try:
            found += [item async for item in live.reader.items(kind)]
        except Forbidden as error:
            warn(f"stored PolicyExceptions are not honoured: {error}")
    return found


async def stored_filters(live: LiveCluster) -> Filters | None:
    """Return the resource filters of a cluster, None where the settings may not be read.

    Raises:
        ClusterError: Reading fails, other than for missing rights.
    """
    namespace = live.installation.namespace
    defaults = default_settings(namespace)
    try:
        stored = await live.reader.get(CONFIG_MAPS, namespace, live.installation.settings)
    except NotFound:
        return defaults.filters
    except Forbidden as error:
        warn(f"resourceFilters cannot be read, and count as empty: {error}")
        return None
    data = stored.get("data") or {}
    return read_settings(data, old=defaults, own_namespace=namespace).settings.filters
