"""PolicyReports: the results of rules at their targets, in one report per namespace.

A report is for users and their tools; nothing depends on it. Changes within some seconds are one
write, and there are few writes per second over all namespaces, so that under load a trigger costs
a fraction of an API call. Results are removed when their policy, rule or target is deleted: the
first two at once, the last by a slow periodic check.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reconciler.api.meta import PolicyRef, resource_version
from reconciler.api.policyreport import (
    MAX_RESULTS,
    Key,
    Result,
    Verdict,
    is_shortened,
    merge_results,
    render_report,
    results_of,
)
from reconciler.api.updaterequest import Outcome, RequestSpec, TargetStatus, UpdateRequest
from reconciler.clock import Clock
from reconciler.dialects.registry import OPTIONAL_KINDS, REFUSING_KINDS, policy_kind, policy_kinds
from reconciler.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Denied,
    Forbidden,
    NamespaceTerminating,
    NoKindMatch,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from reconciler.installation import REPLACING, Installation
from reconciler.services.catalog.policy_store import PolicyStore, StoredPolicy
from reconciler.services.jobs import WarnsOnce, repeat
from reconciler.services.ports.objects import Kinds, Reader
from reconciler.services.ports.policies import Policies
from reconciler.services.ports.reporting import ReportStore

DISABLED = "reports.kyverno.io/disabled"
"""The label that disables reports for a policy."""
_TICK = 1.0
_FIRST = 1.0
"""Seconds from a first result to its report, so that results are written together."""
_AGAIN = 5.0
"""Seconds between two writes of one report."""
_REST = 20
"""The pause after a write, as a multiple of its duration: large reports are expensive to store."""
_LONGEST = 60.0
"""The longest of these pauses in seconds."""
_PER_TICK = 2
_ROUND = 30.0
"""Seconds between two checks of whether targets exist."""
_PER_ROUND = 20
_UNSERVED = 60.0
_FAILING = "cannot write a report: "
_UNWRITTEN = 120.0
"""Seconds for which results may have waited in a process that was killed."""

Changes = dict[Key, Result | None]


@dataclass(slots=True)
class _Pending:
    """Unwritten changes of one report, which is to be written at the time ``due``.

    Attributes:
        refused: Why the API server refused them before; empty if it did not.
    """

    due: float
    changes: Changes = field(default_factory=dict)
    refused: str = ""


@dataclass(slots=True, kw_only=True)
class Reports(WarnsOnce):
    """Collects results and writes the reports; run by the leader only.

    Attributes:
        enabled: If false, nothing is written and nothing is read.
        installation: The installation whose policies the results are about.
        most: The largest number of results that wait to be written, over all namespaces.
        written: The number of reports written.
        dropped: The number of results that were dropped because too many waited.
    """

    store: ReportStore
    index: PolicyStore
    policies: Policies
    kinds: Kinds
    reader: Reader
    clock: Clock
    enabled: bool = True
    installation: Installation = REPLACING
    most: int = 20_000
    written: int = 0
    dropped: int = 0
    _pending: dict[str, _Pending] = field(default_factory=dict)
    _waiting: int = 0
    _next: dict[str, float] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    _place: str = ""
    _unseen: list[Key] = field(default_factory=list)
    _listed: bool = False
    _looked: float = 0.0

    def __post_init__(self) -> None:
        self.index.subscribe(self._on_policy)

    def _on_policy(self, before: StoredPolicy | None, after: StoredPolicy | None) -> None:
        if before is None or (after is not None and after.compiled is None):
            return
        if after is None or before.compiled is None or _rules(before) - _rules(after):
            self._look_everywhere()

    def add(self, spec: RequestSpec, targets: Iterable[TargetStatus]) -> None:
        """Record the results of a rule at targets."""
        if not self._wants(spec):
            return
        for target in targets:
            result = self._result(spec, target)
            missing = target.outcome is Outcome.NOT_FOUND
            self._put(target.ref.namespace, result.key, None if missing else result)

    def on_recovered(self, request: UpdateRequest) -> None:
        """Record results that a killed process may not have written to its reports."""
        finished = request.status.finished
        if finished is None or not self._wants(request.spec):
            return
        if (self.clock.now() - finished).total_seconds() > _UNWRITTEN:
            return
        for target in request.status.targets:
            result = replace(self._result(request.spec, target), at=finished, recovered=True)
            namespace = target.ref.namespace
            pending = self._pending.get(namespace)
            known = pending is not None and result.key in pending.changes
            if not known and target.outcome is not Outcome.NOT_FOUND:
                self._put(namespace, result.key, result)

    async def run(self) -> None:
        """Write due reports and check targets until cancelled."""
        self._looked = self.clock.monotonic()
        if self.enabled:
            await repeat(
                self._tick,
                every=_TICK,
                at_once=False,
                pauses=(_AGAIN, _AGAIN),
                tell=self.tell,
                failing=_FAILING,
            )

    async def _tick(self) -> None:
        try:
            await self.write_due()
            if self.clock.monotonic() - self._looked >= _ROUND:
                self._looked = self.clock.monotonic()
                await self.look_at_targets()
        except NoKindMatch as error:
            self._pending.clear()
            self._waiting = 0
            raise NoKindMatch(
                "the cluster has no PolicyReport of wgpolicyk8s.io/v1alpha2; install it with"
                " kubectl create -k crds/reports, or set --reports=false",
                retry_after=_UNSERVED,
            ) from error

    async def write_due(self) -> None:
        """Write a limited number of the reports that are due, the longest waiting first."""
        if not self._listed:
            self._known |= await self.store.namespaces()
            self._listed = True
            # Policies may have been deleted while there was no leader.
            self._look_everywhere()
        now = self.clock.monotonic()
        self._next = {name: moment for name, moment in self._next.items() if moment > now}
        due = [name for name, item in self._pending.items() if item.due <= now]
        for namespace in sorted(due, key=lambda name: self._pending[name].due)[:_PER_TICK]:
            pending = self._pending.pop(namespace)
            self._waiting -= len(pending.changes)
            await self._put_report(namespace, pending)

    async def _put_report(self, namespace: str, pending: _Pending) -> None:
        begun = self.clock.monotonic()
        self._next[namespace] = begun + _AGAIN
        try:
            await self._write(namespace, pending.changes)
            self._rest(namespace, self.clock.monotonic() - begun)
        except (Conflict, AlreadyExists):
            self._give_back(namespace, pending)
        except (Throttled, Unavailable, Unauthorized, Forbidden):
            self._give_back(namespace, pending)
            raise
        except (NotFound, NamespaceTerminating):
            self._known.discard(namespace)  # the namespace itself is gone, or soon will be
        except Denied as error:
            # By a quota of this namespace, say: the others need not wait.
            if str(error) != pending.refused:
                self.warn(f"{_FAILING}{error}")
            pending.refused = str(error)
            self._next[namespace] = begun + _LONGEST
            self._give_back(namespace, pending)

    async def look_at_targets(self) -> None:
        """Check whether targets of one report still exist; each call checks a part of them."""
        if not self._unseen:
            self._unseen = await self._results()
        part, self._unseen = self._unseen[:_PER_ROUND], self._unseen[_PER_ROUND:]
        for key in part:
            if not await self._exists(key):
                self._put(self._place, key, None)

    async def _results(self) -> list[Key]:
        """Return the results of the next report; those that are gone take no turn of their own."""
        for _ in range(_PER_ROUND):
            spaces = sorted(self._known)
            if not spaces:
                break
            self._place = next((item for item in spaces if item > self._place), spaces[0])
            report = await self.store.get(self._place)
            if report is not None:
                return list(results_of(report))
            self._known.discard(self._place)
        return []

    def _wants(self, spec: RequestSpec) -> bool:
        return self.enabled and not _is_disabled(self.index.entry(spec.policy))

    async def _write(self, namespace: str, changes: Changes) -> None:
        live = await self.store.get(namespace)
        stored = results_of(live)
        merged = merge_results(stored, changes, self.installation.reporter)
        rules = {key[:2] for key in merged}
        for policy in {policy for policy, rule in rules if not self._is_wanted(policy, rule)}:
            await self._look_for(policy)
        wanted = {rule for rule in rules if self._is_wanted(*rule)}
        results = [raw for key, raw in merged.items() if key[:2] in wanted]
        if not results:
            self._known.discard(namespace)
            if live is not None:
                await self.store.delete(namespace)
            return
        self._known.add(namespace)
        report = render_report(
            namespace,
            results,
            shortened=is_shortened(live),
            installation=self.installation,
        )
        if live is not None:
            if results_of(report) == stored:
                return
            report["metadata"]["resourceVersion"] = resource_version(live)
        await self.store.put(namespace, report)
        self.written += 1

    def _is_wanted(self, policy: str, rule: str) -> bool:
        """Return whether a policy of that key has the rule and reports enabled.

        A report does not say of which kind a policy is, so any of the known ones will do.
        """
        known = map(self.index.entry, _named(policy, self.installation))
        reporting = (item for item in known if item is not None and not _is_disabled(item))
        return any(item.compiled is None or rule in _rules(item) for item in reporting)

    async def _look_for(self, policy: str) -> None:
        """Read the policies of that key which no watch has delivered, as at the start."""
        for ref in _named(policy, self.installation):
            if self.index.entry(ref) is not None:
                continue
            try:
                await self.index.take_in(await self.policies.get(ref))
            except NotFound:
                continue
            except (NoKindMatch, Forbidden):
                # Without the kind, or the right to read it, nothing acts on an optional one.
                if policy_kind(ref, self.installation) not in OPTIONAL_KINDS:
                    raise

    async def _exists(self, key: Key) -> bool:
        _, _, api_version, kind, namespace, name, _ = key
        found = await self.kinds.find(api_version, kind)
        if not found:
            return False
        try:
            await self.reader.get(found[0], namespace, name)
        except NotFound:
            return False
        except (Throttled, Unavailable):
            raise
        except ClusterError:
            return True  # unknown, for example without the right to read it
        return True

    def _result(self, spec: RequestSpec, target: TargetStatus) -> Result:
        ref = target.ref
        place = f" in namespace {ref.namespace}" if ref.namespace else ""
        what = f"{ref.kind}/{ref.name}{place}"
        verdict = Verdict.PASS
        match target.outcome:
            case Outcome.PATCHED:
                message = f"mutated {what}"
            case Outcome.UNCHANGED:
                message = f"{what}: {target.message or 'already as the rule requires'}"
            case Outcome.SKIPPED:
                verdict, message = Verdict.SKIP, target.message
            case _:
                verdict, message = Verdict.ERROR, target.message
        return Result(
            policy=spec.policy.key,
            rule=spec.rule,
            target=ref,
            subresource=target.subresource,
            verdict=verdict,
            message=message,
            changed=target.outcome is Outcome.PATCHED,
            at=self.clock.now(),
        )

    def _put(self, namespace: str, key: Key, result: Result | None) -> None:
        changes = self._open(namespace).changes
        before = len(changes)
        older = changes.pop(key, None)
        if result is not None and not result.changed and older is not None and older.changed:
            result = older  # it was changed, and has been correct since
        changes[key] = result
        if len(changes) > MAX_RESULTS:
            del changes[_least(changes)]
        elif self._waiting + len(changes) - before > self.most:
            del changes[key]
            self.dropped += 1
        self._waiting += len(changes) - before

    def _open(self, namespace: str) -> _Pending:
        pending = self._pending.get(namespace)
        if pending is None:
            due = max(self.clock.monotonic() + _FIRST, self._next.get(namespace, 0.0))
            pending = self._pending[namespace] = _Pending(due)
        return pending

    def _rest(self, namespace: str, took: float) -> None:
        """Postpone the next write of a report, the longer the more its last write cost."""
        following = self.clock.monotonic() + min(_REST * took, _LONGEST)
        self._next[namespace] = max(self._next[namespace], following)
        if (pending := self._pending.get(namespace)) is not None:
            pending.due = max(pending.due, self._next[namespace])

    def _give_back(self, namespace: str, former: _Pending) -> None:
        pending = self._open(namespace)
        pending.refused = former.refused
        newer = pending.changes
        self._waiting += len(former.changes.keys() - newer.keys())
        for key, result in former.changes.items():
            newer.setdefault(key, result)

    def _look_everywhere(self) -> None:
        for namespace in self._known:
            self._open(namespace)


def _named(key: str, installation: Installation) -> Iterator[PolicyRef]:
    """Yield the policies that may have a key, one of each kind that has results."""
    namespace, _, name = key.rpartition("/")
    for kind in policy_kinds(installation):
        if kind.namespaced == bool(namespace) and kind not in REFUSING_KINDS:
            yield PolicyRef(
                api_version=kind.api_version, kind=kind.kind, namespace=namespace, name=name
            )


def _is_disabled(policy: StoredPolicy | None) -> bool:
    return policy is not None and DISABLED in (policy.head["metadata"].get("labels") or {})


def _rules(policy: StoredPolicy) -> frozenset[str]:
    programs = () if policy.compiled is None else policy.compiled.in_background
    return frozenset(program.rule for program in programs)


def _least(changes: Mapping[Key, Result | None]) -> Key:
    """Return the key of the oldest result that is not an error, else of the oldest change."""
    harmless = (key for key, item in changes.items() if item and item.verdict is not Verdict.ERROR)
    return next(harmless, next(iter(changes)))
