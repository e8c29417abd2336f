"""Wildcards, anchors, kinds, match and exclude."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import split_api_version
from reconciler.dialects.kyverno.match import compile_match
from reconciler.dialects.kyverno.match.users import compile_subjects
from reconciler.dialects.kyverno.mutation import ForeachEdit, bound_elements
from reconciler.dialects.kyverno.parts import parts_of
from reconciler.dialects.kyverno.pattern import Anchor, AnchorKind, match_pattern, parse_anchor
from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import Context
from reconciler.engine.match import Decision, Subject, parse_kind
from reconciler.engine.match.selectors import compile_selector
from reconciler.engine.patch.paths import parse_pointer
from reconciler.engine.values import wildcard
from tests.conformance.units.cases import Case, Fields, attempt, runs
from tests.conformance.units.subjects import operation_of, policy_of, subject_of, user_of

ANCHORS = {
    "Condition": AnchorKind.CONDITION,
    "Global": AnchorKind.GLOBAL,
    "Negation": AnchorKind.NEGATION,
    "AddIfNotPresent": AnchorKind.ADD_IF_ABSENT,
    "Equality": AnchorKind.EQUALITY,
    "Existence": AnchorKind.EXISTENCE,
}


def anchor_of(raw: Fields) -> Anchor | None:
    """Return an anchor of a case, or None for null and for an anchor without a key."""
    if not raw:
        return None
    kind, key = raw.one_of("type", ANCHORS), raw["key"]
    return parse_anchor(Anchor(kind=kind, key=key).text)


def without_nulls(block: Any) -> Any:
    """Return a block without nulls and empty maps: the cases have all fields of structures."""
    if isinstance(block, dict):
        kept = {key: without_nulls(value) for key, value in block.items()}
        return {key: value for key, value in kept.items() if value not in (None, {})}
    if isinstance(block, list):
        return [without_nulls(item) for item in block]
    return block


def rule_matches(rule: Mapping[str, Any], subject: Subject, namespace: str = "") -> bool:
    matcher = compile_match(
        without_nulls(rule["match"]),
        without_nulls(rule.get("exclude")),
        location="spec.rules[0]",
        namespace=namespace,
    )
    return matcher.evaluate(subject).decision is Decision.MATCH


def subject_of_case(given: Fields) -> Subject:
    return subject_of(
        given["resource"],
        operation=operation_of(given) if "operation" in given else "",
        user=user_of(given.part("requestInfo")),
        namespace_labels=given.get("namespaceLabels"),
        subresource=given.get("subresource") or "",
    )


@runs("wildcard")
def wildcards(case: Case) -> None:
    given = case.given
    assert wildcard.matches(given["pattern"], given["text"]) is case.wanted["result"]


@runs("contains-wildcard")
def contains_wildcard(case: Case) -> None:
    assert wildcard.has_wildcard(case.given["text"]) is case.wanted["result"]


@runs("check-patterns")
def check_patterns(case: Case) -> None:
    fits = wildcard.compile_any(case.given["patterns"] or ())
    result = any(fits(value) for value in case.given["values"] or ())
    assert result is case.wanted["result"]


@runs("match-patterns")
def match_patterns(case: Case) -> None:
    """Any matching pair is right: the reference's choice depends on the order of a loop."""
    given, wanted = case.given, case.wanted
    patterns, values = given["patterns"] or (), given["values"] or ()
    pairs = [
        (pattern, value)
        for pattern in patterns
        for value in values
        if wildcard.matches(pattern, value)
    ]
    assert bool(pairs) is wanted["result"]
    message = (wanted["pattern"], wanted["value"])
    assert message in pairs if pairs else message == ("", "")


@runs("separate-wildcards")
def separate_wildcards(case: Case) -> None:
    listed = case.given["list"] or []
    assert [text for text in listed if wildcard.has_wildcard(text)] == (
        case.wanted["wildcards"] or []
    )
    assert [text for text in listed if not wildcard.has_wildcard(text)] == (
        case.wanted["plain"] or []
    )


@runs("match-name")
def match_name(case: Case) -> None:
    assert wildcard.matches(case.given["expected"], case.given["actual"]) is case.wanted["result"]


@runs("target-match")
def target_match(case: Case) -> None:
    """An empty pattern of the reference is an absent field here."""
    given = case.given
    parts = [
        (given.get(f"{part}Pattern") or "", given.get(part) or "")
        for part in ("namespace", "name")
    ]
    result = all(not pattern or wildcard.matches(pattern, text) for pattern, text in parts)
    assert result is case.wanted["result"]


@runs("match-policy")
def match_policy(case: Case) -> None:
    """Every rule must match, including the generated ones."""
    policy = case.given["policy"]
    subject = subject_of_case(case.given)
    namespace = policy["metadata"].get("namespace", "") if policy.get("kind") == "Policy" else ""
    results = {rule_matches(rule, subject, namespace) for rule in policy["spec"]["rules"]}
    assert results == {case.wanted["match"]}


@runs("match-rule")
def match_rule(case: Case) -> None:
    subject = subject_of_case(case.given)
    assert rule_matches(case.given["rule"], subject) is case.wanted["match"]


@runs("match-namespace")
def match_namespace(case: Case) -> None:
    """An empty list restricts nothing in a policy, so it is tested without a policy."""
    resource = case.given["resource"]
    if not case.given["patterns"]:
        assert not wildcard.compile_any(())(resource["metadata"].get("namespace", ""))
        assert case.wanted["result"] is False
        return
    kind = resource["kind"] or "Any"
    rule = {"match": {"resources": {"kinds": [kind], "namespaces": case.given["patterns"]}}}
    subject = subject_of({**resource, "kind": kind})
    assert rule_matches(rule, subject) is case.wanted["result"]


@runs("policy-namespace")
def policy_namespace(case: Case) -> None:
    given = case.given
    resource = {**given["resource"], "kind": given["resource"].get("kind") or "Any"}
    rule = {"match": {"resources": {"kinds": [resource["kind"]]}}}
    result = rule_matches(rule, subject_of(resource), given["policyNamespace"])
    assert result is case.wanted["result"]


@runs("match-annotations")
def match_annotations(case: Case) -> None:
    """A filter with empty annotations restricts nothing."""
    given = case.given
    resource = {"kind": "Any", "metadata": {"annotations": given["actual"]}}
    match = {"resources": {"kinds": ["Any"], "annotations": given["expected"]}}
    assert rule_matches({"match": match}, subject_of(resource)) is case.wanted["result"]


@runs("match-selector")
def match_selector(case: Case) -> None:
    """A selector without requirements selects all objects; a policy with one is refused."""
    selector, labels = case.given["selector"], case.given["labels"]
    result, error = attempt(
        lambda: (
            not without_nulls(selector)
            or compile_selector(without_nulls(selector), location="selector").accepts(labels or {})
        )
    )
    case.check_error(error)
    if "result" in case.wanted:
        assert result is case.wanted["result"]


@runs("selector-has-wildcard")
def selector_has_wildcard(case: Case) -> None:
    labels = (case.given["selector"] or {}).get("matchLabels") or {}
    result = any(wildcard.has_wildcard(text) for pair in labels.items() for text in pair)
    assert result is case.wanted["result"]


@runs("match-kind")
def match_kind(case: Case) -> None:
    """Rules always treat the addition of an ephemeral container as a change of its Pod here."""
    given = case.given
    gvk = given.part("gvk")
    group, version, kind = gvk["group"], gvk["version"], gvk["kind"]
    subject = subject_of(
        {"apiVersion": f"{group}/{version}" if group else version, "kind": kind, "metadata": {}},
        subresource=given.get("subresource") or "",
    )
    found = rule_matches({"match": {"resources": {"kinds": given["kinds"]}}}, subject)
    if subject.subresource == "ephemeralcontainers" and not given["allowEphemeralContainers"]:
        selectors = map(parse_kind, given["kinds"])
        found = found and any(
            wildcard.matches(one.subresource, subject.subresource) for one in selectors
        )
    given.get("allowEphemeralContainers")
    assert found is case.wanted["result"]


@runs("match-subjects")
def match_subjects(case: Case) -> None:
    accepts = compile_subjects(case.given["subjects"] or ())
    assert accepts(user_of(case.given)) is case.wanted["result"]


@runs("policy-update-trigger-match")
def policy_update_trigger_match(case: Case) -> None:
    """Namespaces are not allowed in a namespaced policy here; the reference ignores them."""
    given = case.given
    resources = dict(given["match"])
    if given["namespacedPolicy"]:
        resources.pop("namespaces", None)
    result = rule_matches({"match": {"resources": resources}}, subject_of(given["resource"]))
    assert result is case.wanted["result"]


@runs("has-namespace-selector")
def has_namespace_selector(case: Case) -> None:
    found = [
        compile_match(
            complete(rule.get("match") or {}), complete(rule.get("exclude")), location="rule"
        ).needs.namespace_labels
        for policy in case.given["policies"]
        for rule in policy["spec"]["rules"]
    ]
    assert any(found) is case.wanted["result"]


def complete(block: Any) -> Any:
    """Add kinds to filters and a label to empty selectors, which are refused without them."""
    if not isinstance(block, dict):
        return block
    found = {
        form: [complete(item) for item in block[form]] for form in ("any", "all") if form in block
    }
    if found:
        return {**block, **found}
    resources = {"kinds": ["Pod"], **(block.get("resources") or {})}
    if "namespaceSelector" in resources:
        resources["namespaceSelector"] = resources["namespaceSelector"] or {
            "matchLabels": {"a": "b"}
        }
    return {**block, "resources": resources}


@runs("resource-description")
def resource_description(case: Case) -> None:
    match = {"resources": case.given["resources"]}
    _, error = attempt(lambda: compile_match(match, None, location="spec.rules[0]"))
    assert (error is None) is case.wanted["valid"], error


@runs("parse-kind")
def kind_selector(case: Case) -> None:
    selector = parse_kind(case.given["kind"])
    for part in selector.__slots__:
        assert getattr(selector, part) == case.wanted[part]


@runs("split-gvk")
def split_gvk(case: Case) -> None:
    """The reference splits the text; here its parts are patterns, and an absent part is "*"."""
    selector = parse_kind(case.given["kind"])
    kind, _, subresource = case.wanted["kind"].partition("/")
    assert (selector.kind, selector.subresource) == (kind, subresource)
    group, version = split_api_version(case.wanted["apiVersion"])
    assert (selector.group, selector.version) == (group or "*", version or "*")


@runs("split-subresource")
def split_subresource(case: Case) -> None:
    selector = parse_kind(case.given["kind"])
    assert selector.kind == case.wanted["kind"]
    assert selector.subresource == case.wanted["subresource"]


@runs("group-version-match")
def group_version_match(case: Case) -> None:
    """A bare version belongs to the core group here; in a kind it matches any group."""
    pattern, actual = case.given["pattern"], case.given["groupVersion"]
    parts = zip(split_api_version(pattern), split_api_version(actual), strict=True)
    result = pattern == "*" or all(wildcard.matches(wanted, part) for wanted, part in parts)
    assert result is case.wanted["result"]


@runs("anchor-parse")
def anchor_parse(case: Case) -> None:
    assert parse_anchor(case.given["string"]) == anchor_of(case.wanted.part("anchor"))


@runs("anchor-new")
def anchor_new(case: Case) -> None:
    assert anchor_of(case.given) == anchor_of(case.wanted.part("anchor"))


@runs("anchor-string")
def anchor_string(case: Case) -> None:
    """The reference prints nothing for an anchor without a key, which does not exist here."""
    anchor = anchor_of(case.given)
    assert ("" if anchor is None else anchor.text) == case.wanted["string"]


@runs("anchor-is")
def anchor_is(case: Case) -> None:
    anchor = anchor_of(case.given.part("anchor"))
    _, _, name = case.given["check"].rpartition("Is")
    kinds = {"ContainsCondition": {AnchorKind.CONDITION, AnchorKind.GLOBAL}}.get(name)
    if kinds is None:
        if name not in ANCHORS:
            case.given.refuse("check", case.given["check"])
        kinds = {ANCHORS[name]}
    assert (anchor is not None and anchor.kind in kinds) is case.wanted["result"]


@runs("anchor-is-one-of")
def anchor_is_one_of(case: Case) -> None:
    anchor = anchor_of(case.given.part("anchor"))
    kinds = {ANCHORS[name] for name in case.given["types"] or ()}
    assert (anchor is not None and anchor.kind in kinds) is case.wanted["result"]


@runs("remove-anchors-from-path")
def remove_anchors_from_path(case: Case) -> None:
    steps = case.given["path"].split("/")
    plain = [anchor.key if (anchor := parse_anchor(step)) else step for step in steps]
    assert "/".join(plain) == case.wanted["path"]


@runs("split-anchors")
def split_anchors(case: Case) -> None:
    """A pattern checks the resource with every anchor except the one that adds a key."""
    given = case.given["map"]
    questions = {
        key
        for key in given
        if (anchor := parse_anchor(key)) and anchor.kind is not AnchorKind.ADD_IF_ABSENT
    }
    assert {key: given[key] for key in given if key in questions} == case.wanted["anchors"]
    assert {key: given[key] for key in given if key not in questions} == case.wanted["rest"]


@runs("has-key")
def has_key(case: Case) -> None:
    """A negation tests for a key: it fails if the key exists."""
    resource, key = case.given["resource"], case.given["key"]
    absent = match_pattern(resource, {f"X({key})": None})
    assert (isinstance(resource, dict) and not absent) is case.wanted["result"]


@runs("pointer-parse")
def pointer(case: Case) -> None:
    """The cases omit the leading slash of a pointer."""
    found = parse_pointer("/" + case.given["pointer"].removeprefix("/"))
    assert list(found) == case.wanted["parts"]


@runs("foreach-list")
def elements_of_a_foreach(case: Case) -> None:
    block = {
        "list": case.given["list"],
        # The case tests the list in order; a strategic merge would begin with the last element.
        "order": "Ascending",
        "patchStrategicMerge": {"metadata": {"labels": {"a": "{{ element }}"}}},
    }
    data = dict(case.given.get("context") or {})
    rule = {
        "name": "each",
        "context": [{"name": name, "variable": {"value": value}} for name, value in data.items()],
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "mutate": {"foreach": [block]},
    }

    def elements() -> list[Any]:
        (program,) = compile_policy(policy_of([rule])).programs
        (edit,) = parts_of(program).edits
        assert isinstance(edit, ForeachEdit)
        context = program.binding.bind(Context(data={}))
        return [bound.data["element"] for _, bound in bound_elements(edit, context)]

    found, error = attempt(elements)
    case.check_error(error)
    if "elements" in case.wanted and not case.expects_error():
        assert found == (case.wanted["elements"] or [])
