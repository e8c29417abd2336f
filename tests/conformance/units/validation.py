"""The validation of policies: refusals and warnings."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from admission.authoring import check_policy
from admission.checks import ValidationDeps
from admission.decide import AdmissionResponse
from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Object
from reconciler.clock import Deadline, SystemClock
from reconciler.dialects.kyverno.context import RESERVED
from reconciler.dialects.kyverno.match import compile_match
from reconciler.dialects.kyverno.patchtext import parse_operations
from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.patch import compile_operations
from reconciler.errors import InvalidPolicy, Unavailable
from reconciler.isolation.jq import BriefJq
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.authoring.lint import Scope
from tests.conformance.units.cases import Case, Fields, attempt, runs
from tests.conformance.units.matching import complete
from tests.conformance.units.subjects import policy_of
from tests.filters import parse_filters
from tests.stored import MemoryRequests
from tests.unit.rights import Account

SECRET = {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"}
CONFIG_MAPS = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
CLUSTER_WIDE = ("Node", "Namespace", "ClusterRole", "ClusterRoleBinding", "PersistentVolume")
CHECKS = (
    "admission",
    "allowed-variables",
    "background",
    "background-user-info",
    "mutate-existing-on-policy-update",
    "variables",
)


async def scope() -> Scope:
    return lambda _api_version, kind: kind not in CLUSTER_WIDE


class Compiling:
    """A `MatchConditions` port with which every condition compiles."""

    async def check(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        del conditions


def review(policy: Object, account: Account | None = None) -> AdmissionResponse:
    """Return the answer of the admission check of a policy."""
    deps = ValidationDeps(
        kinds=MemoryKinds(),
        forget=lambda: None,
        scope=scope,
        access=account or Account(),
        requests=MemoryRequests(MemoryCluster(), "kyverno"),
        conditions=Compiling(),
        account="kyverno:kyverno-background-controller",
        controller=ServiceAccount(namespace="kyverno", name="kube-retrofit-controller"),
        jq=BriefJq().session,
        reader=account or Account(),
        filters=parse_filters,
        patience=0.0,
    )
    return asyncio.run(check_policy(policy, deps, Deadline(SystemClock(), 5.0)))


def of_rule(rule: Mapping[str, Any], **spec: Any) -> Object:
    return policy_of([{"name": "r", "match": CONFIG_MAPS, **rule}], **spec)


def targeting(targets: list[Any], **rule: Any) -> dict[str, Any]:
    patch = {"metadata": {"labels": {"x": "y"}}}
    return {"mutate": {"targets": targets, "patchStrategicMerge": patch}, **rule}


def policy_given(given: Fields) -> Object:
    raw: Object | None = given.get("policy")
    return copy.deepcopy(raw) if raw else yaml.safe_load(given["policy_text"])


def prepared(given: Fields, check: str) -> Object:
    """Return the policy of a case, completed with what the reference's check assumes."""
    policy = policy_given(given)
    spec = policy["spec"]
    if given.get("background") is not None:
        spec["background"] = given["background"]
    if check != "admission":
        # The check is about variables. A missing match is the concern of another check.
        spec["rules"] = [{"match": CONFIG_MAPS, **rule} for rule in spec["rules"]]
    match check:
        case "allowed-variables":
            # The check is about names only. Names of the user are the concern of another check.
            spec["background"] = False
        case "mutate-existing-on-policy-update":
            # The reference calls the function only if the flag is set, which requires targets.
            for rule in spec["rules"]:
                if "mutate" in rule:
                    flag = {"mutateExistingOnPolicyUpdate": True, "targets": [SECRET]}
                    rule["mutate"] = {**flag, **rule["mutate"]}
        case _:
            pass
    return policy


@runs("policy-valid")
def policy_valid(case: Case) -> None:
    check = case.given["check"]
    if check not in CHECKS:
        case.given.refuse("check", check)
    if check == "background-user-info":
        user_info_in_background(case)
        return
    policy = prepared(case.given, check)
    response = review(policy)
    assert response.allowed is case.wanted["valid"], response.message
    for name in ("message", "message_contains"):
        assert (case.wanted.get(name) or "").strip() in response.message
    warned = case.wanted.get("warnings")
    if warned is not None and all("mutate" in rule for rule in policy["spec"]["rules"]):
        # For other rules there is always a warning here that they are not evaluated.
        assert bool(response.warnings) is warned


def user_info_in_background(case: Case) -> None:
    """The cases get a kind, without which a match is refused; their locations have slashes."""
    (rule,) = policy_given(case.given)["spec"]["rules"]
    case.given.get("background")
    blocks = {part: complete(rule.get(part) or {}) for part in ("match", "exclude")}
    place = ""
    try:
        compile_match(
            blocks["match"], blocks["exclude"], location="spec.rules[0]", user_info=False
        )
    except InvalidPolicy as error:
        place = error.location.replace(".", "/")
    assert (not place) is case.wanted["valid"]
    case.check_message(f"invalid variable used at path: {place}" if place else "")


def account_of(given: Fields, kind: str) -> Account:
    """Return the rights of the controller in a case, by default all."""
    given.get("authMsg")  # the reference's message, which is worded differently here
    account = Account()
    if given.get("authOK", True) is False:
        name = f"{kind.lower()}s"
        account.lacks = {f"{verb} {name}" for verb in ("get", "list", "update", "patch")}
    failure = given.get("authErr")
    if failure:
        account.broken = Unavailable(failure["$error"] if isinstance(failure, dict) else failure)
    return account


@runs("mutate-rule")
def mutate_rule(case: Case) -> None:
    """The location here is the block with the two patches, and not the first of the patches."""
    given, wanted = case.given, case.wanted
    if "kinds" in given:
        rights_to_read_triggers(case)
        return
    if "rule" in given:
        kind, policy = "", of_rule(given["rule"])
    else:
        targets = [_placed(target) for target in given["targets"]]
        kind, policy = targets[0]["kind"], of_rule(targeting(targets))
    response = review(policy, account_of(given, kind))
    assert response.allowed is not bool(wanted.get("wantErr")), response.message
    assert (wanted.get("errContains") or "") in response.message
    if wanted.get("wantPath"):
        assert "spec.rules[0].mutate: " in response.message
    if "wantWarnings" in wanted:
        assert bool(response.warnings) is wanted["wantWarnings"]


def _placed(target: Mapping[str, Any]) -> dict[str, Any]:
    """Add the namespace that a cluster-wide policy must name, and that a case may omit."""
    return dict(target) if target["kind"] in CLUSTER_WIDE else {"namespace": "default", **target}


def rights_to_read_triggers(case: Case) -> None:
    """The reference checks its reports controller; here the controller reads the triggers."""
    given, wanted = case.given, case.wanted
    match = {"any": [{"resources": {"kinds": given["kinds"]}}]}
    account = account_of(given, "")
    if given.get("authOK") is False:
        account.lacks = {"get pods", "get deployments.apps", "get configmaps"}
    # Under failurePolicy Fail, a match of all kinds is always refused to protect the cluster.
    policy = of_rule(targeting([SECRET], match=match), failurePolicy="Ignore")
    response = review(policy, account)
    assert (wanted.get("errContains") or "") in response.message
    # The reference warns of rights that its reports lack; here the rule cannot work without them.
    lacking = "auth check fails" in response.message
    assert lacking is bool(wanted.get("wantWarnings"))
    assert response.allowed is not (bool(wanted.get("wantErr")) or lacking)


@runs("rule-targets")
def rule_targets(case: Case) -> None:
    """Compiling stops at the first error of a rule, so each target gets a rule of its own."""
    given = case.given
    rule, namespace = given["rule"], given["policyNamespace"] if given["namespaced"] else ""
    rules = [
        {**rule, "name": f"r{index}", "mutate": {**rule["mutate"], "targets": [target]}}
        for index, target in enumerate(rule["mutate"]["targets"])
    ]
    given.get("policyNamespace")
    found = [
        line for line in review(policy_of(rules, namespace=namespace)).message.splitlines() if line
    ]
    errors = case.wanted.parts("errors")
    assert len(found) == len(errors)
    for line, error in zip(found, errors, strict=True):
        index, _, name = error["path"].rpartition("targets[")[2].partition("].")
        place = f"spec.rules[{index}].mutate.targets[0].{name}: {error['message']}"
        assert place in line
        error.get("value")


@runs("json-patch-text")
def json_patch_text(case: Case) -> None:
    text = case.given["patchesJson6902"]
    _, error = attempt(
        lambda: compile_operations(parse_operations(text, location="p"), location="p")
    )
    assert (error is None) is case.wanted["valid"]
    response = review(of_rule({"mutate": {"targets": [SECRET], "patchesJson6902": text}}))
    assert response.allowed is case.wanted["valid"]


def presupposed(document: Any) -> list[str]:
    """Return the names of context entries that a part of a policy reads without defining them."""
    template, _ = attempt(lambda: compile_template(document))
    return sorted(template.roots - RESERVED - {"target"}) if template else []


@runs("conditions")
def conditions(case: Case) -> None:
    """Only validate rules have deny conditions, so all are tested as preconditions here."""
    given, wanted = case.given, case.wanted
    if given.get("where") not in {"conditions", "preconditions"}:
        given.refuse("where", given["where"])
    names = {key: {} for key in presupposed(given["conditions"])} | dict(given.part("variables"))
    entries = [{"name": name, "variable": {"value": value}} for name, value in names.items()]
    rule = targeting([SECRET], preconditions=given["conditions"], context=entries)
    response = review(of_rule(rule))
    assert response.allowed is wanted["valid"], response.message
    for key in ("path_contains", "message_contains", "message"):
        assert (wanted.get(key) or "") in response.message
