"""Tables of the reference's helper functions, by the name of the test that iterates over them.

Most of these helpers have no counterpart here. `deviations.yaml` has one entry for all of them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

from reconciler.cli.desk.values import place_values
from reconciler.dialects.kyverno.autogen import ANNOTATION, MAX_NAME, PREFIXES, generated
from reconciler.dialects.kyverno.match import compile_match
from reconciler.errors import InvalidSetting
from reconciler.languages.jmespath import compile_expression
from reconciler.languages.jmespath.images import find_images, split_image
from reconciler.services.catalog.settings.filters import parse_names, parse_resources
from reconciler.services.catalog.settings.webhooks import parse_texts
from tests.conformance.units.cases import Case, attempt, runs, texts
from tests.conformance.units.subjects import subject_of

Table = Callable[[Case], None]
TABLES: Final[dict[str, Table]] = {}


def table(*tests: str) -> Callable[[Table], Table]:
    """Return a decorator that registers a function as the reader of the tables of tests."""

    def register(reader: Table) -> Table:
        TABLES.update(dict.fromkeys(tests, reader))
        return reader

    return register


@runs("table:tests", "table:testCases", "table:testcases")
def row_of_a_table(case: Case) -> None:
    assert case.test in TABLES, f"nothing reads the table of {case.test}"
    TABLES[case.test](case)


@table("Test_parseExclusions")
def exclusions(case: Case) -> None:
    names = parse_names(case.given.part("args")["in"])
    wanted = texts(case.wanted.get("wantExclusions"))
    again = texts(case.wanted.get("wantInclusions"))
    assert names.texts == frozenset(wanted)
    assert all(names.excludes([name]) is (name not in again) for name in wanted)
    # Inclusions take precedence over exclusions.
    assert not any(names.excludes([*wanted, name]) for name in again)


@table("Test_parseKinds")
def resource_filters(case: Case) -> None:
    """A filter without a kind, which matches nothing in the reference, is refused here."""
    wanted = case.wanted["want"] or []
    try:
        found = parse_resources(case.given.part("args")["in"]).written
    except InvalidSetting:
        assert not all(wanted)
        return
    # The first filter is always present.
    assert len(found) == len(wanted) + 1
    for item, parts in zip(found[1:], wanted, strict=True):
        # An empty part is omitted here, and so matches everything.
        *kind, namespace, name = parts
        group, version, word, subresource = (part.replace("*", "x") for part in kind)
        meta = {"namespace": _any(namespace), "name": _any(name)}
        obj = {"apiVersion": f"{group}/{version}", "kind": word, "metadata": meta}
        assert item.fits(subject_of(obj, subresource=subresource))
        other = subject_of({**obj, "kind": f"{word}x"}, subresource=subresource)
        assert item.fits(other) is (kind[2] == "*")


def _any(pattern: str) -> str:
    return (pattern or "*").replace("*", "x")


@table("Test_parseWebhookAnnotations", "Test_parseWebhookLabels")
def texts_by_name(case: Case) -> None:
    try:
        found: Mapping[str, str] | None = parse_texts(case.given.part("args")["in"])
    except InvalidSetting:
        found = None
    assert (found is None) is bool(case.wanted.get("wantErr"))
    if "want" in case.wanted:
        assert (found or {}) == (case.wanted["want"] or {})


@table("TestAddVariable")
def variables_by_path(case: Case) -> None:
    """A path that is not an expression is a single name here, which no query finds."""
    given, wanted = case.given, case.wanted
    key, value = given["key"], given["value"]
    if wanted.get("wantErr"):
        assert not key
        wanted.get("wantQueryErr")
        wanted.get("expected")
        return
    data = place_values({}, {key: value})
    query = given.get("query", key)
    result, error = attempt(lambda: compile_expression(query).search(data))
    assert (error is not None) is bool(wanted.get("wantQueryErr"))
    if "expected" in wanted:
        assert result == wanted["expected"]


@table("Test_getAutogenRuleName")
def autogen_name(case: Case) -> None:
    prefix = f"{case.given['prefix']}-"
    assert prefix in PREFIXES
    found = [rule["name"] for rule in made(policy_around(case.given["ruleName"]))]
    assert case.wanted["expected"] in found


@table("Test_isAutogenRule")
def is_autogen_name(case: Case) -> None:
    name = case.given["ruleName"]
    assert len(name) <= MAX_NAME
    assert name.startswith(PREFIXES) is case.wanted["expected"]


@table("Test_CanAutoGen", "Test_GetSupportedControllers")
def autogen_is_possible(case: Case) -> None:
    found = made(yaml.safe_load(case.given["policy"]))
    controllers = {"PodControllers": True, "none": False}
    assert bool(found) is case.wanted.one_of("expectedControllers", controllers)


@table("Test_GetAutogenRuleNames")
def autogen_names(case: Case) -> None:
    policy = yaml.safe_load(case.given["policy"])
    own = [rule["name"] for rule in policy["spec"]["rules"]]
    found = own + [rule["name"] for rule in made(policy)]
    assert sorted(found) == sorted(case.wanted["expectedRules"])


def policy_around(name: str) -> dict[str, Any]:
    rule = {"name": name, "match": {"resources": {"kinds": ["Pod"]}}, "validate": {}}
    return {"metadata": {}, "spec": {"rules": [rule]}}


def made(policy: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the generated rules of a policy, with a patch in rules that are not expanded here."""
    patch = {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}}
    rules = [
        {**rule, **(patch if rule.keys() & {"validate", "verifyImages"} else {})}
        for rule in policy["spec"]["rules"]
    ]
    annotation = (policy["metadata"].get("annotations") or {}).get(ANNOTATION)
    return [rule for _, rule in generated(dict(enumerate(rules)), annotation)]


@table("Test_extractImageInfo")
def images(case: Case) -> None:
    assert not case.given.get("extractionConfig")
    found, error = attempt(lambda: find_images(json.loads(case.given["raw"])))
    case.check_error(error)
    wanted = case.wanted.get("images") or {}
    assert (found or {}).keys() == wanted.keys()
    for group, named in wanted.items():
        for name, (info, pointer, _secrets) in named.items():
            image = {key[0].lower() + key[1:]: text for key, text in info.items() if text}
            assert (found or {})[group][name] == {**image, "jsonPointer": pointer}


@table("Test_ReferenceWithTag", "Test_ReferenceAndReferenceWithTag")
def image_references(case: Case) -> None:
    """A reference with an empty tag is omitted here."""
    found, error = attempt(lambda: split_image(case.given["input"]))
    assert error is None
    names = {"expected": "referenceWithTag", "expectedReferenceWithTag": "referenceWithTag"}
    names["expectedReference"] = "reference"
    for name in case.wanted:
        wanted = case.wanted[name]
        assert found.get(names[name], "") == ("" if wanted.endswith(":") else wanted)


@table("TestMatchDeleteOperation")
def rule_that_lists_delete(case: Case) -> None:
    block = case.given.part("rule").part("MatchResources")
    blocks = [block.get("ResourceDescription") or {}]
    blocks += [
        item["ResourceDescription"] for name in ("Any", "All") for item in block.get(name) or ()
    ]
    listed_names = (name for one in blocks for name in one.get("Operations") or ())
    names = {name.rpartition(".")[2].upper() for name in listed_names}
    match = {"resources": {"kinds": ["Pod"], "operations": sorted(names)}}
    matcher = compile_match(match, None, location="spec.rules[0]")
    listed = any("DELETE" in scope.operations for scope in matcher.kinds())
    assert listed is case.wanted["want"]


@table("Test_MatchResources", "Test_ResourceDescription")
def filters_are_valid(case: Case) -> None:
    """The reference locates errors by a name of the test, and counts each error of a part."""
    subject = lowered(case.given["subject"])
    is_filter = {"any", "all", "userInfo"} & subject.keys()
    match = subject if is_filter else {"resources": {"kinds": ["Pod"], **subject}}
    namespace = "a" if case.given["namespaced"] else ""
    _, error = attempt(
        lambda: compile_match(with_user(match), None, location="dummy", namespace=namespace)
    )
    wanted = texts(case.wanted["errors"])
    assert (error is not None) is bool(wanted), error
    for text in wanted:
        assert text.rpartition(": ")[2] in (error or "")


def lowered(value: Any) -> Any:
    """Return a value with keys that begin in lower case, as in policies."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: lowered(item) for key, item in value.items()}
    return [lowered(item) for item in value] if isinstance(value, list) else value


def with_user(value: Any) -> Any:
    """Return a value with the fields about the user beside ``resources``, as in policies."""
    if isinstance(value, dict):
        found = {key: with_user(item) for key, item in value.items()}
        return {**found, **found.pop("userInfo", {})}
    return [with_user(item) for item in value] if isinstance(value, list) else value
