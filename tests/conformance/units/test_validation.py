"""What the authors of policies are refused."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from admission.authoring import check_policy
from admission.checks import Means
from admission.decide import Answer
from reconciler.api.meta import Object
from reconciler.engine.match import compile_match
from reconciler.engine.patch import compile_operations, parse_operations
from reconciler.errors import InvalidPolicy, Unavailable
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.lint import Scope
from tests.conformance.units.cases import attempt, load
from tests.unit.rights import Account

SECRET = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}
CONFIG_MAPS = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}


async def scope() -> Scope:
    return lambda _api_version, kind: {"Node": False, "Namespace": False}.get(kind, True)


class Compiling:
    """The `MatchConditions` port: everything compiles."""

    async def check(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        del conditions


def review(policy: Object, account: Account | None = None) -> Answer:
    """Give the answer of the admission check."""
    means = Means(
        kinds=MemoryKinds(),
        forget=lambda: None,
        scope=scope,
        access=account or Account(),
        conditions=Compiling(),
        account="kyverno:kyverno-background-controller",
        budget=5.0,
    )
    return asyncio.run(check_policy(policy, means))


def policy_of(rule: Mapping[str, Any], **spec: Any) -> Object:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "r", "match": CONFIG_MAPS, **rule}], **spec},
    }


def targeting(targets: list[Any], **rule: Any) -> dict[str, Any]:
    patch = {"metadata": {"labels": {"x": "y"}}}
    return {"mutate": {"targets": targets, "patchStrategicMerge": patch}, **rule}


def prepared(given: Mapping[str, Any]) -> Object:
    """Give the policy of a case with what the reference's check assumes beside it."""
    policy: Object = copy.deepcopy(given["policy"]) or yaml.safe_load(given["policy_text"])
    spec = policy["spec"]
    match given["check"]:
        case "allowed-variables":
            # This check looks at names only; those of the user are the business of another one.
            spec["background"] = False
        case "mutate-existing-on-policy-update":
            # The function is called where the flag is set, which asks for targets.
            for rule in spec["rules"]:
                if "mutate" in rule:
                    mutate = rule["mutate"]
                    rule["mutate"] = {
                        "mutateExistingOnPolicyUpdate": True,
                        "targets": [SECRET],
                        **mutate,
                    }
    return policy


@pytest.mark.parametrize(
    "case",
    [
        item
        for item in load("validation.json", {"policy-valid"})
        if item.values[0]["input"]["check"] != "background-user-info"
    ],
)
def test_policy_valid(case: dict[str, Any]) -> None:
    wanted = case["expected"]
    answer = review(prepared(case["input"]))
    assert answer.allowed is wanted["valid"], answer.message
    for key in ("message", "message_contains"):
        assert wanted.get(key, "").strip() in answer.message


@pytest.mark.parametrize(
    "case",
    [
        item
        for item in load("validation.json", {"policy-valid"})
        if item.values[0]["input"]["check"] == "background-user-info"
    ],
)
def test_user_info_in_background(case: dict[str, Any]) -> None:
    """The match of the cases names no kind, which is refused before; places have slashes."""
    match = case["input"]["policy"]["spec"]["rules"][0]["match"]
    match = {**match, "resources": {"kinds": ["Pod"]}}
    with pytest.raises(InvalidPolicy) as caught:
        compile_match(match, None, location="spec.rules[0]", user_info=False)
    place = caught.value.location.replace(".", "/")
    assert f"invalid variable used at path: {place}" == case["expected"]["message"]


def mutates(case: Any) -> bool:
    return not case.values[0]["test"].startswith("TestValidateAuthReports")


@pytest.mark.parametrize("case", [*filter(mutates, load("validation.json", {"mutate-rule"}))])
def test_mutate_rule(case: dict[str, Any]) -> None:
    """The path is ours: the block that has two patches, not the first of them."""
    given, wanted = case["input"], case["expected"]
    if "rule" in given:
        answer = review(policy_of(given["rule"]))
    else:
        kind = given["targets"][0]["kind"]
        lacks = (
            set()
            if given["authOK"]
            else {f"{verb} {kind.lower()}s" for verb in ("update", "patch")}
        )
        answer = review(policy_of(targeting(given["targets"])), Account(lacks=lacks))
    assert answer.allowed is not wanted["wantErr"], answer.message
    assert wanted.get("errContains", "") in answer.message
    if "wantPath" in wanted:
        assert "spec.rules[0].mutate: " in answer.message


def reports(case: Any) -> bool:
    return not mutates(case)


@pytest.mark.parametrize("case", [*filter(reports, load("validation.json", {"mutate-rule"}))])
def test_rights_to_read_triggers(case: dict[str, Any]) -> None:
    """The reference asks for its reports controller; here the controller reads the triggers."""
    given, wanted = case["input"], case["expected"]
    match = {"any": [{"resources": {"kinds": given["kinds"]}}]}
    account = Account(lacks={"get pods", "get deployments.apps", "get configmaps"})
    if "authErr" in given:
        account.broken = Unavailable(given["authErr"]["$error"])
    answer = review(policy_of(targeting([SECRET], match=match)), account)
    assert answer.allowed is not wanted.get("wantErr", False)
    if "wantWarnings" in wanted:
        told = [text for text in answer.warnings if "requests will wait" in text]
        assert bool(told) is wanted["wantWarnings"]


@pytest.mark.parametrize("case", load("validation.json", {"rule-targets"}))
def test_rule_targets(case: dict[str, Any]) -> None:
    """Compiling ends at the first place of a rule, so each target stands in a rule of its own."""
    given, wanted = case["input"], case["expected"]
    rule, found = given["rule"], []
    policy = policy_of(rule)
    policy["kind"] = "Policy"
    policy["metadata"]["namespace"] = given["policyNamespace"]
    policy["spec"]["rules"] = [
        {**rule, "name": f"r{index}", "mutate": {**rule["mutate"], "targets": [target]}}
        for index, target in enumerate(rule["mutate"]["targets"])
    ]
    found = [line for line in review(policy).message.splitlines() if line]
    assert len(found) == len(wanted["errors"])
    for index, (line, error) in enumerate(zip(found, wanted["errors"], strict=True)):
        assert f"spec.rules[{index}].mutate.targets[0].namespace: {error['message']}" in line


@pytest.mark.parametrize("case", load("validation.json", {"json-patch-text"}))
def test_json_patch_text(case: dict[str, Any]) -> None:
    text = case["input"]["patchesJson6902"]
    _, error = attempt(
        lambda: compile_operations(parse_operations(text, location="p"), location="p")
    )
    assert (error is None) is case["expected"]["valid"]
    answer = review(policy_of({"mutate": {"targets": [SECRET], "patchesJson6902": text}}))
    assert answer.allowed is case["expected"]["valid"]


@pytest.mark.parametrize("case", load("validation.json", {"conditions"}))
def test_conditions(case: dict[str, Any]) -> None:
    """Conditions that deny are what validate rules have; here all are preconditions."""
    conditions = case["input"]["conditions"]
    names = [{"name": "lbServiceCount", "variable": {"value": 2}}]
    rule = targeting([SECRET], preconditions=conditions, context=names)
    answer = review(policy_of(rule))
    wanted = case["expected"]
    assert answer.allowed is wanted["valid"], answer.message
    for key in ("path_contains", "message_contains"):
        assert wanted.get(key, "") in answer.message
