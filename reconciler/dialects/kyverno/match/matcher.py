"""Match and exclude of a rule, compiled to decide whether the rule applies to a subject."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from reconciler.dialects.kyverno.match.filters import (
    FILTER_FIELDS,
    Filter,
    Section,
    compile_filter,
    kinds_reason,
)
from reconciler.dialects.kyverno.match.users import Answer
from reconciler.engine import reading
from reconciler.engine.match.scopes import KindScope, Listing, MatchNeeds, Pair, PairSets
from reconciler.engine.match.selectors import LabelSelector
from reconciler.engine.match.subject import Subject
from reconciler.engine.match.verdict import Decision, Verdict
from reconciler.errors import ErrorList, InvalidPolicy


@dataclass(frozen=True, slots=True)
class _Block:
    """Match or exclude: filters that are OR-ed, or AND-ed when ``every`` is set."""

    filters: tuple[Filter, ...]
    every: bool = False

    def evaluate(self, subject: Subject, *, with_user: bool) -> tuple[Answer, Sequence[str]]:
        if len(self.filters) == 1:
            return self.filters[0].evaluate(subject, with_user=with_user)
        decisive = not self.every
        undecided = False
        reasons: list[str] = []
        for item in self.filters:
            answer, texts = item.evaluate(subject, with_user=with_user)
            if answer is decisive:
                return answer, texts
            undecided = undecided or answer is None
            reasons.extend(texts)
        return (None if undecided else not decisive), reasons


_MATCHED: Final = Verdict(decision=Decision.MATCH)
_EMPTY: Final = Verdict(decision=Decision.NO_MATCH, reasons=("resource is empty",))
_FOREIGN: Final = Verdict(
    decision=Decision.NO_MATCH, reasons=("policy and resource namespaces mismatch",)
)
_DELETED: Final = Verdict(
    decision=Decision.NO_MATCH, reasons=("DELETE fires only rules that list the operation",)
)
_EXCLUDED_BY_ONE: Final = Verdict(
    decision=Decision.NO_MATCH,
    reasons=("resource excluded since one of the criteria excluded it",),
)
_EXCLUDED_BY_ALL: Final = Verdict(
    decision=Decision.NO_MATCH,
    reasons=("resource excluded since the combination of all criteria exclude it",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """Match and exclude of a rule, compiled by `compile_match`.

    Attributes:
        namespace: Of a namespaced policy, which applies only within it; else empty.
    """

    namespace: str
    _match: _Block
    _exclude: _Block
    _excepts: bool
    _kind_names: frozenset[str] | None
    _lists_delete: bool
    _other_kind: Verdict
    needs: MatchNeeds

    def evaluate(self, subject: Subject) -> Verdict:
        """Return whether the rule applies to a subject.

        A filter that lists operations requires one of them, so it never matches background work,
        which has none. DELETE matches only rules that list it in a filter.
        """
        if self._kind_names is not None and subject.kind not in self._kind_names:
            return self._other_kind
        if not subject.obj:
            return _EMPTY
        if self.namespace and subject.namespace != self.namespace:
            return _FOREIGN
        if subject.operation == "DELETE" and not self._lists_delete:
            return _DELETED
        with_user = self._excepts or (subject.user is not None and subject.user.known)
        matched, reasons = self._match.evaluate(subject, with_user=with_user)
        if matched is False:
            return Verdict(decision=Decision.NO_MATCH, reasons=tuple(dict.fromkeys(reasons)))
        if self._exclude.filters:
            excluded, pending = self._exclude.evaluate(subject, with_user=True)
            if excluded:
                return _EXCLUDED_BY_ALL if self._exclude.every else _EXCLUDED_BY_ONE
            if excluded is None:
                matched, reasons = None, (*reasons, *pending)
        if matched is None:
            return Verdict(decision=Decision.UNDECIDED, reasons=tuple(dict.fromkeys(reasons)))
        return _MATCHED

    def kinds(self) -> tuple[KindScope, ...]:
        """Return the kinds that match names, each with the operations of its filter."""
        return tuple(
            KindScope(selector=kind, operations=item.operations)
            for item in self._match.filters
            for kind in item.kinds
        )

    def listings(self, *, requests: bool = False) -> tuple[Listing, ...]:
        """Return where to list existing objects; together the listings miss no matching object.

        Args:
            requests: Include filters that list operations, which match requests only.
        """
        filters = self._match.filters
        if not self._match.every:
            chosen = (item for item in filters if requests or not item.operations)
            return tuple(self._listing((item,)) for item in chosen)
        return (self._listing(filters),) if requests or not self.operations_listed else ()

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """The only namespaces in which objects can match, None where they are not all literal."""
        return self._literal([item.namespaces for item in self._match.filters])

    @property
    def names(self) -> tuple[str, ...] | None:
        """The only names that objects can have to match, None where they are not all literal."""
        return self._literal([item.names for item in self._match.filters])

    @property
    def operations_listed(self) -> bool:
        """Whether a filter of match lists operations."""
        return any(item.operations for item in self._match.filters)

    def _literal(self, lists: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
        if self._match.every:
            return _common(lists)
        named = [item for item in lists if item is not None]
        if len(named) < len(lists):
            return None
        return tuple(dict.fromkeys(name for item in named for name in item))

    def _listing(self, filters: Sequence[Filter]) -> Listing:
        restrictions = [item.namespaces for item in filters]
        if self.namespace:
            restrictions.append((self.namespace,))
        return Listing(
            kinds=filters[0].kinds,
            namespaces=_common(restrictions),
            names=_common(item.names for item in filters),
            labels=tuple(
                requirement
                for item in filters
                if item.selector
                for requirement in item.selector.requirements
            ),
        )


def compile_match(
    match: Any,
    exclude: Any,
    *,
    location: str,
    namespace: str = "",
    user_info: bool = True,
    section: Section = "match",
) -> Matcher:
    """Compile a rule's match and exclude.

    Args:
        location: Of the rule, as ``spec.rules[0]``.
        namespace: Of a namespaced policy, else empty.
        user_info: Whether the policy may match by the user of a request.
        section: Whether ``match`` is that of a rule, or of an exception, which needs no kinds
            and never applies to users that are not known.

    Raises:
        InvalidPolicy: A part is malformed; the error has its location.
    """
    with ErrorList() as errors:
        matched = errors.attempt(
            _compile_block, match, section, f"{location}.match", user_info=user_info
        )
        if matched is not None and not matched.filters:
            errors.add(InvalidPolicy(f"{location}.match", "match resources not specified"))
        excluded = _compile_block(exclude, "exclude", f"{location}.exclude", user_info=user_info)
        if matched is None:
            raise errors.combined()
    if namespace and any(item.namespaces_given for item in matched.filters + excluded.filters):
        raise InvalidPolicy(location, "Filtering namespaces not allowed in namespaced policies")
    names = _kind_names(matched)
    texts = dict.fromkeys(text for item in matched.filters for text in item.kind_texts)
    return Matcher(
        namespace=namespace,
        _match=matched,
        _exclude=excluded,
        _excepts=section == "exception",
        _kind_names=names,
        _lists_delete=any("DELETE" in item.operations for item in matched.filters),
        _other_kind=Verdict(decision=Decision.NO_MATCH, reasons=(kinds_reason(texts),)),
        needs=_needs(matched, excluded),
    )


def _compile_block(raw: Any, section: Section, place: str, *, user_info: bool) -> _Block:
    fields = reading.mapping(raw, place, allowed=("any", "all", *FILTER_FIELDS))
    some, every = fields.get("any"), fields.get("all")
    read = partial(compile_filter, section=section, user_info=user_info)
    if some and every:
        raise InvalidPolicy(place, "Can't specify any and all together")
    if (some or every) and any(fields.get(name) for name in FILTER_FIELDS):
        raise InvalidPolicy(place, f"can't specify any/all together with {section} resources")
    if some or every:
        form = "any" if some else "all"
        where = f"{place}.{form}"
        filters = reading.each(read, fields[form], where)
    else:
        filters = (read({name: fields[name] for name in FILTER_FIELDS if name in fields}, place),)
    if every and any(item.empty for item in filters):
        return _Block(())  # a filter that names nothing never holds
    return _Block(tuple(item for item in filters if not item.empty), every=bool(every))


def _needs(matched: _Block, excluded: _Block) -> MatchNeeds:
    every = matched.filters + excluded.filters
    return MatchNeeds(
        operations=any(item.operations for item in every),
        user=any(item.user_checks for item in every),
        namespace_labels=any(item.namespace_selector is not None for item in every),
        annotations=frozenset[tuple[str, ...]]().union(*(item.annotations for item in every)),
        pairs=_pairs((item.selector for item in matched.filters), every=matched.every),
        namespace_pairs=_pairs(
            (item.namespace_selector for item in matched.filters), every=matched.every
        ),
    )


def _pairs(selectors: Iterable[LabelSelector | None], *, every: bool) -> PairSets:
    """Return the label sets that a block requires, None where it may match without any."""
    found = [frozenset[Pair]() if item is None else item.pairs for item in selectors]
    if every:
        found = [frozenset[Pair]().union(*found)]
    return tuple(found) if found and all(found) else None


def _kind_names(block: _Block) -> frozenset[str] | None:
    """Return the only kinds that can match, None where they are not all literal."""
    named = [item.table.names for item in block.filters if item.table is not None]
    sets = [names for names in named if names is not None]
    if block.every:
        return frozenset.intersection(*sets) if sets else None
    return frozenset[str]().union(*sets) if len(sets) == len(block.filters) else None


def _common(restrictions: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    given = [names for names in restrictions if names is not None]
    if not given:
        return None
    return tuple(name for name in given[0] if all(name in names for names in given[1:]))
