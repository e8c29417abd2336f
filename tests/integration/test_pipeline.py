"""From a trigger to a changed target on a real API server, with the shipped ServiceAccounts."""

import asyncio
import base64
import re
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.api.updaterequest import State
from tests.faults.rig import Rig, config_map, deployment, pod, rule, target

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}
# The kind is not known when the policy is stored, so the right is not checked then.
SECRET = "{{ 'Secret' }}"


async def ended(rig: Rig, operation: str) -> Any:
    """Return the status of the only request for an operation."""
    (request,) = [item for item in await rig.requests() if item.spec.operation == operation]
    return request.status


async def test_a_request_waits_for_a_missing_right_and_names_it(rig: Rig) -> None:
    place = rig.namespace
    names = ("hidden", "listed-1", "listed-2")
    secrets = [target(place, "hidden", "Secret"), target(place, "listed-*", "Secret")]
    async with rig.granted("secrets"):
        await rig.apply(rule(place, secrets, {"metadata": {"labels": {"got": "yes"}}}))
    for name in names:
        meta = {"name": name, "namespace": place}
        await rig.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    await rig.create(config_map(place, "trigger-1"))
    request = await rig.parked("Forbidden")
    assert request.status.missing_permission in {
        f"{verb} secrets in namespace {place}" for verb in ("get", "list")
    }

    async def untold() -> Any:
        found = [
            item
            for item in await rig.items("Event", "")
            if item["involvedObject"].get("name") == place and item["type"] == "Warning"
        ]
        return "" if any("secrets" in item["message"] for item in found) else found or "none"

    await rig.settle(untold, within=10)
    async with rig.granted("secrets"):

        async def unlabelled() -> set[str]:
            labelled = await rig.items("Secret", labelSelector="got=yes")
            return set(names) - {item["metadata"]["name"] for item in labelled}

        await rig.settle(unlabelled, within=30)
        await rig.finish()
        assert await rig.states() == {State.COMPLETED: 1}


async def test_a_target_that_fails_neither_blocks_nor_repeats_the_others(rig: Rig) -> None:
    place = rig.namespace
    objects = [config_map(place, f"member-{n}") for n in range(3)]
    await rig.create_all([*objects, {**config_map(place, "member-fixed"), "immutable": True}])
    await rig.apply(rule(place, [target(place, "member-*"), target(place, "hidden", SECRET)], GOT))
    await rig.create(config_map(place, "trigger-1"))
    await rig.applied({f"member-{n}": {"got": "trigger-1"} for n in range(3)}, within=15)
    request = await rig.parked("Forbidden")
    outcomes = {item.ref.name: item.outcome for item in request.status.targets}
    assert outcomes["member-fixed"] == "Invalid"

    async def too_few_attempts() -> str:
        (again,) = await rig.requests()
        return "" if again.status.attempts >= 2 else f"{again.status.attempts} attempts"

    await rig.settle(too_few_attempts, within=20)
    for name in ("member-0", "member-1", "member-2", "member-fixed"):
        assert await rig.calls("patch", "configmaps", name=name) == 1
    assert (await rig.requests())[0].status.counts.patched == 3


async def test_an_immutable_target_ends_the_request_with_the_reason(rig: Rig) -> None:
    place = rig.namespace
    await rig.create({**config_map(place, "fixed"), "immutable": True})
    await rig.apply(rule(place, [target(place, "fixed")], GOT))
    await rig.create(config_map(place, "trigger-1"))
    await rig.finish()
    status = await ended(rig, "CREATE")
    assert (status.state, status.reason) == (State.FAILED, "TargetInvalid")
    assert f"ConfigMap {place}/fixed" in status.message
    assert "field is immutable" in status.message


async def test_a_rule_on_deletion_reads_the_data_of_the_deleted_object(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all(
        [config_map(place, "target"), config_map(place, "trigger-1", word="last")]
    )
    await rig.apply(
        rule(
            place,
            [target(place, "target")],
            {"data": {"new": "{{ request.object.data.word }}{{ request.oldObject.data.word }}"}},
            operations=["DELETE"],
        )
    )
    await rig.delete("ConfigMap", "trigger-1")
    await rig.applied({"target": {"new": "lastlast"}}, within=15)


async def test_a_trigger_in_a_deleted_collection_fires(rig: Rig) -> None:
    """The deletion of a namespace makes such calls; their reviews contain no object name."""
    place = rig.namespace
    names = ("target", "trigger-1", "other")
    await rig.create_all(config_map(place, name) for name in names)
    fired = {"data": {"got": "{{ request.oldObject.metadata.name }}"}}
    await rig.apply(
        rule(place, [target(place, "target")], fired, names="trigger-1", operations=["DELETE"])
    )
    await rig.delete_all("ConfigMap", "target")
    await rig.applied({"target": {"got": "trigger-1"}}, within=15)
    assert {item["metadata"]["name"] for item in await rig.items("ConfigMap")} <= {
        "kube-root-ca.crt",
        "target",
    }
    await rig.finish()


async def test_a_service_account_fires_a_rule_on_all_kinds(rig: Rig) -> None:
    """The webhook is not called for its tokens, which are requests of a subresource."""
    place = rig.namespace
    await rig.learn("v1", "ServiceAccount")
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT, kinds=["*"]))
    meta = {"name": "trigger-1", "namespace": place}
    await rig.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    await rig.applied({"target": {"got": "trigger-1"}}, within=15)


async def test_a_trigger_that_is_applied_again_unchanged_fires(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all([config_map(place, "target"), config_map(place, "trigger-1", word="on")])
    await rig.apply(rule(place, [target(place, "target")], GOT, operations=["UPDATE"]))
    await rig.merge("ConfigMap", "trigger-1", {"data": {"word": "on"}})
    await rig.applied({"target": {"got": "trigger-1"}}, within=15)


async def test_a_rule_reads_the_generated_name_of_its_trigger(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    trigger = config_map(place, "")
    trigger["metadata"] = {"generateName": "trigger-", "namespace": place}
    name = (await rig.create(trigger))["metadata"]["name"]
    await rig.applied({"target": {"got": name}}, within=15)


async def test_changes_of_subresources_trigger_rules(rig: Rig) -> None:
    place = rig.namespace
    await rig.create_all([config_map(place, "scaled"), config_map(place, "phased")])
    await rig.create(paused(place, "trigger-1"))
    await rig.create(pod(place, "trigger-2"))
    await rig.apply(
        rule(
            place,
            [target(place, "scaled")],
            {"data": {"replicas": "{{ to_string(request.object.spec.replicas) }}"}},
            kinds=["Deployment/scale"],
            name="scale",
        ),
        rule(
            place,
            [target(place, "phased")],
            {"data": {"reason": "{{ request.object.status.reason }}"}},
            kinds=["Pod/status"],
            name="status",
        ),
    )
    scale = {"spec": {"replicas": 7}}
    await rig.merge("Deployment", "trigger-1", scale, subresource="scale")
    await rig.merge("Pod", "trigger-2", {"status": {"reason": "Tried"}}, subresource="status")
    await rig.applied({"scaled": {"replicas": "7"}, "phased": {"reason": "Tried"}}, within=15)


async def test_a_namespace_triggers_and_namespaces_are_targets(rig: Rig) -> None:
    place = rig.namespace
    inner = {"match": {"any": [{"resources": {"kinds": ["Namespace"], "names": [place]}}]}}
    await rig.create(config_map(place, "target"))
    await rig.apply(
        rule(place, [target(place, "target")], GOT, name="in") | inner,
        rule(
            place,
            [{"apiVersion": "v1", "kind": "Namespace", "name": place}],
            {"metadata": {"annotations": {"got": "{{ request.object.metadata.name }}"}}},
            name="out",
        ),
    )
    await rig.merge("Namespace", place, {"metadata": {"labels": {"a": "b"}}}, namespace="")
    await rig.applied({"target": {"got": place}}, within=15)
    await rig.create(config_map(place, "trigger-1"))

    async def missing() -> str:
        meta = (await rig.get("Namespace", place, ""))["metadata"]
        annotations = meta.get("annotations") or {}
        return "" if annotations.get("got") == "trigger-1" else f"annotations {annotations}"

    await rig.settle(missing, within=15)


async def test_targets_are_selected_by_label(rig: Rig) -> None:
    place = rig.namespace
    members = [config_map(place, f"any-{n}") for n in range(4)]
    for member in members[:2]:
        member["metadata"]["labels"] = {"team": "red"}
    await rig.create_all(members)
    selected = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": place,
        "selector": {"matchLabels": {"team": "{{ request.object.data.team }}"}},
    }
    await rig.apply(rule(place, [selected], GOT))
    await rig.create(config_map(place, "trigger-1", team="red"))
    await rig.applied({"any-0": {"got": "trigger-1"}, "any-1": {"got": "trigger-1"}}, within=15)
    await rig.finish()
    assert (await ended(rig, "CREATE")).counts.patched == 2
    assert not await rig.data("any-2")
    assert not await rig.data("any-3")


async def test_a_custom_resource_is_merged_and_its_lists_are_replaced(rig: Rig) -> None:
    place = rig.namespace
    group = f"{place}.example.com"
    await asyncio.to_thread(rig.cluster.kubectl, "apply", "-f", "-", stdin=tiny_crd(group))
    try:
        await rig.learn(f"{group}/v1", "Gadget")
        gadget = {
            "apiVersion": f"{group}/v1",
            "kind": "Gadget",
            "metadata": {"name": "one", "namespace": place},
            "spec": {"parts": [{"name": "a"}, {"name": "b"}], "kept": "yes"},
        }
        await rig.create(gadget)
        async with rig.granted(f"gadgets.{group}"):
            await rig.apply(
                rule(
                    place,
                    [target(place, "one", "Gadget", f"{group}/v1")],
                    {"spec": {"parts": [{"name": "{{ request.object.data.part }}"}]}},
                )
            )
            await rig.create(config_map(place, "trigger-1", part="c"))

            async def missing() -> Any:
                spec = (await rig.get("Gadget", "one"))["spec"]
                return None if spec == {"parts": [{"name": "c"}], "kept": "yes"} else spec

            await rig.settle(missing, within=30)
            await rig.finish()
    finally:
        await asyncio.to_thread(rig.cluster.kubectl, "delete", "crd", f"gadgets.{group}")


async def test_a_namespaced_policy_stays_in_its_namespace(rig: Rig) -> None:
    place, other = rig.namespace, f"{rig.namespace}-other"
    await rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    try:
        await rig.create_all([config_map(place, "target"), config_map(other, "target")])
        inside = rule(place, [{"apiVersion": "v1", "kind": "ConfigMap", "name": "target"}], GOT)
        del inside["match"]["any"][0]["resources"]["namespaces"]
        key = await rig.apply(inside, kind="Policy")
        await rig.create(config_map(other, "trigger-far"))
        await rig.create(config_map(place, "trigger-near"))
        await rig.applied({"target": {"got": "trigger-near"}}, within=15)
        await rig.finish(policy=key)
        assert [item.spec.resource.name for item in await rig.requests(key)] == ["trigger-near"]
        assert "data" not in await rig.get("ConfigMap", "target", other)
    finally:
        await rig.delete("Namespace", other, "")


async def test_a_dry_run_changes_nothing(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    create = ("create", "configmap", "-n", place)
    dry = (*create, "trigger-dry", "--dry-run=server")
    await asyncio.to_thread(rig.cluster.kubectl, *dry)
    await asyncio.to_thread(rig.cluster.kubectl, *create, "trigger-real")
    await rig.applied({"target": {"got": "trigger-real"}}, within=15)
    assert [item.spec.resource.name for item in await rig.requests()] == ["trigger-real"]


async def test_own_writes_trigger_nothing(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "trigger-target"))
    await rig.apply(rule(place, [target(place, "trigger-target")], GOT))
    for name in ("trigger-1", "trigger-2"):
        await rig.create(config_map(place, name))
        await rig.applied({"trigger-target": {"got": name}}, within=15)
    await rig.finish(count=2)
    seen = sorted(item.spec.resource.name for item in await rig.requests())
    assert seen == ["trigger-1", "trigger-2"]


async def test_a_changed_policy_is_applied_to_existing_triggers(rig: Rig) -> None:
    place = rig.namespace
    triggers = [f"trigger-{n}" for n in range(5)]
    await rig.create_all(config_map(place, name) for name in ["target", *triggers])

    def marks(word: str) -> Object:
        patch = {"data": {"{{ request.object.metadata.name }}": word}}
        return rule(place, [target(place, "target")], patch)

    await rig.apply(marks("first"), mutateExistingOnPolicyUpdate=True)
    await rig.applied({"target": dict.fromkeys(triggers, "first")}, within=15)
    await rig.finish()
    shown = await asyncio.to_thread(rig.cluster.kubectl, "get", "ur", "-n", "kyverno")
    (line,) = [line for line in shown.splitlines() if line.startswith("sweep-") and place in line]
    # The sweep also read the target and kube-root-ca.crt, which every namespace has.
    assert re.search(r" Completed +(\d+)/\1 ", line)
    (sweep,) = await rig.requests()
    assert sweep.status.counts.patched == 5
    await rig.apply(marks("second"), mutateExistingOnPolicyUpdate=True)
    await rig.applied({"target": dict.fromkeys(triggers, "second")}, within=15)
    await rig.finish(count=2)
    await rig.merge("ClusterPolicy", place, {"metadata": {"labels": {"a": "b"}}}, namespace="")
    # A later trigger takes the same path, so its result shows that the label had no effect.
    await rig.create(config_map(place, "trigger-after"))
    await rig.applied({"target": {"trigger-after": "second"}}, within=15)
    await rig.finish(count=3)
    assert sorted(item.spec.sweep for item in await rig.requests()) == [False, True, True]


async def test_the_data_of_a_secret_is_in_no_request_and_in_no_log(rig: Rig) -> None:
    place, hidden = rig.namespace, base64.b64encode(b"geheim-8c1f").decode()
    await rig.create(config_map(place, "target"))
    async with rig.granted("secrets"):
        await rig.apply(
            rule(
                place,
                [target(place, "target")],
                {"data": {"copy": "{{ request.oldObject.data.word }}"}},
                kinds=["Secret"],
                operations=["DELETE"],
            )
        )
        await rig.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "trigger-1", "namespace": place},
                "data": {"word": hidden},
            }
        )
        await rig.delete("Secret", "trigger-1")
        await rig.finish()
    assert await rig.data("target") == {"copy": hidden}
    stored = str(await rig.items("UpdateRequest", "kyverno"))
    logs = "".join(log.read_text() for log in rig.programs.logs.glob("retrofit-*.log"))
    assert hidden not in stored
    assert hidden not in logs


async def test_requests_of_a_deleted_policy_are_skipped(rig: Rig) -> None:
    place = rig.namespace
    needs_a_right = rule(place, [target(place, "any", SECRET)], {"metadata": {"labels": {}}})
    await rig.apply(needs_a_right)
    await rig.create(config_map(place, "trigger-1"))
    await rig.parked("Forbidden")
    await rig.delete("ClusterPolicy", place, "")
    await rig.finish(within=10)
    status = await ended(rig, "CREATE")
    assert (status.state, status.reason) == (State.SKIP, "PolicyGone")
    assert status.message == f"policy {place} was deleted"


async def test_a_waiting_request_is_processed_with_the_corrected_policy(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "any"))
    await rig.apply(rule(place, [target(place, "any", SECRET)], GOT))
    await rig.create(config_map(place, "trigger-1"))
    await rig.parked("Forbidden")
    await rig.apply(rule(place, [target(place, "any")], GOT))
    await rig.applied({"any": {"got": "trigger-1"}}, within=10)
    await rig.finish()
    status = await ended(rig, "CREATE")
    assert status.state is State.COMPLETED
    outcomes = {item.ref.kind: item.outcome for item in status.targets}
    assert outcomes == {"ConfigMap": "Patched", "Secret": "Skipped"}


async def test_requests_of_a_policy_that_was_replaced_are_skipped(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "any"))
    hidden = [target(place, "any", SECRET)]
    await rig.apply(rule(place, hidden, {"metadata": {"labels": {"got": "yes"}}}))
    await rig.create(config_map(place, "trigger-1"))
    await rig.parked("Forbidden")
    # No attempt runs in between, so the request finds the new policy under the old name.
    await rig.delete("ClusterPolicy", place, "")
    await rig.apply(rule(place, [target(place, "any")], GOT))
    await rig.finish(within=15)
    status = await ended(rig, "CREATE")
    assert (status.state, status.reason) == (State.SKIP, "PolicyGone")
    assert not await rig.data("any")


def paused(namespace: str, name: str) -> Object:
    """Return a Deployment that never gets a pod."""
    made = deployment(namespace, name)
    return {**made, "spec": {**made["spec"], "paused": True}}


def tiny_crd(group: str) -> str:
    """Return the CRD of a kind whose schema allows every field."""
    return f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: gadgets.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
