"""Rules by what a request says of its object, so that most are never asked about it.

Every request of a kind would else ask all rules of that kind. What a rule is filed under holds for
all that it can match; whether it matches, its matcher says.
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
    """A rule with the policy that it stands in."""

    policy: CompiledPolicy
    program: Program


@value_class(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of an object before its rules are looked up.

    Attributes:
        kind: As the admission request names it.
        subresource: Empty for the object itself.
        namespace: Rules that are for other ones only are left out.
        name: The same; empty where the object has none yet.
        labels: The same, of the object; None where they may be any.
        namespace_labels: The same, of its namespace.
    """

    kind: str
    subresource: str
    namespace: str
    name: str = ""
    labels: Mapping[str, str] | None = None
    namespace_labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Indexed:
    """A rule, with what every request of its kind asks about it: that is not computed anew.

    Attributes:
        position: Among all rules of its phase.
        namespaces: The only ones in which it matches, None where one is open.
        names: The only ones that it matches, None where one is open.
        pairs: Labels, as `MatchNeeds` has them.
        namespace_pairs: The same, of the namespace.
        named: The kinds and subresources that it names.
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
        """Return a rule of a policy so."""
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
        """Return whether it may be for an object; without namespace or name the matcher knows."""
        namespace = known.namespace
        if known.name and self.names is not None and known.name not in self.names:
            return False
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
    """Rules that are for some values only of one thing that is known of an object."""

    by_value: dict[_Value, list[_Indexed]] = field(default_factory=dict)
    every: list[_Indexed] = field(default_factory=list)

    def add(self, rule: _Indexed, values: Iterable[_Value]) -> None:
        """File a rule under its values."""
        self.every.append(rule)
        for value in values:
            self.by_value.setdefault(value, []).append(rule)

    def of(self, values: Iterable[_Value] | None) -> Sequence[_Indexed]:
        """Return the rules for some values, None: for any; one may come several times."""
        if values is None:
            return self.every
        return [rule for value in values for rule in self.by_value.get(value, ())]


@dataclass(slots=True)
class _Rules:
    """Rules that name one kind, each filed once: by what it says most exactly."""

    anyhow: list[_Indexed] = field(default_factory=list)
    names: _Facet = field(default_factory=_Facet)
    namespaces: _Facet = field(default_factory=_Facet)
    labels: _Facet = field(default_factory=_Facet)
    namespace_labels: _Facet = field(default_factory=_Facet)

    @classmethod
    def of(cls, rules: Sequence[_Indexed]) -> Self:
        """File some rules."""
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

    @property
    def anyone(self) -> bool:
        """Return whether there is a rule."""
        facets = (self.names, self.namespaces, self.labels, self.namespace_labels)
        return bool(self.anyhow) or any(facet.every for facet in facets)

    def of_object(self, known: Known) -> list[_Indexed]:
        """Return the rules that may be for an object; one may come several times."""
        found = list(self.anyhow)
        # Nearly always only one of these has any rules.
        if self.names.every:
            found += self.names.of((known.name,) if known.name else None)
        if self.namespaces.every:
            found += self.namespaces.of((known.namespace,) if known.namespace else None)
        if self.labels.every:
            found += self.labels.of(_pairs(known.labels))
        if self.namespace_labels.every:
            found += self.namespace_labels.of(_pairs(known.namespace_labels))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleIndex:
    """The rules of a phase.

    Attributes:
        by_kind: By the kinds that they name.
        anywhere: Those that name one by a wildcard.
    """

    by_kind: Mapping[str, _Rules] = field(default_factory=dict)
    anywhere: _Rules = field(default_factory=_Rules)

    @classmethod
    def of(cls, policies: Iterable[CompiledPolicy], phase: Phase) -> Self:
        """Return the index of the rules of some policies, whose order is kept."""
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
        )

    @property
    def empty(self) -> bool:
        """Return whether there is no rule at all."""
        return not self.by_kind and not self.anywhere.anyone

    def rules(self, known: Known) -> tuple[CompiledRule, ...]:
        """Return the rules that may be for an object, in their order."""
        found = {item.position: item for item in self._filed(known) if item.may_match(known)}
        return tuple(found[position].rule for position in sorted(found))

    def looks_at_labels(self, kind: str) -> bool:
        """Return whether a rule for a kind is looked up only for objects with certain labels."""
        return any(item.labels.every for item in self._of_kind(kind))

    def turns_on(self, kind: str, pairs: Iterable[Pair]) -> bool:
        """Return whether some rule for a kind is looked up only for objects with such labels."""
        filed = [item.labels.by_value for item in self._of_kind(kind)]
        return any(pair in values for pair in pairs for values in filed)

    def _of_kind(self, kind: str) -> tuple[_Rules, _Rules]:
        return self.by_kind.get(kind, _NO_RULES), self.anywhere

    def _filed(self, known: Known) -> list[_Indexed]:
        anywhere = self.anywhere.of_object(known)
        rules = self.by_kind.get(known.kind)
        return anywhere if rules is None else rules.of_object(known) + anywhere


_NO_RULES: Final = _Rules()


def _rarest(some: Iterable[frozenset[Pair]], common: Counter[Pair]) -> set[Pair]:
    """Return of each set the pair that fewest rules ask for: all of the set have to be there."""
    return {min(pairs, key=lambda pair: (common[pair], pair)) for pairs in some}


def _pairs(labels: Mapping[str, str] | None) -> Iterable[Pair] | None:
    if labels is None:
        return None
    return labels.items()


def _may_match(selector: KindSelector, kind: str, subresource: str) -> bool:
    wild = "*" in selector.kind or "?" in selector.kind
    if not wild and selector.kind != kind:
        return False
    if subresource == "ephemeralcontainers" or "*" in selector.subresource:
        return True
    return selector.subresource == subresource
