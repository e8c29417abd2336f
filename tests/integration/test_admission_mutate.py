"""Rules without targets on a real API server, which change objects before they are stored."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devcluster.install import ProgramSettings
from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.meta import Object
from reconciler.errors import ClusterError, Denied, Invalid, NotFound
from reconciler.services.rollout.webhook_config import MUTATING_CONFIGURATION
from tests.faults.rig import Rig, config_map, pod, rule, target
from tests.mutations import CASES, Case, at_the_desk, object_of, policy_of

pytestmark = pytest.mark.cluster

SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def change(rig: Rig, patch: Any, **more: Any) -> Object:
    """Return a rule that changes the ConfigMaps ``trigger-*`` of the test's namespace."""
    made = rule(rig.namespace, [], patch, **more)
    del made["mutate"]["targets"]
    return made


def labelled(**labels: str) -> Object:
    return {"metadata": {"labels": labels}}


async def stored(rig: Rig, name: str = "trigger", **data: str) -> Object:
    """Create a ConfigMap and return it as it was stored."""
    await rig.create(config_map(rig.namespace, name, **data))
    return await rig.get("ConfigMap", name)


async def kubectl(rig: Rig, *args: str, stdin: Object | None = None) -> str:
    """Run kubectl in the test's namespace."""
    text = None if stdin is None else json.dumps(stdin)
    return await asyncio.to_thread(
        rig.cluster.kubectl, *args, "-n", rig.namespace, stdin=text or ""
    )


async def test_rules_act_in_order_and_see_the_changes_of_earlier_rules(rig: Rig) -> None:
    seen = {
        "all": [{"key": "{{ request.object.data.a || '' }}", "operator": "Equals", "value": "1"}]
    }
    await rig.apply(
        change(rig, {"data": {"a": "1"}}, name="first"),
        change(
            rig, {"data": {"b": "{{ request.object.data.a }}"}}, name="second", preconditions=seen
        ),
    )
    assert (await stored(rig, "trigger-1", x="y"))["data"] == {"x": "y", "a": "1", "b": "1"}
    await rig.merge("ConfigMap", "trigger-1", {"data": {"b": "edited", "x": None}})
    assert await rig.data("trigger-1") == {"a": "1", "b": "1"}
    assert "data" not in await stored(rig, "other")


async def test_only_the_first_rule_acts_with_apply_rules_one(rig: Rig) -> None:
    await rig.apply(
        change(rig, {"data": {"a": "1"}}, name="first"),
        change(rig, {"data": {"b": "1"}}, name="second"),
        applyRules="One",
    )
    assert (await stored(rig, "trigger-1"))["data"] == {"a": "1"}


async def test_a_trigger_is_recorded_with_the_changes_of_other_rules(rig: Rig) -> None:
    await rig.create(config_map(rig.namespace, "target"))
    copies = {"data": {"got": "{{ request.object.data.added }}"}}
    await rig.apply(
        rule(rig.namespace, [target(rig.namespace, "target")], copies, name="copies"),
        change(rig, {"data": {"added": "{{ request.object.metadata.name }}"}}, name="adds"),
    )
    await rig.create(config_map(rig.namespace, "trigger-1"))
    await rig.finish()
    assert await rig.data("target") == {"got": "trigger-1"}


async def test_a_namespaced_policy_changes_generated_names_and_dry_runs(rig: Rig) -> None:
    own = change(rig, {"data": {"by": "{{ request.namespace }}"}})
    del own["match"]["any"][0]["resources"]["namespaces"]
    await rig.apply(own, kind="Policy")
    body = config_map(rig.namespace, "")
    body["metadata"] = {"generateName": "trigger-", "namespace": rig.namespace}
    made = json.loads(await kubectl(rig, "create", "-o", "json", "-f", "-", stdin=body))
    assert made["data"] == {"by": rig.namespace}
    trial = config_map(rig.namespace, "trigger-dry")
    args = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    assert json.loads(await kubectl(rig, *args, stdin=trial))["data"] == {"by": rig.namespace}
    assert await rig.find("ConfigMap", "trigger-dry") is None


async def test_a_container_is_added_once_and_a_scale_is_limited(rig: Rig) -> None:
    sidecar = json.dumps(
        [
            {
                "op": "add",
                "path": "/spec/template/spec/containers/-",
                "value": {"name": "side", "image": "s"},
            }
        ]
    )
    limited = {"spec": {"replicas": 3}}
    more = {
        "all": [
            {"key": "{{ request.object.spec.replicas }}", "operator": "GreaterThan", "value": 3}
        ]
    }
    await rig.apply(
        change(rig, sidecar, name="sidecar", kinds=["Deployment"], operations=["CREATE"]),
        change(rig, limited, name="limit", kinds=["Deployment/scale"], preconditions=more),
    )
    labels = {"app": "web"}
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "m"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    meta = {"name": "trigger-web", "namespace": rig.namespace}
    await rig.create(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    )
    found = await rig.get("Deployment", "trigger-web")
    names = [item["name"] for item in found["spec"]["template"]["spec"]["containers"]]
    assert names == ["main", "side"]
    await kubectl(rig, "scale", "--replicas=7", "deployment/trigger-web")
    assert (await rig.get("Deployment", "trigger-web"))["spec"]["replicas"] == 3


async def test_a_namespace_itself_and_objects_of_a_new_kind_are_changed(rig: Rig) -> None:
    group, name = f"{rig.namespace}.example.com", f"{rig.namespace}-new"
    made = change(rig, labelled(team="a"), kinds=["Namespace"], names=name, name="namespaces")
    other = change(rig, {"spec": {"added": "yes"}}, kinds=[f"{group}/v1/Widget"], name="widgets")
    for item in (made, other):
        del item["match"]["any"][0]["resources"]["namespaces"]
    await define(rig, group)
    try:
        await rig.learn(f"{group}/v1", "Widget")
        await rig.apply(made, other)
        await rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        assert (await rig.get("Namespace", name, ""))["metadata"]["labels"]["team"] == "a"
        widget = {"name": "trigger-1", "namespace": rig.namespace}
        await rig.create({"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": widget})
        assert (await rig.get("Widget", "trigger-1"))["spec"] == {"added": "yes"}
    finally:
        await kubectl(rig, "delete", "crd", f"widgets.{group}")
        with contextlib.suppress(NotFound):
            await rig.delete("Namespace", name, "")


async def define(rig: Rig, group: str) -> None:
    """Create the CRD of a kind Widget in a group."""
    names = {"kind": "Widget", "plural": "widgets"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
    }
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {"name": f"widgets.{group}"}
    kind = "CustomResourceDefinition"
    await rig.create(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}
    )


MISSING = {"data": {"a": "{{ request.object.data.missing }}"}}


async def test_a_rule_that_cannot_be_evaluated_refuses_with_its_path(rig: Rig) -> None:
    await rig.apply(
        change(rig, {"data": {"x": "y"}}, name="good"), change(rig, MISSING, name="bad")
    )
    with pytest.raises((Denied, Invalid)) as refused:
        await rig.create(config_map(rig.namespace, "trigger-1"))
    assert f"policy {rig.namespace} rule bad: spec.rules[1]: " in str(refused.value)
    assert await rig.find("ConfigMap", "trigger-1") is None


async def test_a_failing_policy_under_ignore_changes_nothing_and_warns(rig: Rig) -> None:
    await rig.apply(
        change(rig, {"data": {"x": "y"}}, name="good"),
        change(rig, MISSING, name="bad"),
        failurePolicy="Ignore",
    )
    assert "data" not in await stored(rig, "trigger-1")
    body = config_map(rig.namespace, "trigger-2")
    with pytest.raises(ClusterError, match="Warning: kube-retrofit: not changed, because policy"):
        await kubectl(rig, "create", "--warnings-as-errors", "-f", "-", stdin=body)


async def test_a_rule_reads_a_config_map_and_an_api_path_during_admission(rig: Rig) -> None:
    settings = rig.namespace
    await rig.create(config_map(settings, "settings", mode="fast"))
    entries = [
        {"name": "settings", "configMap": {"name": "settings", "namespace": settings}},
        {
            "name": "count",
            "apiCall": {"urlPath": f"/api/v1/namespaces/{settings}", "jmesPath": "metadata.name"},
        },
    ]
    patch = {"data": {"mode": "{{ settings.data.mode }}", "place": "{{ count }}"}}
    await rig.apply(change(rig, patch, context=entries))
    assert (await stored(rig, "trigger-1"))["data"] == {"mode": "fast", "place": settings}


@pytest.fixture
async def silence() -> AsyncIterator[str]:
    """The URL of a service that accepts connections and never answers."""
    taken: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    assert taken
    server.close()
    for writer in taken:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
async def calling(rig: Rig) -> AsyncIterator[Rig]:
    """The rig with an admission server that may call services on this machine."""
    await asyncio.to_thread(rig.programs.kill, ADMISSION, signal.SIGTERM)
    settings = ProgramSettings(flags=("--service-hosts=127.0.0.1",))
    await asyncio.to_thread(rig.programs.start, ADMISSION, settings, name="calls-here")
    yield rig
    await asyncio.to_thread(rig.ensure)


async def test_a_service_that_does_not_answer_is_an_error_within_seconds(
    calling: Rig, silence: str
) -> None:
    entry = {"name": "said", "apiCall": {"service": {"url": silence}, "default": "nothing"}}
    made = change(calling, {"data": {"a": "{{ said }}"}}, context=[entry], operations=["CREATE"])
    await calling.apply(made)
    begun = asyncio.get_running_loop().time()
    with pytest.raises((Denied, Invalid), match=r"service 127\.0\.0\.1 does not answer"):
        await calling.create(config_map(calling.namespace, "trigger-1"))
    assert asyncio.get_running_loop().time() - begun < 5.0
    await calling.apply(made, failurePolicy="Ignore")
    assert "data" not in await stored(calling, "trigger-2")


async def test_the_writer_is_warned_of_a_change_where_the_policy_asks_for_it(rig: Rig) -> None:
    await rig.apply(change(rig, {"data": {"x": "y"}}), emitWarning=True)
    body = config_map(rig.namespace, "trigger-1")
    said = f"Warning: policy {rig.namespace}.rule: mutated ConfigMap/trigger-1"
    with pytest.raises(ClusterError, match=said):
        await kubectl(rig, "create", "--warnings-as-errors", "-f", "-", stdin=body)
    assert await rig.data("trigger-1") == {"x": "y"}


async def test_the_api_server_refuses_an_invalid_result_of_a_rule(rig: Rig) -> None:
    await rig.apply(change(rig, {"data": {"bad key": "y"}}))
    with pytest.raises(Invalid, match=r"data\[bad key\]: Invalid value"):
        await rig.create(config_map(rig.namespace, "trigger-1"))
    assert await rig.find("ConfigMap", "trigger-1") is None


async def test_a_rule_that_costs_too_much_does_not_stop_other_policies(rig: Rig) -> None:
    foreach = {
        "list": "split(request.object.data.list, ',')",
        "patchStrategicMerge": {"data": {"k{{ elementIndex }}": "{{ element }}"}},
    }
    made = change(rig, {}, operations=["CREATE"])
    made["mutate"] = {"foreach": [foreach]}
    await rig.apply(made, failurePolicy="Ignore")
    other = change(rig, {"data": {"x": "y"}})
    meta = {"name": f"{rig.namespace}-other"}
    await rig.create(
        {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": meta,
            "spec": {"rules": [other]},
        }
    )
    await kubectl(rig, "wait", "--for=condition=Ready", f"cpol/{meta['name']}", "--timeout=30s")
    body = config_map(rig.namespace, "trigger-1", list=",".join(map(str, range(3000))))
    body["metadata"]["annotations"] = {}
    args = ("create", "--dry-run=server", "--warnings-as-errors", "-f", "-")
    with pytest.raises(ClusterError, match="takes more than 200000 steps for one object"):
        await kubectl(rig, *args, stdin=body)
    assert sorted((await rig.create(body))["data"]) == ["list", "x"]


async def test_an_object_of_the_largest_stored_size_is_changed(rig: Rig) -> None:
    group = f"{rig.namespace}.example.com"
    made = change(rig, {"spec": {"added": "yes"}}, kinds=[f"{group}/v1/Widget"])
    await define(rig, group)
    try:
        await rig.learn(f"{group}/v1", "Widget")
        await rig.apply(made)
        spec = {f"part-{number}": "x" * 1_000 for number in range(1_350)}
        large = {
            "apiVersion": f"{group}/v1",
            "kind": "Widget",
            "metadata": {"name": "trigger-large", "namespace": rig.namespace},
            "spec": spec,
        }
        await kubectl(rig, "create", "-f", "-", stdin=large)
        assert (await rig.get("Widget", "trigger-large"))["spec"] == {**spec, "added": "yes"}
    finally:
        await kubectl(rig, "delete", "crd", f"widgets.{group}")


async def test_policies_are_not_ready_until_a_deleted_configuration_is_restored(
    rig: Rig,
) -> None:
    await rig.apply(change(rig, {"data": {"x": "y"}}))
    before = (await rig.get(*MUTATING_CONFIGURATION, ""))["webhooks"]
    await rig.delete(*MUTATING_CONFIGURATION, "")
    said: list[tuple[str, str]] = []

    async def absent() -> Any:
        policy = await rig.get("ClusterPolicy", rig.namespace, "")
        said.extend((item["status"], item["reason"]) for item in policy["status"]["conditions"])
        found = await rig.find(*MUTATING_CONFIGURATION, "")
        back = found is not None and found.get("webhooks") == before
        return "" if back and ("False", "WebhookMissing") in said else found or "absent"

    await rig.settle(absent, within=10.0)
    await rig.ready()
    assert (await stored(rig, "trigger-1"))["data"] == {"x": "y"}


async def test_reinvoked_rules_see_later_mutations_and_add_nothing_twice(rig: Rig) -> None:
    place = f"{rig.namespace}-later"
    append = json.dumps(
        [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/once"}]
    )
    start = {"metadata": {"labels": {"first": "yes"}}}
    later = {"metadata": {"labels": {"seen": "yes"}}}
    present = {
        "all": [
            {
                "key": "{{ request.object.metadata.labels.later || '' }}",
                "operator": "Equals",
                "value": "yes",
            }
        ]
    }
    await rig.apply(
        change(rig, start, name="first"), change(rig, later, name="sees", preconditions=present)
    )
    once = change(rig, append, name="once")
    meta = {"name": f"{rig.namespace}-once"}
    spec = {"rules": [once]}
    await rig.create(
        {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": meta, "spec": spec}
    )
    await kubectl(rig, "wait", "--for=condition=Ready", f"cpol/{meta['name']}", "--timeout=30s")
    await kubectl(rig, "apply", "-f", "-", stdin=labelling(rig, place))
    try:
        await rig.settle(partial(unlabelled, rig), within=20.0)
        body = config_map(rig.namespace, "trigger-last")
        body["metadata"]["finalizers"] = ["example.com/own"]
        await rig.create(body)
        found = (await rig.get("ConfigMap", "trigger-last"))["metadata"]
        assert found["labels"] == {"first": "yes", "later": "yes", "seen": "yes"}
        assert found["finalizers"] == ["example.com/own", "example.com/once"]
    finally:
        await kubectl(
            rig,
            "delete",
            "--ignore-not-found",
            "mutatingadmissionpolicies,mutatingadmissionpolicybindings",
            place,
        )
        with contextlib.suppress(NotFound):
            await rig.merge("ConfigMap", "trigger-last", {"metadata": {"finalizers": None}})


def labelling(rig: Rig, name: str) -> Object:
    """Return a MutatingAdmissionPolicy and its binding, which label objects labelled ``first``."""
    group = "admissionregistration.k8s.io/v1"
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
    ]
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": rig.namespace}}
    later = 'Object{metadata: Object.metadata{labels: {"later": "yes"}}}'
    # Only a policy that was invoked before is reinvoked, so this one matches all ConfigMaps.
    first = 'has(object.metadata.labels) && "first" in object.metadata.labels'
    expression = f"{first} ? {later} : Object{{}}"
    policy = {
        "apiVersion": group,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "reinvocationPolicy": "IfNeeded",
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules, "namespaceSelector": chosen},
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": expression},
                }
            ],
        },
    }
    binding = {
        "apiVersion": group,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [policy, binding]}


async def unlabelled(rig: Rig) -> str:
    """Return an empty text once the API server applies the policy, which it loads by a watch."""
    trial = config_map(rig.namespace, "trigger-trial")
    args = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    made = json.loads(await kubectl(rig, *args, stdin=trial))
    return "" if "later" in made["metadata"]["labels"] else "no label yet"


@pytest.fixture
async def cases(rig: Rig) -> AsyncIterator[dict[str, Case]]:
    """The cases by the names of their objects, with a policy in force for each."""
    found = {f"case-{index}": case for index, case in enumerate(CASES.values())}
    made = [
        policy_of(case, f"{rig.namespace}-{name}", names=[name], namespaces=[rig.namespace])
        for name, case in found.items()
    ]
    references = [f"cpol/{policy['metadata']['name']}" for policy in made]
    await kubectl(
        rig, "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": made}
    )
    await kubectl(rig, "wait", "--for=condition=Ready", "--timeout=30s", *references)
    yield found
    await kubectl(rig, "delete", *references)


async def test_the_stored_object_is_the_one_that_the_cli_shows(
    rig: Rig, cases: dict[str, Case], tmp_path: Path
) -> None:
    for name, case in cases.items():
        obj = object_of(case, name, rig.namespace)
        policy = policy_of(case, "p")
        shown = await asyncio.to_thread(at_the_desk, tmp_path, policy, obj)
        shown["metadata"]["name"] = f"other-{name}"
        assert content(await rig.create(obj)) == content(await rig.create(shown)), name


def content(obj: Object) -> Object:
    """Return the fields of an object that users write, without its name."""
    meta = obj["metadata"]
    said = {key: meta.get(key) for key in ("labels", "annotations")}
    return {"spec": obj.get("spec"), "data": obj.get("data"), **said}


async def test_a_failing_rule_on_pod_exec_refuses_the_connection(rig: Rig) -> None:
    gone = {"command": ["{{ request.object.gone }}"]}
    await rig.create(pod(rig.namespace, "trigger-1"))
    await rig.apply(change(rig, gone, kinds=["Pod/exec"], operations=["CONNECT"]))
    args = ("-n", rig.namespace, "exec", "trigger-1", "--", "true")
    with pytest.raises(ClusterError, match=r"policy .* rule rule: spec\.rules\[0\]: "):
        await asyncio.to_thread(rig.cluster.kubectl, *args)


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_a_forbidden_entry_follows_the_failure_policy(rig: Rig, failure_policy: str) -> None:
    path = f"/api/v1/namespaces/{rig.namespace}/secrets/hidden"
    entry = {"name": "hidden", "apiCall": {"urlPath": path, "jmesPath": "kind"}}
    made = change(rig, {"data": {"a": "{{ hidden }}"}}, context=[entry])
    await rig.apply(made, failurePolicy=failure_policy)
    if failure_policy == "Ignore":
        assert "data" not in await stored(rig, "trigger-1")
        return
    with pytest.raises((Denied, Invalid), match="secrets"):
        await rig.create(config_map(rig.namespace, "trigger-1"))


@pytest.fixture
async def lenient(rig: Rig) -> AsyncIterator[Rig]:
    """The rig with a controller that runs every policy under Ignore."""
    # SIGTERM makes the controller release its Lease at once.
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.controller("--force-failure-policy-ignore", name="lenient")
    yield rig
    await asyncio.to_thread(rig.ensure)


async def test_no_request_is_refused_with_force_failure_policy_ignore(lenient: Rig) -> None:
    await lenient.apply(change(lenient, MISSING), failurePolicy="Fail")
    assert "data" not in await stored(lenient, "trigger-1")
    policy = await lenient.get("ClusterPolicy", lenient.namespace, "")
    (said,) = (
        item["message"] for item in policy["status"]["conditions"] if item["type"] == "Ready"
    )
    assert said.endswith("the controller runs with --force-failure-policy-ignore")
    await lenient.apply(change(lenient, {"data": {"x": "y"}}), failurePolicy="Fail")
    assert (await stored(lenient, "trigger-2"))["data"] == {"x": "y"}


async def test_a_silent_admission_server_blocks_writes_under_fail_only(rig: Rig) -> None:
    brief = {"timeoutSeconds": 1}
    made = change(rig, {"data": {"x": "y"}})
    await rig.apply(made, webhookConfiguration={**brief, "failurePolicy": "Fail"})
    rig.programs.kill(ADMISSION, signal.SIGSTOP)
    try:
        with pytest.raises(ClusterError, match="failed calling webhook"):
            await rig.create(config_map(rig.namespace, "trigger-1"))
    finally:
        rig.programs.kill(ADMISSION, signal.SIGCONT)
    await rig.apply(made, webhookConfiguration={**brief, "failurePolicy": "Ignore"})
    rig.programs.kill(ADMISSION, signal.SIGSTOP)
    try:
        assert "data" not in await stored(rig, "trigger-1")
    finally:
        rig.programs.kill(ADMISSION, signal.SIGCONT)
