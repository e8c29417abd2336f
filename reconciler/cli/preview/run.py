"""Runs a preview, from reading the policies to the report."""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.api.meta import ANNOTATION_EXISTING, Object
from reconciler.cli.desk.live import Address, LiveCluster, live_cluster
from reconciler.cli.desk.operations import operation_for
from reconciler.cli.desk.progress import Bar
from reconciler.cli.desk.stored import honoured_exceptions, stored_filters
from reconciler.cli.preview.baseline import compare
from reconciler.cli.preview.policies import compile_found, read_stored
from reconciler.cli.preview.report import Report
from reconciler.cli.preview.rule_summary import RuleSummary
from reconciler.cli.preview.secrets import WatchedLoader
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import Forbidden, InvalidSetting
from reconciler.kube.access import OwnAccess
from reconciler.kube.policies import KubePolicies
from reconciler.kube.requests import KubeRequests
from reconciler.kube.writer import KubeWriter
from reconciler.services.catalog.caveats import why_silent
from reconciler.services.catalog.exceptions import ExceptionIndex
from reconciler.services.catalog.settings import Filters
from reconciler.services.preview.dryrun import Identity
from reconciler.services.preview.preview import Occasion, Preview, preview_over

DEFAULT_LIMIT: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The options of one preview.

    Attributes:
        found: Policies of files, each with its place.
        stored: Keys of stored policies.
        server_dry_run: Whether the API server checks each change in a dry run.
        operation: The operation of requests; None for that of `operation_for`.
        user: ``{userInfo, roles, clusterRoles}`` of the sender of requests, or empty.
        limit: The maximum number of changes, and of problems, per rule; 0 means all.
        exceptions: PolicyExceptions of files to honour.
        exception_namespace: Patterns of namespaces whose stored exceptions are honoured too.
        expected: The objects of the baseline, None where there is none.
    """

    found: Sequence[tuple[str, Object]]
    stored: Sequence[str] = ()
    address: Address
    server_dry_run: bool = False
    operation: str | None = None
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)
    namespace: str = ""
    limit: int = DEFAULT_LIMIT
    service_hosts: str = ""
    cue: str = ""
    exceptions: Sequence[PolicyException] = ()
    exception_namespace: str | None = None
    expected: frozenset[Identity] | None = None


async def run(wish: Wish, *, warn: Callable[[str], None]) -> Report:
    """Preview the policies.

    Args:
        warn: Called with messages about the policies before the preview starts.

    Raises:
        InvalidSetting: The cluster cannot be reached, or there is no rule to preview.
        ClusterError: A stored policy cannot be read.
    """
    async with live_cluster(wish.address, service_hosts=wish.service_hosts, cue=wish.cue) as live:
        begun = live.clock.monotonic()
        stored = await read_stored(
            wish.stored,
            KubePolicies(live.client, installation=live.installation),
            live.installation,
        )
        chosen = compile_found([*wish.found, *stored])
        for text in (*chosen.warnings, *chosen.refused):
            warn(text)
        acting = [await _acting(policy, live) for policy in chosen.compiled]
        programs = [(program, note) for policy, note in acting for program in policy.in_background]
        if not programs and not chosen.refused:
            raise InvalidSetting(
                "no rule changes existing objects: nothing to preview. A rule without"
                f' mutate.targets does where its policy has {ANNOTATION_EXISTING}: "true"'
            )
        loader = WatchedLoader(live.loader)
        policies = {policy.key for policy in chosen.compiled}
        exceptions = await honoured_exceptions(
            live, wish.exception_namespace, policies, wish.exceptions
        )
        filters = await stored_filters(live)
        preview = _preview(
            live, loader, wish, exceptions=ExceptionIndex.holding(exceptions), filters=filters
        )
        with Bar() as bar:
            summaries = []
            for program, note in programs:
                summary = await _rule(preview, program, wish, loader, bar)
                summary.notes[:0] = filter(None, [note])
                summaries.append(summary)
        changed: set[Identity] = set().union(*(summary.changed for summary in summaries))
        return Report(
            rules=summaries,
            refusals=chosen.refused,
            server=live.client.address,
            tried=wish.server_dry_run,
            permissions=sorted(preview.cluster.permissions),
            difference=None if wish.expected is None else compare(wish.expected, changed),
            calls=live.calls.total,
            seconds=live.clock.monotonic() - begun,
        )


async def _acting(policy: CompiledPolicy, live: LiveCluster) -> tuple[CompiledPolicy, str]:
    """Return a policy bound to the rights of the preview, and a note that says whose they are."""
    account = policy.account
    if account is None:
        return policy, ""
    with contextlib.suppress(Forbidden):
        if await OwnAccess(live.client).may(account.impersonation):
            return policy, f"as ServiceAccount {account}, in whose name the policy works"
    text = (
        f"with your rights, not with those of ServiceAccount {account}, in whose name the policy"
        " works: you may not impersonate it"
    )
    return policy.acting_as(None), text


def _preview(
    live: LiveCluster,
    loader: WatchedLoader,
    wish: Wish,
    *,
    exceptions: ExceptionIndex,
    filters: Filters | None,
) -> Preview:
    server = KubeWriter(live.client, live.clock, dry_run=True) if wish.server_dry_run else None
    return preview_over(
        kinds=live.kinds,
        keys=live.keys,
        reader=live.reader,
        loader=loader,
        policies=KubePolicies(live.client, installation=live.installation),
        requests=KubeRequests(
            live.client, live.installation.namespace, installation=live.installation
        ),
        server=server,
        exceptions=exceptions,
        filters=filters,
        clock=live.clock,
        randbelow=secrets.randbelow,
    )


async def _rule(
    preview: Preview, program: Program, wish: Wish, loader: WatchedLoader, bar: Bar
) -> RuleSummary:
    operation = operation_for(program, flag=wish.operation, sent=bool(wish.user)).name
    occasion = Occasion(
        operation=operation,
        user=wish.user if operation else {},
        namespace=wish.namespace,
    )
    notes: list[str] = []
    if operation and program.match.needs.user and not wish.user:
        notes.append("match depends on who sends a request; name a user with --userinfo")
    if preview.filters is not None:
        notes += why_silent(program, preview.filters)
    notes += await preview.unseen(program, occasion)
    summary = RuleSummary(program=program, operation=operation, limit=wish.limit, notes=notes)
    bar.begin(f"{program.origin.policy} / {program.rule}")
    async for chunk in preview.walk(program, occasion):
        summary.add(chunk, loader.mask)
        bar.advance(chunk.read, chunk.left)
    return summary
