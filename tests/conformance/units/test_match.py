"""Wildcards, anchors, kinds, match and exclude."""

from typing import Any

import pytest

from reconciler.engine import wildcard
from reconciler.engine.match import Decision, Subject, UserInfo, compile_match, parse_kind
from reconciler.engine.match.users import compile_subjects
from reconciler.engine.pattern import Anchor, AnchorKind, parse_anchor
from tests.conformance.units.cases import load

ANCHORS = {
    "Condition": AnchorKind.CONDITION,
    "Global": AnchorKind.GLOBAL,
    "Negation": AnchorKind.NEGATION,
    "AddIfNotPresent": AnchorKind.ADD_IF_ABSENT,
    "Equality": AnchorKind.EQUALITY,
    "Existence": AnchorKind.EXISTENCE,
}


def anchor_of(raw: dict[str, Any] | None) -> Anchor | None:
    return None if raw is None else Anchor(kind=ANCHORS[raw["type"]], key=raw["key"])


def user_of(request: dict[str, Any]) -> UserInfo:
    info = request.get("userInfo") or {}
    return UserInfo(
        username=info.get("username", ""),
        groups=tuple(info.get("groups") or ()),
        roles=tuple(request.get("roles") or ()),
        cluster_roles=tuple(request.get("clusterRoles") or ()),
    )


def subject_of(
    resource: dict[str, Any], *, operation: str = "", request: dict[str, Any] | None = None
) -> Subject:
    group, _, version = resource.get("apiVersion", "v1").rpartition("/")
    metadata = resource["metadata"]
    return Subject(
        obj=resource,
        group=group,
        version=version,
        kind=resource["kind"],
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        operation=operation,
        user=user_of(request or {}),
        namespace_labels={},
    )


def without_empty_selectors(block: Any) -> Any:
    """Drop what is null: the cases are dumps of structures with all their fields."""
    if isinstance(block, dict):
        kept = {key: without_empty_selectors(value) for key, value in block.items()}
        return {key: value for key, value in kept.items() if value not in (None, {})}
    if isinstance(block, list):
        return [without_empty_selectors(item) for item in block]
    return block


def rule_matches(rule: dict[str, Any], subject: Subject) -> bool:
    matcher = compile_match(
        without_empty_selectors(rule["match"]),
        without_empty_selectors(rule.get("exclude")),
        location="spec.rules[0]",
    )
    return matcher.evaluate(subject).decision is Decision.MATCH


@pytest.mark.parametrize("case", load("match.json", {"wildcard"}))
def test_wildcard(case: dict[str, Any]) -> None:
    given = case["input"]
    assert wildcard.matches(given["pattern"], given["text"]) is case["expected"]["result"]


@pytest.mark.parametrize("case", load("match.json", {"contains-wildcard"}))
def test_contains_wildcard(case: dict[str, Any]) -> None:
    assert wildcard.has_wildcard(case["input"]["text"]) is case["expected"]["result"]


@pytest.mark.parametrize("case", load("match.json", {"check-patterns"}))
def test_check_patterns(case: dict[str, Any]) -> None:
    fits = wildcard.compile_any(case["input"]["patterns"] or ())
    result = any(fits(value) for value in case["input"]["values"] or ())
    assert result is case["expected"]["result"]


@pytest.mark.parametrize("case", load("match.json", {"target-match"}))
def test_target_match(case: dict[str, Any]) -> None:
    """An empty pattern of the reference is an absent field here."""
    given = case["input"]
    parts = [(given[f"{part}Pattern"], given[part]) for part in ("namespace", "name")]
    result = all(not pattern or wildcard.matches(pattern, text) for pattern, text in parts)
    assert result is case["expected"]["result"]


@pytest.mark.parametrize("case", load("match.json", {"match-policy"}))
def test_match_policy(case: dict[str, Any]) -> None:
    given = case["input"]
    subject = subject_of(
        given["resource"], operation=given["operation"], request=given["requestInfo"]
    )
    results = {rule_matches(rule, subject) for rule in given["policy"]["spec"]["rules"]}
    assert results == {case["expected"]["match"]}


@pytest.mark.parametrize("case", load("match.json", {"match-rule"}))
def test_match_rule(case: dict[str, Any]) -> None:
    given = case["input"]
    subject = subject_of(
        given["resource"], operation=given["operation"], request=given.get("requestInfo")
    )
    assert rule_matches(given["rule"], subject) is case["expected"]["match"]


@pytest.mark.parametrize("case", load("match.json", {"match-namespace"}))
def test_match_namespace(case: dict[str, Any]) -> None:
    """A list of patterns that is empty restricts nothing in a policy, so it is no filter."""
    given = case["input"]
    if not given["patterns"]:
        assert not wildcard.compile_any(())(given["resource"]["metadata"]["namespace"])
        assert case["expected"]["result"] is False
        return
    kind = given["resource"]["kind"] or "Any"
    rule = {"match": {"resources": {"kinds": [kind], "namespaces": given["patterns"]}}}
    resource = {**given["resource"], "kind": kind}
    assert rule_matches(rule, subject_of(resource)) is case["expected"]["result"]


@pytest.mark.parametrize("case", load("match.json", {"match-subjects"}))
def test_match_subjects(case: dict[str, Any]) -> None:
    accepts = compile_subjects(case["input"]["subjects"] or ())
    assert accepts(user_of(case["input"])) is case["expected"]["result"]


@pytest.mark.parametrize("case", load("match.json", {"policy-update-trigger-match"}))
def test_policy_update_trigger_match(case: dict[str, Any]) -> None:
    """In a namespaced policy, where the reference ignores namespaces, they are not allowed."""
    given = case["input"]
    resources = dict(given["match"])
    if given["namespacedPolicy"]:
        resources.pop("namespaces")
    result = rule_matches({"match": {"resources": resources}}, subject_of(given["resource"]))
    assert result is case["expected"]["result"]


@pytest.mark.parametrize("case", load("match.json", {"parse-kind"}))
def test_parse_kind(case: dict[str, Any]) -> None:
    selector = parse_kind(case["input"]["kind"])
    assert {part: getattr(selector, part) for part in selector.__slots__} == case["expected"]


@pytest.mark.parametrize("case", load("match.json", {"split-gvk"}))
def test_split_gvk(case: dict[str, Any]) -> None:
    """The reference splits the text; here its parts are patterns, and "any" may be left out."""
    selector = parse_kind(case["input"]["kind"])
    wanted = case["expected"]
    kind, _, subresource = wanted["kind"].partition("/")
    assert (selector.kind, selector.subresource) == (kind, subresource)
    group, _, version = wanted["apiVersion"].rpartition("/")
    assert (selector.group, selector.version) == (group or "*", version or "*")


@pytest.mark.parametrize("case", load("match.json", {"anchor-parse"}))
def test_anchor_parse(case: dict[str, Any]) -> None:
    assert parse_anchor(case["input"]["string"]) == anchor_of(case["expected"]["anchor"])


@pytest.mark.parametrize("case", load("match.json", {"anchor-string"}))
def test_anchor_string(case: dict[str, Any]) -> None:
    """The reference prints nothing for an anchor without a key; here there is no such anchor."""
    anchor = anchor_of(case["input"])
    assert anchor is not None
    wanted = case["expected"]["string"]
    if wanted:
        assert anchor.text == wanted
    assert parse_anchor(anchor.text) == (anchor if wanted else None)


@pytest.mark.parametrize("case", load("match.json", {"anchor-is"}))
def test_anchor_is(case: dict[str, Any]) -> None:
    anchor = anchor_of(case["input"]["anchor"])
    _, _, name = case["input"]["check"].rpartition("Is")
    kinds = {ANCHORS[name.removeprefix("Contains")]}
    if name == "ContainsCondition":
        kinds.add(AnchorKind.GLOBAL)
    assert (anchor is not None and anchor.kind in kinds) is case["expected"]["result"]
