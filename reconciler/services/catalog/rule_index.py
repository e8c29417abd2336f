"""An index of rules by properties of the requested object, to avoid evaluating most matchers.

Without it, every request for a kind would evaluate all rules of that kind. Every object that a
rule can match has a value that the rule is filed under; whether it matches, its matcher decides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from reconciler.engine.match import KindSelector
from reconciler.engine.match.scopes import Pair, PairSets
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.values import value_class


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule with the policy that it belongs to."""

    policy: CompiledPolicy
    program: Program


@value_class(frozen=True, slots=True, kw_only=True)
class Known:
    """The properties of an object that rules are looked up by.

    Attributes:
        kind: As the admission request names it.
        subresource: Empty for the object itself.
        namespace: Excludes the rules that only match in other namespaces.
        name: Excludes rules likewise; empty if the object has no name yet.
        labels: The object's labels; None disables filtering by them.
        namespace_labels: The labels of its namespace; None disables filtering by them.
    """

    kind: str
    subresource: str
    namespace: str
    name: str = ""
    labels: Mapping[str, str] | None = None
    namespace_labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Indexed:
    """A rule with precomputed lookup data, which every request of its kind needs.

    Attributes:
        position: Its position among all rules of its phase.
        namespaces: The only namespaces in which it matches, None if it may match in any.
        names: The only names that it matches, None if it may match any.
        pairs: The required labels, as in `MatchNeeds`.
        namespace_pairs: The required labels of the namespace, as in `MatchNeeds`.
    """

    position: int
    rule: CompiledRule
    selectors: tuple[KindSelector, ...]
    namespaces: frozenset[str] | None
    names: frozenset[str] | None
    pairs: PairSets
    namespace_pairs: PairSets
    named: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, position: int, policy: CompiledPolicy, program: Program) -> Self:
        own = program.match.namespaces
        home = program.origin.namespace
        namespaces = (home,) if home else own
        names, needs = program.match.names, program.match.needs
        selectors = tuple(item.selector for item in program.match.kinds())
        return cls(
            position=position,
            rule=CompiledRule(policy, program),
            selectors=selectors,
            namespaces=None if namespaces is None else frozenset(namespaces),
            names=None if names is None else frozenset(names),
            pairs=needs.pairs,
            namespace_pairs=needs.namespace_pairs,
            named=frozenset((item.kind, item.subresource) for item in selectors),
        )

    def may_match(self, known: Known) -> bool:
        """Return whether the rule may match, given that it is filed under the object's name."""
        namespace = known.namespace
        if namespace and self.namespaces is not None and namespace not in self.namespaces:
            return False
        if not namespace and self.rule.program.origin.namespace:
            return False
        kind, subresource = known.kind, known.subresource
        return (kind, subresource) in self.named or any(
            _may_match(selector, kind, subresource) for selector in self.selectors
        )


_Value: TypeAlias = str | Pair


@dataclass(slots=True)
class _Facet:
    """Rules that are restricted to certain values of one property of an object."""

    by_value: dict[_Value, list[_Indexed]] = field(default_factory=dict)
    every: list[_Indexed] = field(default_factory=list)

    def add(self, rule: _Indexed, values: Iterable[_Value]) -> None:
        """File a rule under its values."""
        self.every.append(rule)
        for value in values:
            self.by_value.setdefault(value, []).append(rule)

    def of(self, values: Iterable[_Value] | None) -> Sequence[_Indexed]:
        """Return the rules for some values, or all if None; a rule may occur several times."""
        if values is None:
            return self.every
        return [rule for value in values for rule in self.by_value.get(value, ())]


@dataclass(slots=True)
class _Rules:
    """The rules of one kind, each filed under its most selective property only."""

    anyhow: list[_Indexed] = field(default_factory=list)
    names: _Facet = field(default_factory=_Facet)
    namespaces: _Facet = field(default_factory=_Facet)
    labels: _Facet = field(default_factory=_Facet)
    namespace_labels: _Facet = field(default_factory=_Facet)

    @classmethod
    def of(cls, rules: Sequence[_Indexed]) -> Self:
        """Return the given rules, filed by property."""
        found = cls()
        common = Counter(pair for rule in rules for some in rule.pairs or () for pair in some)
        of_namespaces = Counter(
            pair for rule in rules for some in rule.namespace_pairs or () for pair in some
        )
        for rule in rules:
            if rule.names is not None:
                found.names.add(rule, rule.names)
            elif rule.namespaces is not None:
                found.namespaces.add(rule, rule.namespaces)
            elif rule.pairs is not None:
                found.labels.add(rule, _rarest(rule.pairs, common))
            elif rule.namespace_pairs is not None:
                found.namespace_labels.add(rule, _rarest(rule.namespace_pairs, of_namespaces))
            else:
                found.anyhow.append(rule)
        return found

    def of_object(self, known: Known) -> list[_Indexed]:
        """Return the rules that may match an object; a rule may occur several times."""
        found = list(self.anyhow)
        # Nearly always, only one of these has any rules.
        if self.names.every:
            found += self.names.of((known.name,) if known.name else None)
        if self.namespaces.every:
            found += self.namespaces.of((known.namespace,) if known.namespace else None)
        if self.labels.every:
            found += self.labels.of(None if known.labels is None else known.labels.items())
        if self.namespace_labels.every:
            labels = known.namespace_labels
            found += self.namespace_labels.of(None if labels is None else labels.items())
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleIndex:
    """The rules of a phase.

    Attributes:
        anywhere: The rules that name a kind with a wildcard.
        empty: There is no rule at all.
    """

    by_kind: Mapping[str, _Rules]
    anywhere: _Rules
    empty: bool

    @classmethod
    def of(cls, policies: Iterable[CompiledPolicy], phase: Phase) -> Self:
        """Return the index of the rules of some policies, in the order of the policies."""
        by_kind: dict[str, list[_Indexed]] = {}
        anywhere: list[_Indexed] = []
        found = ((policy, program) for policy in policies for program in policy.in_phase(phase))
        for position, (policy, program) in enumerate(found):
            rule = _Indexed.of(position, policy, program)
            names = {item.kind for item in rule.selectors}
            if any("*" in name or "?" in name for name in names):
                anywhere.append(rule)
                continue
            for name in names:
                by_kind.setdefault(name, []).append(rule)
        return cls(
            by_kind={kind: _Rules.of(rules) for kind, rules in by_kind.items()},
            anywhere=_Rules.of(anywhere),
            empty=not by_kind and not anywhere,
        )

    def rules(self, known: Known) -> tuple[CompiledRule, ...]:
        """Return the rules that may match an object, in policy order."""
        filed = (item for rules in self._of_kind(known.kind) for item in rules.of_object(known))
        found = {item.position: item for item in filed if item.may_match(known)}
        return tuple(found[position].rule for position in sorted(found))

    def looks_at_labels(self, kind: str) -> bool:
        """Return whether some rule for a kind is filed under object labels."""
        return any(item.labels.every for item in self._of_kind(kind))

    def turns_on(self, kind: str, pairs: Iterable[Pair]) -> bool:
        """Return whether some rule for a kind is filed under one of these labels."""
        filed = [item.labels.by_value for item in self._of_kind(kind)]
        return any(pair in values for pair in pairs for values in filed)

    def _of_kind(self, kind: str) -> tuple[_Rules, _Rules]:
        return self.by_kind.get(kind, _NO_RULES), self.anywhere


_NO_RULES: Final = _Rules()


def _rarest(some: Iterable[frozenset[Pair]], common: Counter[Pair]) -> set[Pair]:
    """Return the least common pair of each set; an object must have every pair of a set."""
    return {min(pairs, key=lambda pair: (common[pair], pair)) for pairs in some}


def _may_match(selector: KindSelector, kind: str, subresource: str) -> bool:
    wild = "*" in selector.kind or "?" in selector.kind
    if not wild and selector.kind != kind:
        return False
    if subresource == "ephemeralcontainers" or "*" in selector.subresource:
        return True
    return selector.subresource == subresource
