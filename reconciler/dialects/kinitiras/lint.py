"""Findings about the text of a policy, for its author.

Some concern behaviour of the original that differs from its documentation. The dialect follows
the documentation.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.api.meta import Object, policy_ref
from reconciler.dialects.finding import Finding, Level, note, warning
from reconciler.dialects.kinitiras.cue import has_template
from reconciler.dialects.kinitiras.labelled import ANNOTATION
from reconciler.dialects.kinitiras.rule import CONNECT, EVERY
from reconciler.dialects.kinitiras.selectors import CONNECTED
from reconciler.engine.program import CompiledPolicy

_REFERENCES: Final = (
    ("overriders", "template", "valueRef"),
    ("template", "condition", "valueRef"),
    ("template", "condition", "dataRef"),
)
_AUTHORIZATION: Final = "authorization"
_LISTS: Final = frozenset({"In", "NotIn"})
_CALL: Final = re.compile(r"^\s*processing\s*:", re.MULTILINE)


def find_surprises(policy: Object, compiled: CompiledPolicy) -> Iterator[Finding]:
    """Yield findings about parts that are valid, but may not do what the author intends."""
    spec = policy["spec"]
    for location, source in compiled.cue:
        yield note(
            "cue",
            location,
            "it is evaluated only by programs that are started with --cue",
            "use template or plaintext, or start both programs with --cue=PATH",
        )
        if _CALL.search(source):
            yield _different(
                location,
                "kinitiras calls the service of processing.http; here a program reads only its"
                " input",
                cure="use a template with a valueRef from http",
                level=Level.WARNING,
            )
    for place, rule in _rules(spec):
        for where, reference in _references(place, rule):
            yield from _credentials(where, reference)
            yield from _nameless(where, reference)
        yield from _operations(place, rule, policy, compiled)
        yield from _rule_differences(place, rule)
    yield from _outside(policy_ref(policy).namespace, spec)


def _credentials(place: str, reference: Mapping[str, Any]) -> Iterator[Finding]:
    http = (reference.get("http") or {}) if reference.get("from") == "http" else {}
    auth, header = http.get("auth") or {}, http.get("header") or {}
    secret = next((name for name in ("staticToken", "password") if auth.get(name)), "")
    where = f"auth.{secret}" if secret else ""
    for name in header:
        where = f"header.{name}" if name.lower() == _AUTHORIZATION else where
    if where:
        yield warning(
            "credentials",
            f"{place}.http.{where}",
            "anyone who may read the policy can read it",
            "store it in a Secret, and name the Secret in auth.secretRef",
        )


def _nameless(place: str, reference: Mapping[str, Any]) -> Iterator[Finding]:
    k8s = (reference.get("k8s") or {}) if reference.get("from") == "k8s" else {}
    if k8s.get("name") and not k8s.get("namespace"):
        yield _different(
            f"{place}.k8s.namespace",
            "kinitiras finds nothing without it; here it defaults to the namespace of the object",
        )


def _operations(
    place: str, rule: Mapping[str, Any], policy: Object, compiled: CompiledPolicy
) -> Iterator[Finding]:
    named, where = rule.get("targetOperations") or (), f"{place}.targetOperations"
    if CONNECT in named and (why := _why_never_connects(rule, policy, compiled)):
        reason, cure = why
        yield warning("never-connects", where, f"CONNECT has no effect: {reason}", cure)
    elif ignored := {EVERY, CONNECT}.intersection(named):
        text = f"kinitiras ignores {ignored.pop()}, so the rule does not apply there; here it does"
        yield _different(where, text, level=Level.WARNING)


def _why_never_connects(
    rule: Mapping[str, Any], policy: Object, compiled: CompiledPolicy
) -> tuple[str, str] | None:
    """Return why no CONNECT request reaches a rule, and the cure, or None if some may."""
    if rule.get("overriders"):
        return "such a request contains no object to change", "remove it"
    selectors = policy["spec"].get("resourceSelectors") or ()
    if selectors and not any(item.get("kind") in CONNECTED for item in selectors):
        reason = "such a request contains options, and no selector names their kind"
        return reason, f"select the options, such as {next(iter(CONNECTED))}"
    if compiled.object_labels:
        reason = "such a request contains options, which have no labels"
        return reason, f"add the annotation {ANNOTATION}: all"
    return None


def _rule_differences(place: str, rule: Mapping[str, Any]) -> Iterator[Finding]:
    overriders = rule.get("overriders") or {}
    if overriders.get("origin") and overriders.get("plaintext"):
        yield _different(
            f"{place}.overriders.plaintext",
            "kinitiras ignores it beside origin; here it is applied after origin",
            level=Level.WARNING,
        )
    parent = f"{place}.overriders" if overriders else place
    fields = overriders or rule
    if has_template(fields) and fields.get("renderedCue"):
        yield _different(
            f"{parent}.renderedCue", "kinitiras generated it from the template; here it is ignored"
        )
    if overriders.get("renderedCue") and not overriders.get("template"):
        yield _different(
            f"{parent}.renderedCue",
            "kinitiras ignores it without a template; here it is evaluated",
            cure="write the program as cue, or remove it",
            level=Level.WARNING,
        )
    condition = (rule.get("template") or {}).get("condition") or {}
    if condition.get("cond") in _LISTS and (condition.get("value") or {}).get("floatSlice"):
        yield _different(
            f"{place}.template.condition.value.floatSlice",
            "kinitiras takes its elements as strings, which contain no number; here they are"
            " numbers",
            cure="write stringSlice if the field holds strings",
            level=Level.WARNING,
        )


def _outside(home: str, spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings where the original applies a namespaced policy in other namespaces."""
    places = [item.get("namespace") for item in spec.get("resourceSelectors") or ()]
    cure = "make it a ClusterOverridePolicy to include other namespaces"
    text = f"kinitiras applies it in every namespace; here it is for namespace {home} only"
    if home and not any(places):
        yield _different("metadata.namespace", text, cure=cure)
    for index, place in enumerate(places):
        if home and place and place != home:
            where = f"spec.resourceSelectors[{index}].namespace"
            yield _different(where, text, cure=cure, level=Level.WARNING)


def _different(location: str, text: str, *, cure: str = "", level: Level = Level.NOTE) -> Finding:
    code = "original-differs"
    return Finding(level=level, code=code, location=location, text=text, cure=cure)


def _rules(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the location and the fields of each rule."""
    for field in ("overrideRules", "validateRules"):
        for index, rule in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", rule


def _references(place: str, rule: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the location and the fields of each reference of a rule."""
    for path in _REFERENCES:
        found: Any = rule
        for step in path:
            found = (found or {}).get(step)
        if isinstance(found, Mapping):
            yield f"{place}.{'.'.join(path)}", found
