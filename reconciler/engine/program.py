"""The internal form to which every policy language compiles: data, evaluated many times."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import PolicyRef
from reconciler.engine.outcome import Convergence
from reconciler.engine.ports import Binding, Condition, Match, Mutation, Refusal, Targets

Paths = frozenset[tuple[str, ...]]

EntryNames = frozenset[str] | None
"""Names of GlobalContextEntries; None for all of them."""

_NONE: Final = frozenset[str]()


FAIL: Final = "Fail"
IGNORE: Final = "Ignore"
"""Failure policies: whether the API server refuses a trigger that cannot be recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The rule and the policy that a program was compiled from.

    Attributes:
        location: Of the rule in the policy, as ``spec.rules[0]``.
        selectors: Location of what selects objects for all rules; empty: ``match`` of the rule.
        everywhere: The policy is namespaced, but applies to the whole cluster.
        account: The ServiceAccount as which its work is done; None: the one shared by all.
    """

    dialect: str
    policy: PolicyRef
    uid: str
    generation: int
    rule: str
    location: str
    selectors: str = ""
    everywhere: bool = False
    account: ServiceAccount | None = None

    @property
    def selection(self) -> str:
        """Return the location of what selects the objects of the rule."""
        return self.selectors or f"{self.location}.match"

    @property
    def namespace(self) -> str:
        """Return the namespace to which the policy is confined, empty where it is not."""
        return "" if self.everywhere else self.policy.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The fields of the trigger that a rule reads; the empty path stands for the whole object.

    Attributes:
        request: Fields of ``request``, and root names derived from its user; None where it may
            read any.
    """

    object: Paths = frozenset()
    old_object: Paths = frozenset()
    request: frozenset[str] | None = frozenset()

    def joined(self, other: "Projection") -> "Projection":
        """Return the union of both projections."""
        unlimited = self.request is None or other.request is None
        return Projection(
            object=self.object | other.object,
            old_object=self.old_object | other.old_object,
            request=None if unlimited else (self.request or _NONE) | (other.request or _NONE),
        )


class Phase(Enum):
    """When a rule runs."""

    ADMISSION = auto()
    """Before an object is stored: the rule changes the object that is written."""
    VERDICT = auto()
    """After all rules that change the object: the rule allows or refuses the request."""
    TRIGGERED = auto()
    """After its trigger was stored: the rule changes its targets."""
    EXISTING = auto()
    """On existing objects: each is trigger and target at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One compiled rule.

    Attributes:
        phases: When it runs in a cluster; the desk ignores this and always runs it.
        binding: Names that the rule adds to the data; they may read the trigger, but no target.
        targets: None for a rule that changes its trigger itself.
        reads: The context paths that it reads; the empty path where the data decides.
        on_policy_change: It runs on existing triggers when the policy changes.
        skip_background: Requests of the controller itself do not trigger the rule.
        tier: Rules of one language in the same tier are matched on the same object, before any
            of them changes it, lowest tier first. None: the rule is matched by itself.
        verdict: The message of a rule that refuses each request for which it fires; None where
            it refuses none.
        appends: It adds to lists by position, so that it adds again to its own result.
        global_entries: The GlobalContextEntries that it reads; None where values decide which.
        filtered: The resource filters of the cluster's settings apply to it.
        before: The earlier rules of a policy that applies only one. This rule acts where none of
            them fired or, for rules that change their trigger, where none changed it.
    """

    origin: Origin
    phases: frozenset[Phase]
    match: Match
    binding: Binding
    condition: Condition | None
    targets: Targets | None
    mutation: Mutation
    projection: Projection
    reads: Paths
    on_policy_change: bool
    skip_background: bool
    tier: int | None = None
    verdict: Refusal | None = None
    appends: bool = False
    global_entries: EntryNames = frozenset()
    filtered: bool = True
    before: "tuple[Program, ...]" = field(default=(), repr=False, compare=False)

    @property
    def rule(self) -> str:
        """Return the rule's name."""
        return self.origin.rule

    def acting_as(self, account: ServiceAccount | None) -> "Program":
        """Return the rule to be run as an account; the rules in `before` keep theirs."""
        return replace(self, origin=replace(self.origin, account=account))

    @property
    def changes_trigger(self) -> bool:
        """Return whether the rule changes its trigger itself."""
        return self.targets is None

    @property
    def converges(self) -> bool:
        """Return whether the rule is known to converge at every object that it changes.

        On existing objects every rule does: one that would change its own result is skipped.
        """
        return self.mutation.convergence is Convergence.YES or Phase.EXISTING in self.phases


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A policy object with the programs of its rules.

    Attributes:
        failure_policy: ``Fail`` or ``Ignore``, for the policy's webhook.
        timeout: The webhook timeout in seconds that the policy sets, or None.
        match_conditions: CEL conditions for the webhook, as written.
        warnings: Warnings for the author: legal, but without effect or surprising.
        rule_count: Number of rules by kind, for the status.
        emit_warning: The API server warns the user of a request whose object a rule changes.
        first_only: Only one rule is applied to a trigger; see `Program.before`.
        on_existing: Its programs that change their trigger, in the form that runs on existing
            objects, where the policy enables that.
        generated: Rules that were generated from others, in the language's own syntax.
        variant: Its annotations that affect compilation; they change without a new generation.
        account: The ServiceAccount as which its work is done, as `Origin.account`.
        object_labels: Names and values of labels; the policy ignores an object that has them
            neither before nor after the request.
        cue: Locations and texts of CUE programs, which not every installation evaluates.
        kinds: The kinds that its rules apply to, for its status, where its text names none.
        acts_once: Its webhook must not be reinvoked, as a second call would change more.
        chained: The language whose tiers hold its rules, together with those of all other
            policies; empty where its rules are matched by themselves.
    """

    ref: PolicyRef
    uid: str
    generation: int
    programs: tuple[Program, ...]
    failure_policy: str = FAIL
    timeout: int | None = None
    match_conditions: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()
    rule_count: tuple[tuple[str, int], ...] = ()
    first_only: bool = False
    emit_warning: bool = False
    account: ServiceAccount | None = None
    on_existing: tuple[Program, ...] = ()
    generated: tuple[Any, ...] = ()
    variant: tuple[str, ...] = ()
    object_labels: tuple[tuple[str, str], ...] = ()
    cue: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    kinds: tuple[str, ...] = ()
    acts_once: bool = field(init=False, repr=False, compare=False)
    chained: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once, because every request reads both for every policy.
        object.__setattr__(self, "acts_once", self._acts_once())
        tiered = (item.origin.dialect for item in self.programs if item.tier is not None)
        object.__setattr__(self, "chained", next(tiered, ""))

    def acting_as(self, account: ServiceAccount | None) -> "CompiledPolicy":
        """Return the policy with all of its programs to be run as an account."""
        if account == self.account:
            return self
        return replace(
            self,
            programs=_acting_as(self.programs, account),
            on_existing=_acting_as(self.on_existing, account),
            account=account,
        )

    def ignoring(self, why: str) -> "CompiledPolicy":
        """Return the policy with failure policy Ignore, and a warning that gives the reason."""
        if self.failure_policy == IGNORE:
            return self
        warning = f"spec.failurePolicy: Ignore applies instead of {self.failure_policy}: {why}"
        return replace(self, failure_policy=IGNORE, warnings=(*self.warnings, warning))

    @property
    def key(self) -> str:
        """Return the policy's name for people; see `PolicyRef.key`."""
        return self.ref.key

    def _acts_once(self) -> bool:
        """Return whether a second call of the webhook would change more.

        On reinvocation, a policy that applies one rule would find that rule's work done and apply
        the next. Generated rules do not count: they match other kinds than their originals.
        """
        programs = self.in_phase(Phase.ADMISSION)
        chooses = self.first_only and len(programs) - len(self.generated) > 1
        return chooses or any(program.appends for program in programs)

    def in_phase(self, phase: Phase) -> tuple[Program, ...]:
        """Return the programs that run in a phase, in the order of the policy."""
        return tuple(program for program in self.programs if phase in program.phases)

    @property
    def in_background(self) -> tuple[Program, ...]:
        """Return the programs that run through UpdateRequests, after an object was stored."""
        return (*self.in_phase(Phase.TRIGGERED), *self.on_existing)

    def global_entries(self, phase: Phase) -> EntryNames:
        """Return the GlobalContextEntries that the rules of a phase read."""
        return joined(program.global_entries for program in self.in_phase(phase))

    def background_program(self, rule: str) -> Program | None:
        """Return the program of a rule that runs through UpdateRequests, None if there is none."""
        return next((item for item in self.in_background if item.rule == rule), None)

    def program(self, rule: str) -> Program | None:
        """Return the program of the rule with a name, None if there is none."""
        return next((item for item in self.programs if item.rule == rule), None)


def joined(several: Iterable[EntryNames]) -> EntryNames:
    """Return the union of several sets of names."""
    found = set[str]()
    for names in several:
        if names is None:
            return None
        found |= names
    return frozenset(found)


def _acting_as(programs: Iterable[Program], account: ServiceAccount | None) -> tuple[Program, ...]:
    bound: dict[int, Program] = {}
    for program in programs:
        # The rules in `before` precede the program in the policy, so they are bound already.
        before = tuple(bound[id(item)] for item in program.before)
        bound[id(program)] = replace(program.acting_as(account), before=before)
    return tuple(bound.values())


def project(tree: Any, paths: Iterable[tuple[str, ...]]) -> Any:
    """Return the parts of a tree that paths name; absent fields stay absent.

    A path ends at a list, which is kept whole: indexes would shift in a partial list.
    """
    kept: dict[str, Any] = {}
    for path in paths:
        if not path:
            return tree
        _keep(tree, path, kept)
    return kept


def _keep(tree: Any, path: tuple[str, ...], kept: dict[str, Any]) -> None:
    step = path[0]
    if not isinstance(tree, dict) or step not in tree:
        return
    value = tree[step]
    if len(path) == 1 or not isinstance(value, dict):
        kept[step] = value
        return
    inner = kept.setdefault(step, {})
    if inner is not value:
        _keep(value, path[1:], inner)
