"""One filter of match or exclude, of which all given parts must hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from reconciler.dialects.kyverno.match.users import Answer, Check, compile_user_checks
from reconciler.engine import reading
from reconciler.engine.match.kinds import KindSelector, KindTable, parse_kind
from reconciler.engine.match.selectors import LabelSelector, compile_selector, pair_predicate
from reconciler.engine.match.subject import Subject
from reconciler.engine.values import wildcard
from reconciler.errors import ErrorList, InvalidPolicy, read_each
from reconciler.languages.jmespath.values import walk

RESOURCE_FIELDS: Final = (
    "kinds",
    "name",
    "names",
    "namespaces",
    "annotations",
    "selector",
    "namespaceSelector",
    "operations",
)
USER_FIELDS: Final = ("subjects", "roles", "clusterRoles")
FILTER_FIELDS: Final = ("resources", *USER_FIELDS)
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_NO_KINDS: Final = (
    "at least one element must be specified in a kind block, the kind attribute is mandatory "
    "when working with the resources element"
)

_LONGEST_PATTERN: Final = 4_096
_PATTERN: Final = 40
"""Steps to match a short pattern."""

Section = Literal["match", "exclude", "exception"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A compiled filter; the fields beside the checks describe what it can match.

    Attributes:
        operations: Empty for all operations.
        names: The literal names, or None where the filter may match other names.
        namespaces: The literal namespaces, or None where the filter may match other ones.
        annotations: The paths of the annotations that it reads.
        steps: Its cost beside that of the object's labels and annotations.
        wild_pairs: Number of patterns that are matched against each label or annotation.
    """

    operations: tuple[str, ...]
    kinds: tuple[KindSelector, ...]
    kind_texts: tuple[str, ...]
    table: KindTable | None
    checks: tuple[Check, ...]
    user_checks: tuple[Check, ...]
    names: tuple[str, ...] | None
    namespaces: tuple[str, ...] | None
    namespaces_given: bool
    selector: LabelSelector | None
    annotations: frozenset[tuple[str, ...]]
    namespace_selector: LabelSelector | None
    steps: int
    wild_pairs: int

    def evaluate(self, subject: Subject, *, with_user: bool) -> tuple[Answer, tuple[str, ...]]:
        """Return whether the filter matches, None if undecided, and the reasons if it does not."""
        if self.operations and subject.operation not in self.operations:
            return False, (f"operation does not match [{', '.join(self.operations)}]",)
        if self.table is not None and not self.table.accepts(subject):
            return False, (kinds_reason(self.kind_texts),)
        subject.allowance.spend(self.steps)
        if self.wild_pairs:
            subject.allowance.spend(self.wild_pairs * _tag_characters(subject))
        failed: list[str] = []
        pending: list[str] = []
        for checks in (self.checks, self.user_checks if with_user else ()):
            for check in checks:
                answer = check.predicate(subject)
                if answer is None:
                    pending.append(check.pending)
                elif not answer:
                    failed.append(check.failure)
        if failed:
            return False, tuple(failed)
        return (None, tuple(pending)) if pending else (True, ())

    @property
    def empty(self) -> bool:
        """Whether the filter has no restrictions at all."""
        return not (self.operations or self.kinds or self.checks or self.user_checks)


def kinds_reason(texts: Iterable[str]) -> str:
    """Return the reason for a mismatch of the kind."""
    return f"kind does not match [{', '.join(texts)}]"


def compile_filter(raw: Any, location: str, *, section: Section, user_info: bool) -> Filter:
    """Compile a filter.

    Args:
        raw: With ``resources``, ``subjects``, ``roles`` and ``clusterRoles``.
        section: In match, kinds are required. In an exception, a selector of namespaces does not
            restrict namespaces themselves.
        user_info: Whether the policy may match by the user of a request.

    Raises:
        InvalidPolicy: A part is malformed.
    """
    place = f"{location}.resources"
    with ErrorList() as errors:
        fields = reading.mapping(raw, location, allowed=FILTER_FIELDS, errors=errors)
        resources = reading.mapping(
            fields.get("resources"), place, allowed=RESOURCE_FIELDS, errors=errors
        )
        names = errors.attempt(_read_names, resources, place) or ()
        namespaces = errors.attempt(_read_texts, resources, "namespaces", place) or ()
        kind_texts = errors.attempt(_read_texts, resources, "kinds", place) or ()
        if section == "match" and fields and not resources.get("kinds"):
            errors.add(InvalidPolicy(f"{place}.kinds", _NO_KINDS))
        kinds = errors.attempt(read_each, _read_kind, kind_texts, f"{place}.kinds") or ()
        selector = errors.attempt(_read_selector, resources, "selector", place)
        namespace_selector = errors.attempt(_read_selector, resources, "namespaceSelector", place)
        operations = errors.attempt(_read_operations, resources, place) or ()
        annotations = errors.attempt(_read_annotations, resources, f"{place}.annotations")
        user_checks = tuple(compile_user_checks(fields, location=location, allowed=user_info))
    return Filter(
        operations=operations,
        kinds=kinds,
        kind_texts=kind_texts,
        table=KindTable(kinds) if kinds else None,
        checks=(
            *_name_checks(resources, names),
            *_namespace_checks(namespaces),
            *_annotation_checks(annotations or {}),
            *_selector_checks(selector),
            *_namespace_selector_checks(namespace_selector, section),
        ),
        user_checks=user_checks,
        names=_literal(names),
        namespaces=_literal(namespaces),
        namespaces_given=bool(namespaces),
        selector=selector,
        annotations=frozenset(map(_annotation_path, annotations or ())),
        namespace_selector=namespace_selector,
        steps=_PATTERN * sum(1 for _ in walk(raw)),
        wild_pairs=sum(
            wildcard.has_wildcard(text)
            for pairs in (annotations or {}, (resources.get("selector") or {}).get("matchLabels"))
            for pair in (pairs or {}).items()
            for text in pair
        ),
    )


def _tag_characters(subject: Subject) -> int:
    tags = (*subject.labels.items(), *subject.annotations.items())
    return sum(_PATTERN + len(key) + len(str(value)) for key, value in tags)


def _read_texts(resources: Mapping[str, Any], field: str, place: str) -> tuple[str, ...]:
    return reading.strings(resources.get(field), f"{place}.{field}")


def _read_operations(resources: Mapping[str, Any], place: str) -> tuple[str, ...]:
    operations = _read_texts(resources, "operations", place)
    return read_each(_known_operation, operations, f"{place}.operations")


def _known_operation(operation: str, place: str) -> str:
    if operation not in OPERATIONS:
        raise InvalidPolicy(place, f"unknown operation {operation!r}, use {', '.join(OPERATIONS)}")
    return operation


def _read_kind(text: str, place: str) -> KindSelector:
    kind = parse_kind(text)
    if not kind.kind:
        reason = f"{text!r} is not a kind; write [group/][version/]Kind[/subresource]"
        raise InvalidPolicy(place, reason)
    return kind


def _read_names(resources: Mapping[str, Any], place: str) -> tuple[str, ...]:
    names = _read_texts(resources, "names", place)
    if not resources.get("name"):
        return names
    if names:
        raise InvalidPolicy(place, "Both name and names can not be specified together")
    return (reading.string(resources["name"], f"{place}.name"),)


def _read_annotations(resources: Mapping[str, Any], place: str) -> Mapping[str, str]:
    annotations = reading.string_map(resources.get("annotations"), place)
    # Unlike names and labels, annotations may be long, and a `?` costs the pattern's length.
    for text in (text for pair in annotations.items() for text in pair):
        if "?" in text and len(text) > _LONGEST_PATTERN:
            reason = f"a pattern with a ? in it is longer than {_LONGEST_PATTERN} characters"
            raise InvalidPolicy(place, reason)
    return annotations


def _read_selector(resources: Mapping[str, Any], field: str, place: str) -> LabelSelector | None:
    raw = resources.get(field)
    return None if raw is None else compile_selector(raw, location=f"{place}.{field}")


def _name_checks(resources: Mapping[str, Any], names: Sequence[str]) -> Iterable[Check]:
    if names:
        fits = wildcard.compile_any(names)
        failure = "name does not match" if resources.get("name") else "none of the names match"
        yield Check(lambda subject: fits(subject.effective_name), failure)


def _namespace_checks(namespaces: Sequence[str]) -> Iterable[Check]:
    if namespaces:
        fits = wildcard.compile_any(namespaces)
        yield Check(
            lambda subject: fits(
                subject.effective_name if subject.kind == "Namespace" else subject.namespace
            ),
            "namespace does not match",
        )


def _annotation_path(key: str) -> tuple[str, ...]:
    whole = ("metadata", "annotations")
    return whole if wildcard.has_wildcard(key) else (*whole, key)


def _annotation_checks(wanted: Mapping[str, str]) -> Iterable[Check]:
    if wanted:
        pairs = tuple(pair_predicate(key, value) for key, value in wanted.items())
        yield Check(
            lambda subject: all(holds(subject.annotations) for holds in pairs),
            "annotations does not match",
        )


def _selector_checks(selector: LabelSelector | None) -> Iterable[Check]:
    if selector is not None:
        yield Check(lambda subject: selector.accepts(subject.labels), "selector does not match")


def _namespace_selector_checks(
    selector: LabelSelector | None, section: Section
) -> Iterable[Check]:
    if selector is None:
        return

    def accepts(subject: Subject) -> Answer:
        if subject.kind == "Namespace":
            return True
        if not subject.namespace:
            return selector.accepts({})
        labels = subject.namespace_labels
        return None if labels is None else selector.accepts(labels)

    if section != "exception":
        yield Check(
            lambda subject: subject.kind != "Namespace",
            "namespace selector is not applicable for namespace resource",
        )
    yield Check(
        accepts,
        "namespace selector does not match labels",
        "the labels of the namespace are not known yet",
    )


def _literal(patterns: tuple[str, ...]) -> tuple[str, ...] | None:
    if not patterns or any(wildcard.has_wildcard(pattern) for pattern in patterns):
        return None
    return tuple(dict.fromkeys(patterns))
