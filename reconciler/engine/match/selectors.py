"""Label selectors; unlike the API server's, matchLabels may hold wildcards."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from reconciler.engine import reading
from reconciler.engine.values import wildcard
from reconciler.errors import InvalidPolicy, read_each

LabelPredicate = Callable[[Mapping[str, str]], bool]

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{_PART}(?:\.{_PART})*"
"""The pattern of a DNS subdomain, which may have 253 characters; most names are one."""
_DOMAIN: Final = rf"(?=[-a-z0-9.]{{1,253}}/){SUBDOMAIN}"
LABEL_KEY: Final = re.compile(rf"(?:{_DOMAIN}/)?{_NAME}")
"""The key of a label, or of a taint."""
LABEL_VALUE: Final = re.compile(rf"(?:{_NAME})?")
_WILD: Final = str.maketrans("*?", "00")
_WITH_VALUES: Final = frozenset({"In", "NotIn"})
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """A requirement on one label that the API server can evaluate.

    Attributes:
        operator: One of a LabelSelector's, or ``=``.
        values: The sorted values of ``In`` and ``NotIn``, or the single one of ``=``.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @override
    def __str__(self) -> str:
        """Return the requirement in the API server's syntax."""
        match self.operator:
            case "=":
                return f"{self.key}={self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "Exists":
                return self.key
            case _:
                return f"!{self.key}"


def selector_text(requirements: Iterable[LabelRequirement]) -> str:
    """Return a selector in the API server's syntax, empty for everything."""
    return ",".join(map(str, requirements))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """A compiled selector.

    Attributes:
        predicates: All of them must hold for the labels.
        requirements: The part that the API server can evaluate; necessary, not sufficient.
        source: The object that it was compiled from.
    """

    predicates: tuple[LabelPredicate, ...]
    requirements: tuple[LabelRequirement, ...]
    source: Mapping[str, Any] = field(repr=False, compare=False)

    @override
    def __reduce__(self) -> tuple[Callable[..., "LabelSelector"], tuple[Mapping[str, Any]]]:
        """Return what unpickling calls: the selector is compiled again."""
        return _compiled, (self.source,)

    @property
    def server(self) -> str:
        """The requirements in the API server's syntax; may be empty."""
        return selector_text(self.requirements)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Exact labels that every selected object has; there may be others."""
        exact = (item for item in self.requirements if item.operator in ("=", "In"))
        return frozenset((item.key, item.values[0]) for item in exact if len(item.values) == 1)

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        for holds in self.predicates:  # noqa: SIM110  (asked for each rule of each request)
            if not holds(labels):
                return False
        return True


def compile_selector(raw: Any, *, location: str) -> LabelSelector:
    """Compile a LabelSelector object.

    Raises:
        InvalidPolicy: It is malformed, has an impossible label, or has no requirements.
    """
    fields = reading.mapping(raw, location, allowed=("matchLabels", "matchExpressions"))
    labels = reading.string_map(fields.get("matchLabels"), f"{location}.matchLabels")
    expressions = reading.sequence(fields.get("matchExpressions"), f"{location}.matchExpressions")
    if not labels and not expressions:
        raise InvalidPolicy(location, "The requirements are not specified in selector")
    for key, value in labels.items():
        _check_label(key, (value,), f"{location}.matchLabels", wild=True)
    parts = [_compile_label(key, value) for key, value in labels.items()]
    parts += read_each(_compile_expression, expressions, f"{location}.matchExpressions")
    return LabelSelector(
        predicates=tuple(predicate for predicate, _ in parts),
        requirements=tuple(requirement for _, requirement in parts if requirement),
        source=raw,
    )


def _compiled(source: Mapping[str, Any]) -> LabelSelector:
    return compile_selector(source, location="selector")


def pair_predicate(key: str, value: str) -> LabelPredicate:
    """Return a predicate that holds when some entry matches both patterns."""
    if wildcard.has_wildcard(key):
        fits_key, fits_value = wildcard.compile_wildcard(key), wildcard.compile_wildcard(value)
        return lambda entries: any(
            fits_key(name) and fits_value(text) for name, text in entries.items()
        )
    if wildcard.has_wildcard(value):
        fits = wildcard.compile_wildcard(value)
        return lambda entries: key in entries and fits(entries[key])
    return lambda entries: entries.get(key) == value


_Compiled = tuple[LabelPredicate, LabelRequirement | None]


def _compile_label(key: str, value: str) -> _Compiled:
    # The API server cannot evaluate wildcards, and would misread escaped ones.
    asked: LabelRequirement | None = None
    if LABEL_KEY.fullmatch(key) and wildcard.has_wildcard(value):
        asked = LabelRequirement(key, "Exists")
    elif LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value):
        asked = LabelRequirement(key, "=", (value,))
    return pair_predicate(key, value), asked


def _compile_expression(raw: Any, location: str) -> _Compiled:
    fields = reading.mapping(raw, location, allowed=("key", "operator", "values"))
    key = reading.string(fields.get("key"), f"{location}.key")
    operator = fields.get("operator")
    values = frozenset(reading.strings(fields.get("values"), f"{location}.values"))
    if operator not in _OPERATORS:
        reason = (
            f"{operator!r} is not a valid label selector operator, use {', '.join(_OPERATORS)}"
        )
        raise InvalidPolicy(f"{location}.operator", reason)
    if (operator in _WITH_VALUES) != bool(values):
        needed = "at least one value" if operator in _WITH_VALUES else "no values"
        raise InvalidPolicy(f"{location}.values", f"the operator {operator} takes {needed}")
    _check_label(key, values, location, wild=False)
    requirement = LabelRequirement(key, str(operator), tuple(sorted(values)))
    return _predicate(key, str(operator), values), requirement


def _predicate(key: str, operator: str, values: frozenset[str]) -> LabelPredicate:
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: key not in labels or labels[key] not in values
        case "Exists":
            return lambda labels: key in labels
        case _:
            return lambda labels: key not in labels


def _check_label(key: str, values: Iterable[str], location: str, *, wild: bool) -> None:
    """Refuse a label that the API server would refuse, because no object can have it."""
    for text, form, what in (
        (key, LABEL_KEY, "key"),
        *((value, LABEL_VALUE, "value") for value in values),
    ):
        plain = wildcard.literal(text).translate(_WILD) if wild else text
        if not form.fullmatch(plain):
            reason = (
                f"{wildcard.literal(text)!r} is not a valid label {what}: use at most 63 letters,"
                " digits, '-', '_' and '.', with a letter or digit at both ends"
                + (", optionally after a DNS name and '/'" if what == "key" else "")
            )
            raise InvalidPolicy(location, reason)
