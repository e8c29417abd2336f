"""The feedback to the author of a policy, from admission and later from the status."""

import asyncio
import contextlib
import copy
import functools
import json
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from reconciler.errors import ClusterError, Denied, NotFound
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

CONTROLLER = "kyverno-background-controller"
WEBHOOK = "kube-retrofit-policy"


def policy(name: str, *rules: Object, **spec: Any) -> Object:
    """Return a ClusterPolicy."""
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": list(rules), **spec},
    }


def good(place: str, **more: Any) -> Object:
    """Return a rule that compiles."""
    return rule(place, [target(place, "target")], {"data": {"a": "b"}}, **more)


@pytest.fixture(autouse=True)
async def checked(rig: Rig) -> None:
    """Wait until the API server calls the policy webhook, which the leader registers first."""
    empty = policy(f"{rig.namespace}-empty")

    async def unasked() -> str:
        try:
            await rig.create(empty)
        except Denied:
            return ""
        await rig.delete("ClusterPolicy", f"{rig.namespace}-empty", "")
        return "policies are not checked yet"

    await rig.settle(unasked, within=15)


async def refused(rig: Rig, *rules: Object) -> str:
    """Return the message with which the test's policy is refused."""
    with pytest.raises(Denied) as caught:
        await rig.create(policy(rig.namespace, *rules))
    return str(caught.value)


async def test_a_misspelled_field_is_refused_with_its_path(rig: Rig) -> None:
    place = rig.namespace
    wrong = good(place)
    wrong["mutate"]["patchStrategicMerg"] = {"data": {}}
    said = await refused(rig, wrong)
    assert f"ClusterPolicy {place}: spec.rules[0].mutate.patchStrategicMerg" in said


async def test_an_unparsable_variable_is_refused_with_its_path(rig: Rig) -> None:
    place = rig.namespace
    wrong = rule(place, [target(place, "target")], {"data": {"a": "{{ request.object. }}"}})
    said = await refused(rig, wrong)
    assert "spec.rules[0].mutate.patchStrategicMerge.data.a: " in said
    assert "request.object." in said


async def test_an_unknown_variable_is_refused_with_its_path(rig: Rig) -> None:
    place = rig.namespace
    wrong = rule(place, [target(place, "{{ requst.object.metadata.name }}")], {"data": {"a": "b"}})
    said = await refused(rig, good(place, name="first"), wrong)
    assert "spec.rules[1].mutate.targets[0].name: " in said
    assert "requst" in said


async def test_a_target_without_kind_is_refused_with_its_path(rig: Rig) -> None:
    place = rig.namespace
    wrong = rule(place, [{"apiVersion": "v1", "name": "a"}], {"data": {"a": "b"}})
    said = await refused(rig, wrong)
    assert "spec.rules[0].mutate.targets[0].kind: a target needs its kind, such as" in said


async def test_conditions_that_do_not_compile_are_refused_with_their_place(rig: Rig) -> None:
    written = [
        {"name": "good", "expression": "request.operation != 'DELETE'"},
        {"name": "bad", "expression": "request.operation ="},
    ]
    with pytest.raises(Denied) as caught:
        await rig.create(
            policy(
                rig.namespace,
                good(rig.namespace),
                webhookConfiguration={"matchConditions": written},
            )
        )
    place = "spec.webhookConfiguration.matchConditions[1].expression"
    assert f"{place}: Invalid value" in str(caught.value)
    assert "Syntax error" in str(caught.value)
    assert "matchConditions[0]" not in str(caught.value)


async def test_a_patch_that_is_not_yaml_is_refused_with_its_path(rig: Rig) -> None:
    place = rig.namespace
    said = await refused(rig, rule(place, [target(place, "target")], "- op: [add\n  path: /a"))
    assert "spec.rules[0].mutate.patchesJson6902: " in said


NO = None
"""The value with which `changed` removes a field."""


def changed(spec: Object, changes: dict[str, Any]) -> Object:
    """Return a copy of a spec with new values for fields, which are given by their paths."""
    found: Object = copy.deepcopy(spec)
    for place, value in changes.items():
        *steps, last = [int(step) if step.isdigit() else step for step in place.split(".")]
        inner: Any = found
        for step in steps:
            inner = inner[step]
        if value is NO:
            del inner[last]
        else:
            inner[last] = value
    return found


LIKE = {"key": "a", "operator": "Like", "value": "b"}
UPDATES = "rules.0.mutate.mutateExistingOnPolicyUpdate"
MERGE = "rules.0.mutate.patchStrategicMerge"
JSON = "rules.0.mutate.patchesJson6902"
RULE = "spec.rules[0]"


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"rules.0.mutate": NO}, f"{RULE}: No operation"),
        ({"rules.0.validate": {"pattern": {"data": "?*"}}}, f"{RULE}: Multiple operations"),
        ({UPDATES: True, "rules.0.mutate.targets": NO}, f"{RULE}.mutate.targets: "),
        ({"rules.0.exclude": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}}, ".exclude: "),
        (
            {"rules.0.mutate.targets.0.name": "{{ target.metadata.name }}"},
            f"{RULE}.mutate.targets[0].name: ",
        ),
        (
            {"rules.0.context": [{"name": "a", "variable": {"value": "{{ target.a }}"}}]},
            f"{RULE}.context[0].variable.value: ",
        ),
        (
            {"rules.0.preconditions": [{**LIKE, "key": "{{ target.a }}", "operator": "Equals"}]},
            f"{RULE}.preconditions",
        ),
        ({f"{MERGE}.data.a": "{{ element.a }}"}, f"{RULE}.mutate.patchStrategicMerge.data.a: "),
        (
            {"rules.0.context": [{"name": "request", "variable": {"value": "a"}}]},
            f"{RULE}.context[0].name: ",
        ),
        (
            {"rules.0.match.any.0.subjects": [{"kind": "User", "name": "jane"}]},
            f"{RULE}.match.any[0].subjects: ",
        ),
        (
            {"rules.0.match.any.0.resources.names": ["{{ request.name }}"]},
            f"{RULE}.match.any[0].resources.names[0]: ",
        ),
        (
            {UPDATES: True, f"{MERGE}.data.a": "{{ request.userInfo.uid }}"},
            f"{RULE}: only select variables",
        ),
        ({"rules.0.preconditions": [LIKE]}, f"{RULE}.preconditions[0].operator: "),
        (
            {"rules.0.mutate.targets.0.preconditions": [LIKE]},
            f"{RULE}.mutate.targets[0].preconditions[0].operator: ",
        ),
        ({JSON: "[]"}, f"{RULE}.mutate: only one of"),
        ({MERGE: NO, JSON: "- {op: remove, path: data/a}"}, "patchesJson6902[0].path: "),
        ({MERGE: NO, JSON: "- {op: drop, path: /data/a}"}, "patchesJson6902[0].op: "),
        (
            {MERGE: NO, JSON: "- {op: remove, path: '/{{ request.name }}'}"},
            "patchesJson6902[0].path: ",
        ),
        (
            {MERGE: {"metadata": {"labels": {"a": 1}}}},
            f"{RULE}.mutate.patchStrategicMerge.metadata.labels.a: ",
        ),
        ({"admission": False}, "spec.admission: "),
    ],
)
async def test_an_invalid_policy_is_refused_with_the_path_of_its_error(
    rig: Rig, changes: dict[str, Any], place: str
) -> None:
    built = policy(rig.namespace, good(rig.namespace))
    built["spec"] = changed(built["spec"], changes)
    with pytest.raises(Denied) as caught:
        await rig.create(built)
    assert place in str(caught.value)


async def test_duplicate_rule_names_and_cluster_scoped_kinds_of_a_policy_are_refused(
    rig: Rig,
) -> None:
    one = good(rig.namespace)
    with pytest.raises(Denied, match=r"spec\.rules\[1\]\.name: Duplicate"):
        await rig.create(policy(rig.namespace, one, one))
    wide = changed({"rules": [one]}, {"rules.0.match.any.0.resources": {"kinds": ["Node"]}})
    inside = {**policy(rig.namespace), "kind": "Policy", "spec": wide}
    inside["metadata"]["namespace"] = rig.namespace
    with pytest.raises(Denied, match=r"spec\.rules\[0\]\.match: Node is cluster-scoped"):
        await rig.create(inside)


async def test_a_namespaced_policy_with_a_target_elsewhere_is_refused(rig: Rig) -> None:
    place = rig.namespace
    reaching = good("default")
    del reaching["match"]["any"][0]["resources"]["namespaces"]
    wrong = {
        **policy(place, reaching),
        "kind": "Policy",
        "metadata": {"name": place, "namespace": place},
    }
    with pytest.raises(Denied, match=r"spec\.rules\[0\]\.mutate\.targets\[0\]\.namespace: "):
        await rig.create(wrong)


async def test_a_rule_that_is_stored_but_not_acted_on_causes_a_warning(rig: Rig) -> None:
    place = rig.namespace
    only_validates = {
        "name": "check",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"message": "no", "pattern": {"metadata": {"labels": {"a": "?*"}}}},
    }
    document = json.dumps(policy(place, good(place), only_validates))
    apply = ("apply", "-f", "-", "--warnings-as-errors")
    with pytest.raises(ClusterError, match="1 warning received") as caught:
        await asyncio.to_thread(rig.cluster.kubectl, *apply, stdin=document)
    assert "Warning: spec.rules[1]: rule check is a validate rule" in str(caught.value)
    await rig.ready()


async def test_a_policy_is_refused_until_its_rights_are_granted(rig: Rig) -> None:
    place = rig.namespace
    needy = rule(place, [target(place, "hidden", "Secret")], {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ClusterError, match="auth check fails") as caught:
        await asyncio.to_thread(
            rig.cluster.kubectl, "apply", "-f", "-", stdin=json.dumps(policy(place, needy))
        )
    said = str(caught.value)
    assert (
        "spec.rules[0].mutate.targets[0]: auth check fails, additional privileges are required for"
        " the service account 'kyverno:kyverno-background-controller': it may not get secrets in"
        f" namespace {place}, update secrets in namespace {place}" in said
    )
    # The role in kubectl's output can be applied unchanged.
    role = said[said.index("apiVersion: rbac") :]
    assert f"name: retrofit:{place}\n" in role
    await asyncio.to_thread(rig.cluster.kubectl, "apply", "-f", "-", stdin=role)
    try:
        begun = asyncio.get_running_loop().time()

        async def still_refused() -> str:
            try:
                await rig.create(policy(place, needy))
            except Denied as error:
                return str(error)
            return ""

        # No refusal is cached: it takes as long as the API server needs to honour the role.
        await rig.settle(still_refused, within=10)
        assert asyncio.get_running_loop().time() - begun < 5
        await rig.ready()
    finally:
        await rig.delete("ClusterRole", f"retrofit:{place}", "")


def secrets_role(place: str) -> Object:
    """Return the role that a rule on Secrets needs, to be applied together with its policy."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"retrofit:{place}",
            "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
        },
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch"]}],
    }


async def test_a_role_and_its_policy_are_applied_together(rig: Rig) -> None:
    place = rig.namespace
    needy = rule(
        place,
        [target(place, "hidden", "Secret")],
        {"metadata": {"labels": {"a": "b"}}},
        kinds=["Secret"],
    )
    both = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [secrets_role(place), policy(place, needy)],
    }
    # A dry run of both stores no role: the missing right is a warning, not a refusal.
    dry = ("apply", "--dry-run=server", "--warnings-as-errors", "-f", "-")
    with pytest.raises(ClusterError, match=r"warnings? received") as caught:
        await asyncio.to_thread(rig.cluster.kubectl, *dry, stdin=json.dumps(both))
    text = "refused unless a role grants the controller get secrets in namespace"
    assert text in str(caught.value)
    assert await rig.find("ClusterPolicy", place, "") is None
    for _ in range(5):
        await asyncio.to_thread(rig.cluster.kubectl, "apply", "-f", "-", stdin=json.dumps(both))
        await rig.ready()
        await rig.delete("ClusterPolicy", place, "")
        await rig.delete("ClusterRole", f"retrofit:{place}", "")

        async def still_granted() -> str:
            right = f"patch secrets in namespace {place}"
            return "the right is still there" if await rig.may(right) else ""

        await rig.settle(still_granted, within=10)


async def test_a_stored_policy_can_be_labelled_and_removed_without_the_rights(rig: Rig) -> None:
    place = rig.namespace
    needy = rule(place, [target(place, "hidden", "Secret")], {"metadata": {"labels": {"a": "b"}}})
    async with rig.granted("secrets"):
        await rig.apply(needy)
    meta = {"labels": {"team": "a"}, "finalizers": ["example.com/mine"]}
    await rig.merge("ClusterPolicy", place, {"metadata": meta}, namespace="")
    with pytest.raises(Denied, match="auth check fails"):
        await rig.merge("ClusterPolicy", place, {"spec": {"background": False}}, namespace="")
    await rig.delete("ClusterPolicy", place, "")
    await rig.merge("ClusterPolicy", place, {"metadata": {"finalizers": None}}, namespace="")
    assert await rig.find("ClusterPolicy", place, "") is None


async def test_a_right_that_comes_back_is_noticed_within_seconds(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": place}}
    )
    async with rig.granted("secrets"):
        await rig.apply(
            rule(place, [target(place, "s", "Secret")], {"metadata": {"labels": {"a": "b"}}})
        )
    await rig.create(config_map(place, "trigger-1"))
    await tried_often(rig)
    # Five seconds between two checks, and the time that the API server needs to honour a role.
    async with rig.granted("secrets"):
        await rig.finish(within=7)
    assert await rig.states() == {State.COMPLETED: 1}


async def tried_often(rig: Rig) -> None:
    """Wait until the next attempt is further away than the promised time to notice a right."""

    async def early() -> Any:
        waiting = await rig.requests(state=State.PENDING)
        tried = [item for item in waiting if item.status.attempts >= 4]
        return "" if tried else waiting or "no request"

    await rig.settle(early, within=40)


async def test_a_right_on_single_objects_is_noticed_within_seconds(rig: Rig) -> None:
    place = rig.namespace
    meta = {"name": "only", "namespace": place}
    await rig.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    async with rig.granted("secrets"):
        await rig.apply(
            rule(place, [target(place, "only", "Secret")], {"metadata": {"labels": {"a": "b"}}})
        )
    await rig.create(config_map(place, "trigger-1"))
    await tried_often(rig)
    create = functools.partial(rig.cluster.kubectl, "-n", place, "create")
    verbs = "--verb=get,patch,update"
    await asyncio.to_thread(
        create, "role", "one", verbs, "--resource=secrets", "--resource-name=only"
    )
    account = f"--serviceaccount=kyverno:{CONTROLLER}"
    await asyncio.to_thread(create, "rolebinding", "one", "--role=one", account)
    await rig.finish(within=10)
    assert await rig.states() == {State.COMPLETED: 1}


async def test_a_target_of_a_kind_that_is_not_served_is_refused(rig: Rig) -> None:
    place = rig.namespace
    said = await refused(rig, rule(place, [target(place, "a", "ConfigMop")], {"data": {}}))
    assert "targets[0]: the cluster does not serve v1 ConfigMop" in said


async def test_a_target_in_every_namespace_causes_a_warning(rig: Rig) -> None:
    place = rig.namespace
    everywhere = {"apiVersion": "v1", "kind": "ConfigMap", "name": "target"}
    document = json.dumps(policy(place, rule(place, [everywhere], {"data": {"a": "b"}})))
    apply = ("apply", "-f", "-", "--warnings-as-errors")
    with pytest.raises(ClusterError, match="1 warning received") as caught:
        await asyncio.to_thread(rig.cluster.kubectl, *apply, stdin=document)
    assert "Warning: spec.rules[0].mutate.targets[0]: the target is every ConfigMap" in str(
        caught.value
    )
    # An update that does not change the spec causes no warning.
    label = ("label", "clusterpolicy", place, "a=b", "--warnings-as-errors")
    await asyncio.to_thread(rig.cluster.kubectl, *label)


async def test_a_policy_has_one_condition_which_is_ready(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(good(place))
    await rig.apply(good(place), good(place, name="second"))
    status = (await rig.get("ClusterPolicy", place, ""))["status"]
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")
    assert condition["reason"] == "Succeeded"
    assert status["rulecount"]["mutate"] == 2
    shown = await asyncio.to_thread(rig.cluster.kubectl, "get", "cpol", place, "--no-headers")
    assert "True" in shown.split()


async def test_a_policy_that_is_not_acted_on_is_not_ready_and_has_an_event(rig: Rig) -> None:
    place = rig.namespace
    check = {
        "name": "check",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"failureAction": "Enforce", "pattern": {"metadata": {"name": "?*"}}},
    }
    await rig.create(policy(place, check))

    async def untold() -> Any:
        status = (await rig.get("ClusterPolicy", place, "")).get("status") or {}
        events = await rig.items("Event", "default")
        about = [item for item in events if item["involvedObject"]["name"] == place]
        conditions = [(item["status"], item["reason"]) for item in status.get("conditions") or ()]
        reported = {(item["type"], item["reason"]) for item in about}
        return conditions != [("False", "NotActedOn")] or reported != {
            ("Warning", "PolicyNotActedOn")
        }

    await rig.settle(untold, within=15.0)
    shown = await asyncio.to_thread(rig.cluster.kubectl, "get", "cpol", place)
    assert shown.splitlines()[1].split()[1:3] == ["False", "NotActedOn"]


async def test_a_stored_policy_that_does_not_compile_reports_its_error(rig: Rig) -> None:
    place = rig.namespace
    wrong = rule(place, [target(place, "target")], {"data": {"a": "{{ request.object. }}"}})

    async def unstored() -> str:
        # Stored without the webhook, as an older version might have allowed it.
        with contextlib.suppress(NotFound):
            await rig.delete("ValidatingWebhookConfiguration", WEBHOOK, "")
        try:
            await rig.create(policy(place, wrong))
        except Denied as error:
            return str(error)
        return ""

    await rig.settle(unstored, within=15)

    async def untold() -> Any:
        status = (await rig.get("ClusterPolicy", place, "")).get("status") or {}
        conditions = status.get("conditions") or []
        reported = [(item["type"], item["status"]) for item in conditions] == [("Ready", "False")]
        return None if reported else status or "no status"

    await rig.settle(untold, within=15)
    status = (await rig.get("ClusterPolicy", place, ""))["status"]
    message = status["conditions"][0]["message"]
    assert message.startswith("spec.rules[0].mutate.patchStrategicMerge.data.a: ")
    # After its repair the policy is in force.
    await rig.create(config_map(place, "target"))
    await rig.apply(good(place))
    await rig.create(config_map(place, "trigger-1"))
    await rig.applied({"target": {"a": "b"}}, within=15)
