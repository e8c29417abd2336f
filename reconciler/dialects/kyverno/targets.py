"""Targets of a rule: compiled selectors, and their queries for one trigger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.dialects.kyverno.entries import Entry
from reconciler.dialects.kyverno.preconditions import Conditions
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import Context
from reconciler.engine.match.selectors import LabelSelector, compile_selector
from reconciler.engine.targets import NamePattern, TargetQuery, name_pattern
from reconciler.engine.values.addresses import check_name
from reconciler.engine.values.wildcard import escape, has_wildcard, literal
from reconciler.errors import EvaluationError, InvalidPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One compiled entry of ``mutate.targets``; an absent field restricts nothing."""

    location: str
    api_version: Template
    kind: Template
    namespace: Template | None = None
    name: Template | None = None
    uid: Template | None = None
    selector: Template | None = None
    entries: tuple[Entry, ...] = ()
    preconditions: Conditions | None = None

    @property
    def templates(self) -> tuple[Template, ...]:
        """Return the templates of all fields that select objects."""
        parts = (self.api_version, self.kind, self.namespace, self.name, self.uid, self.selector)
        return tuple(part for part in parts if part is not None)


def resolve(index: int, target: Target, context: Context, *, policy_namespace: str) -> TargetQuery:
    """Return the query of a target for the trigger in the context.

    Args:
        index: Position of the target in its rule.
        context: With ``request.*``; a target is not bound yet.
        policy_namespace: Of a namespaced Policy, the only namespace of its targets; else empty.

    Raises:
        EvaluationError: A variable does not resolve, or a field resolves to nothing: an empty
            name or namespace never means "all".
    """
    namespace = _pattern(target.namespace, context, target.location, "namespace")
    if policy_namespace:
        namespace = name_pattern(policy_namespace, exact=True)
    return TargetQuery(
        index=index,
        api_version=_kind(target.api_version, context, target.location, "apiVersion"),
        kind=_kind(target.kind, context, target.location, "kind"),
        namespace=namespace,
        name=_pattern(target.name, context, target.location, "name"),
        uid="" if target.uid is None else _text(target.uid, context, target.location, "uid"),
        selector=_selector(target, context),
    )


def _kind(template: Template, context: Context, location: str, field: str) -> str:
    text = _text(template, context, location, field)
    if has_wildcard(text) and not template.constant:
        raise EvaluationError(
            f"{location}.{field}: {text} has a wildcard, which is allowed only in a value without"
            " variables"
        )
    return text


def _text(template: Template, context: Context, location: str, field: str) -> str:
    value = template.render(context)
    if not isinstance(value, str) or not value:
        msg = f"{location}.{field}: it resolves to {value!r}, not to a non-empty string"
        raise EvaluationError(msg)
    return value


def _pattern(
    template: Template | None, context: Context, location: str, field: str
) -> NamePattern | None:
    if template is None:
        return None
    text = template.render_literal(context, escape=escape)
    if not text:
        raise EvaluationError(
            f"{location}.{field}: it resolves to an empty string; an empty {field} never means all"
            " of them"
        )
    if has_wildcard(text):
        return name_pattern(text, exact=False)
    return name_pattern(check_name(literal(text), f"{location}.{field}"), exact=True)


def _selector(target: Target, context: Context) -> LabelSelector | None:
    if target.selector is None:
        return None
    raw = target.selector.render(context)
    # Wildcards have no meaning in a target's selector, in particular those from an object.
    if isinstance(raw, Mapping) and isinstance(raw.get("matchLabels"), Mapping):
        plain = {_plain(key): _plain(value) for key, value in raw["matchLabels"].items()}
        raw = {**raw, "matchLabels": plain}
    try:
        return compile_selector(raw, location=f"{target.location}.selector")
    except InvalidPolicy as error:
        raise EvaluationError(str(error)) from error


def _plain(value: Any) -> Any:
    return escape(value) if isinstance(value, str) else value
