"""The internal form that every policy language compiles to: data, evaluated many times."""

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
"""Of GlobalContextEntries; None for all of them."""

_NONE: Final = frozenset[str]()


FAIL: Final = "Fail"
IGNORE: Final = "Ignore"
"""What becomes of a trigger that cannot be recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a program comes from.

    Attributes:
        location: Of the rule in the policy, as ``spec.rules[0]``.
        everywhere: The policy stands in a namespace, and is for the whole cluster all the same.
        account: In whose name its work is done; None: of the one that all policies share.
    """

    dialect: str
    policy: PolicyRef
    uid: str
    generation: int
    rule: str
    location: str
    everywhere: bool = False
    account: ServiceAccount | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace that the policy never leaves, empty where there is none."""
        return "" if self.everywhere else self.policy.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a rule reads of the trigger; the empty path stands for the whole object.

    Attributes:
        request: Fields of ``request``, and what its user decides; None where it may be any.
    """

    object: Paths = frozenset()
    old_object: Paths = frozenset()
    request: frozenset[str] | None = frozenset()

    def joined(self, other: "Projection") -> "Projection":
        """Return what both read."""
        unlimited = self.request is None or other.request is None
        return Projection(
            object=self.object | other.object,
            old_object=self.old_object | other.old_object,
            request=None if unlimited else (self.request or _NONE) | (other.request or _NONE),
        )


class Phase(Enum):
    """When a rule runs."""

    ADMISSION = auto()
    """Before an object is stored: it changes the object that is written."""
    VERDICT = auto()
    """When all that change an object had their turn: it refuses to have it stored, or not."""
    TRIGGERED = auto()
    """After its trigger was stored: it changes the targets that it names."""
    EXISTING = auto()
    """On objects that are stored already: each is trigger and target at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One rule, ready to be evaluated.

    Attributes:
        phases: When it runs in a cluster; the desk runs it in any case.
        binding: Names that the rule adds to the data; they know the trigger and no target.
        targets: None for a rule that changes its trigger itself.
        reads: The paths of its context that it reads; the empty one where the data decides.
        on_policy_change: Existing triggers are worked through when the policy changes.
        skip_background: Requests of the controller itself do not trigger the rule.
        tier: Rules of one language that have the same one are matched on the same object, before
            any of them changes it, the lowest tier first. None: it is matched by itself.
        verdict: What a rule says that refuses each request for which it fires; None where it
            refuses none.
        appends: It adds to lists by position: applied to its own result it adds again.
        global_entries: The GlobalContextEntries that it reads; None where only values tell which.
        filtered: What the settings of the cluster leave out fires it as little as any other.
        before: Rules that come first where a policy applies only one: this rule acts where none
            of them fires, or, of those that change their trigger, where none changed it.
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
    before: "tuple[Program, ...]" = ()

    @property
    def rule(self) -> str:
        """Return the rule's name."""
        return self.origin.rule

    def acting_as(self, account: ServiceAccount | None) -> "Program":
        """Return the rule with its work, but for those before it, done in that name."""
        return replace(self, origin=replace(self.origin, account=account))

    @property
    def changes_trigger(self) -> bool:
        """Return whether the rule changes its trigger itself."""
        return self.targets is None

    @property
    def converges(self) -> bool:
        """Return whether it is known to converge at every object that it changes.

        On what exists, a rule that would go on changing its result changes nothing.
        """
        return self.mutation.convergence is Convergence.YES or Phase.EXISTING in self.phases


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A policy object with the programs of its rules.

    Attributes:
        failure_policy: ``Fail`` or ``Ignore``, of its part of the webhook.
        timeout: Seconds that the policy asks the API server to wait, or None.
        match_conditions: CEL conditions for the webhook, as written.
        warnings: What the author should know: legal, but not acted on or surprising.
        rule_count: Rules by kind, for the status.
        emit_warning: Whoever writes an object that a rule changes is warned of the change.
        first_only: Only one rule is applied to a trigger; see `Program.before`.
        on_existing: Those of its programs that change their trigger as they run on what exists,
            where the policy wants that.
        generated: Rules that were made of others, as the language writes them.
        variant: What its annotations say about how it is compiled; a generation has several.
        account: In whose name its work is done, as `Origin.account`.
        object_labels: Names and values of labels without which no object concerns it, neither as
            it is nor as it was.
        cue: Places and texts of programs in CUE, which not every installation evaluates.
        kinds: Those that its rules are for, for people, where its language does not name them.
        acts_once: What it does before an object is stored may only be done once.
        chained: The language in whose tiers its rules stand, together with those of all other
            policies; empty where they are matched by themselves.
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
        # Every request asks every policy.
        object.__setattr__(self, "acts_once", self._acts_once())
        tiered = (item.origin.dialect for item in self.programs if item.tier is not None)
        object.__setattr__(self, "chained", next(tiered, ""))

    def acting_as(self, account: ServiceAccount | None) -> "CompiledPolicy":
        """Return the policy with all of its work done in the name of an account."""
        if account == self.account:
            return self
        return replace(
            self,
            programs=_acting_as(self.programs, account),
            on_existing=_acting_as(self.on_existing, account),
            account=account,
        )

    def ignoring(self, why: str) -> "CompiledPolicy":
        """Return the policy as it is where none may stop requests; its author sees why."""
        if self.failure_policy == IGNORE:
            return self
        warning = f"spec.failurePolicy: Ignore holds instead of {self.failure_policy}: {why}"
        return replace(self, failure_policy=IGNORE, warnings=(*self.warnings, warning))

    @property
    def key(self) -> str:
        """Return what people call it; see `PolicyRef.key`."""
        return self.ref.key

    def _acts_once(self) -> bool:
        """Return whether another time would do more.

        Asked again, a policy that applies one rule would find that one's work done and apply the
        next. Rules that were made of others match other kinds than those.
        """
        programs = self.in_phase(Phase.ADMISSION)
        chooses = self.first_only and len(programs) - len(self.generated) > 1
        return chooses or any(program.appends for program in programs)

    def in_phase(self, phase: Phase) -> tuple[Program, ...]:
        """Return the programs that run in a phase, in the order of the policy."""
        return tuple(program for program in self.programs if phase in program.phases)

    @property
    def in_background(self) -> tuple[Program, ...]:
        """Return the programs whose work is done by requests, after an object was stored."""
        return (*self.in_phase(Phase.TRIGGERED), *self.on_existing)

    def global_entries(self, phase: Phase) -> EntryNames:
        """Return the GlobalContextEntries that its rules of a phase read."""
        return joined(program.global_entries for program in self.in_phase(phase))

    def background_program(self, rule: str) -> Program | None:
        """Return the program of a rule that does its work by requests, None where none does."""
        return next((item for item in self.in_background if item.rule == rule), None)

    def program(self, rule: str) -> Program | None:
        """Return the program of a rule, None where there is none of that name."""
        return next((item for item in self.programs if item.rule == rule), None)


def joined(several: Iterable[EntryNames]) -> EntryNames:
    """Return the names of all of them."""
    found = set[str]()
    for names in several:
        if names is None:
            return None
        found |= names
    return frozenset(found)


def _acting_as(programs: Iterable[Program], account: ServiceAccount | None) -> tuple[Program, ...]:
    bound: dict[int, Program] = {}
    for program in programs:
        # Those that come before a program stand before it in the policy.
        before = tuple(bound[id(item)] for item in program.before)
        bound[id(program)] = replace(program.acting_as(account), before=before)
    return tuple(bound.values())


def project(tree: Any, paths: Iterable[tuple[str, ...]]) -> Any:
    """Return the parts of a tree that paths name; what is absent stays absent.

    A path ends early at a list, which is then kept whole: an index means nothing in a part.
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
