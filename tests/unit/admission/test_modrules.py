"""ModRules with execution tiers, and ModRules of type Reject, over real HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from reconciler.api.meta import Object
from reconciler.engine.loads import Load
from reconciler.errors import Unavailable
from tests.filters import parse_filters
from tests.unit.admission.conftest import Make
from tests.unit.admission.serving import World
from tests.unit.admission.test_mutate import ask, changed
from tests.unit.dialects.kubemod.modrules import POD, make_pod, modrule, patching

CHANGE, VALIDATE = "/mutate-kubemod/ignore", "/validate/ignore"
NO_ROOT = "$.spec.securityContext.runAsUser == 0"
FAIL = {"kube-retrofit.dev/failure-policy": "Fail"}


def add(name: str, path: str, value: str, **fields: Any) -> Object:
    return patching({"op": "add", "path": path, "value": value}, name=name, **fields)


def rejecting(name: str, select: str, message: str | None = None, **fields: Any) -> Object:
    if message is not None:
        fields["rejectMessage"] = message
    return modrule(type="Reject", match=[POD, {"select": select}], name=name, **fields)


def root() -> Object:
    pod = make_pod()
    return {**pod, "spec": {**pod["spec"], "securityContext": {"runAsUser": 0}}}


class Silent:
    """A loader whose API server is unavailable."""

    async def load(self, load: Load) -> Any:
        raise Unavailable(f"{load} is not answered")


async def stored(world: World) -> int:
    """Return the number of recorded requests."""
    return len([item async for item in world.requests.waiting()])


@pytest.fixture
async def world(make: type[Make]) -> AsyncIterator[World]:
    rules = (
        rejecting("no-root", NO_ROOT, "{{ .Target.metadata.name }} runs as root"),
        rejecting("no-log", '$.spec.containers[? @.name == "log"]'),
        make.policy(resources={"kinds": ["Pod"]}),
    )
    async with World(make.index(*rules), namespaces={"shop": {}}) as world:
        yield world


async def test_execution_tiers_order_all_rules_of_a_language(make: type[Make]) -> None:
    late = add("a-late", "/metadata/labels/second", "{{ .Target.metadata.labels.first }}!")
    late["spec"] |= {"executionTier": 1, "match": [POD, {"select": "$.metadata.labels.first"}]}
    grows = add("b-grows", "/spec/containers/-1", "{name: side, image: side}")
    early = add("c-early", "/metadata/labels/first", "one")
    pod = make_pod()
    async with World(make.index(late, grows, early), namespaces={"shop": {}}) as world:
        response = await ask(world, CHANGE, make.review(obj=pod))
        after = changed(pod, response)
        # Only one path serves these rules, whether or not they append to a list.
        for path in ("/mutate/ignore", "/mutate-once/ignore", "/mutate-kubemod/fail"):
            assert "patch" not in await ask(world, path, make.review(obj=pod))
    assert after["metadata"]["labels"] == {"app": "web", "first": "one", "second": "one!"}
    assert [item["name"] for item in after["spec"]["containers"]] == ["web", "log", "side"]


async def test_the_filters_of_the_config_map_do_not_apply_to_modrules(make: type[Make]) -> None:
    filters = parse_filters(resources="[Pod,*,*]", exclude_groups="devs")
    rules = add("a", "/metadata/labels/x", "well"), rejecting("no-root", NO_ROOT)
    index = make.index(*rules, make.mutating(resources={"kinds": ["Pod"]}))
    async with World(index, namespaces={"shop": {}}, filters=filters) as world:
        assert "patch" in await ask(world, CHANGE, make.review(obj=make_pod()))
        assert "patch" not in await ask(world, "/mutate/fail", make.review(obj=make_pod()))
        assert not (await ask(world, VALIDATE, make.review(obj=root())))["allowed"]


class Namespaces:
    """A loader that returns a Namespace of team blue for every load."""

    async def load(self, load: Load) -> Any:
        return {"metadata": {"name": "shop", "labels": {"team": "blue"}}}


@pytest.mark.parametrize(("team", "allowed"), [("red", True), ("blue", False)])
async def test_a_rule_that_reads_fails_for_a_deeply_nested_object_only_if_it_fires(
    make: type[Make], team: str, allowed: bool
) -> None:
    select = "$.syntheticRefs.namespace.metadata.labels.team"
    rule = add("a", "/metadata/labels/x", "well")
    rule["spec"]["match"] = [POD, {"select": select, "matchValue": team}]
    rule["metadata"]["annotations"] = FAIL
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    body = make.review(obj=make_pod(spec="deep")).replace(b'"deep"', deep)
    loader = Namespaces()
    async with World(make.index(rule), loader=loader, namespaces={"shop": {}}) as world:
        response = await ask(world, "/mutate-kubemod/fail", body)
    assert response["allowed"] is allowed
    assert "patch" not in response
    assert ("nested more deeply" in str(response)) is not allowed


async def test_an_empty_value_makes_an_empty_label_and_annotation(make: type[Make]) -> None:
    """The API server stores an empty text for null, which is what an empty value means."""
    rules = (
        add("a", "/metadata/labels/node.example.com~1worker", ""),
        add("b", "/metadata/annotations/note", '{{ with .Target.spec.nothing }}"x"{{ end }}'),
    )
    pod = make_pod()
    async with World(make.index(*rules), namespaces={"shop": {}}) as world:
        response = await ask(world, CHANGE, make.review(obj=pod))
        after = changed(pod, response)
        again = await ask(world, CHANGE, make.review(obj=after))
        assert world.count("mutations_total", policy="shop/a", rule="patch") == 1
    assert "warnings" not in response
    assert after["metadata"]["labels"] == {"app": "web", "node.example.com/worker": ""}
    assert after["metadata"]["annotations"] == {"note": ""}
    assert again == {"uid": again["uid"], "allowed": True}


async def test_a_failing_rule_does_not_stop_other_rules(make: type[Make]) -> None:
    good = add("a", "/metadata/labels/good", "well")
    bad = patching({"op": "replace", "path": "/spec/none", "value": "1"}, name="b")
    later = add("c", "/metadata/labels/later", "well")
    pod = make_pod()
    async with World(make.index(good, bad, later), namespaces={"shop": {}}) as world:
        response = await ask(world, CHANGE, make.review(obj=pod))
    assert changed(pod, response)["metadata"]["labels"] == {
        **pod["metadata"]["labels"],
        "good": "well",
        "later": "well",
    }
    (warning,) = response["warnings"]
    assert warning.startswith("kube-retrofit: not changed, because policy shop/b rule patch: ")


async def test_a_refusal_names_every_rejecting_rule_and_nothing_is_recorded(world, make) -> None:
    for path in (VALIDATE, "/validate/fail"):
        response = await ask(world, path, make.review(obj=root()))
        assert response["allowed"] is False
        assert response["status"] == {
            "code": 403,
            "message": "operation rejected by the following ModRule(s):"
            ' shop/no-log, shop/no-root: "web-1 runs as root"',
        }
    assert await stored(world) == 0
    assert world.count("rejections_total", policy="shop/no-root", rule="reject") == 2


async def test_nothing_is_refused_or_recorded_beside_a_live_kyverno(make: type[Make]) -> None:
    rules = rejecting("no-root", NO_ROOT), make.policy(resources={"kinds": ["Pod"]})
    index, standing_by = make.index(*rules), lambda: "kyverno is alive"
    async with World(index, namespaces={"shop": {}}, standing_by=standing_by) as world:
        response = await ask(world, "/validate/fail", make.review(obj=root()))
        assert response == {"uid": response["uid"], "allowed": True}
        assert await stored(world) == 0


async def test_an_object_that_no_rule_rejects_is_recorded(world, make) -> None:
    pod = make_pod(spec={"containers": [{"name": "web", "image": "web"}]})
    assert (await ask(world, "/validate/fail", make.review(obj=pod)))["allowed"] is True
    assert await stored(world) == 1


async def test_objects_in_other_namespaces_are_not_refused(world, make) -> None:
    pod = root()
    pod["metadata"] = {**pod["metadata"], "namespace": "other"}
    assert (await ask(world, VALIDATE, make.review(obj=pod)))["allowed"] is True


@pytest.mark.parametrize(
    ("obj", "allowed"),
    [
        ({"namespace": "shop"}, False),
        ({"namespace": "kube-system"}, True),
        ({"namespace": "kyverno"}, True),
        ({"kind": "Namespace", "name": "shop", "namespace": ""}, False),
        ({"kind": "Namespace", "name": "kyverno", "namespace": ""}, True),
        ({"kind": "ClusterPolicy", "api_version": "kyverno.io/v1", "namespace": ""}, True),
    ],
)
async def test_a_rule_for_the_whole_cluster_refuses_nothing_in_system_namespaces(
    make: type[Make], obj: dict[str, str], *, allowed: bool
) -> None:
    everywhere = {"apiVersion": "policy.kcloudlabs.io/v1alpha1", "kind": "ClusterValidatePolicy"}
    reference = {"from": "current", "path": "/kind"}
    condition = {"cond": "Exist", "message": "no", "dataRef": reference}
    rule = {"template": {"type": "condition", "condition": condition}}
    meta = {"name": "none", "annotations": {"kube-retrofit.dev/objects": "all"}}
    policy = {**everywhere, "metadata": meta, "spec": {"validateRules": [rule]}}
    async with World(make.index(policy)) as world:
        for review in (
            make.review(obj=make.thing(**obj)),
            make.review("DELETE", old=make.thing(**obj)),
        ):
            assert (await ask(world, "/validate/fail", review))["allowed"] is allowed


async def test_a_dry_run_is_refused_and_not_counted(world, make) -> None:
    response = await ask(world, VALIDATE, make.review(obj=root(), dryRun=True))
    assert response["allowed"] is False
    assert world.count("rejections_total", policy="shop/no-root", rule="reject") == 0


async def test_a_deletion_is_judged_by_the_deleted_object(make: type[Make]) -> None:
    kept = rejecting("keep", '$.metadata.labels.keep == "yes"', admissionOperations=["DELETE"])
    pod = make_pod()
    pod["metadata"] = {**pod["metadata"], "labels": {"keep": "yes"}}
    async with World(make.index(kept), namespaces={"shop": {}}) as world:
        refused = await ask(world, VALIDATE, make.review("DELETE", old=pod))
        allowed = await ask(world, VALIDATE, make.review("DELETE", old=make_pod()))
    assert (refused["allowed"], allowed["allowed"]) == (False, True)
    assert refused["status"]["message"].endswith("shop/keep")


@pytest.mark.parametrize("strict", [False, True])
async def test_the_failure_policy_of_an_unreadable_rule_applies_to_that_rule_only(
    make: type[Make], *, strict: bool
) -> None:
    lost = rejecting(
        "lost", '$.syntheticRefs.namespace.metadata.labels.team == "a"', annotations=FAIL
    )
    rules = [lost, rejecting("no-root", NO_ROOT)]
    async with World(make.index(*rules), namespaces={"shop": {}}, loader=Silent()) as world:
        path = "/validate/fail" if strict else VALIDATE
        response = await ask(world, path, make.review(obj=make_pod()))
        assert response["allowed"] is not strict
        if strict:
            assert "policy shop/lost rule reject" in response["status"]["message"]
        refused = await ask(world, VALIDATE, make.review(obj=root()))
        assert refused["status"]["message"].endswith("ModRule(s): shop/no-root")


@pytest.mark.parametrize(("path", "written"), [(VALIDATE, {}), ("/validate/all", FAIL)])
async def test_under_ignore_a_warning_names_the_rule_that_was_not_checked(
    make: type[Make], path: str, written: dict[str, str]
) -> None:
    select = '$.syntheticRefs.namespace.metadata.labels.team == "a"'
    asks = rejecting("asks", select, annotations=written)
    async with World(make.index(asks), namespaces={"shop": {}}, loader=Silent()) as world:
        response = await ask(world, path, make.review(obj=make_pod()))
    assert response["allowed"] is True
    (warning,) = response["warnings"]
    assert warning.startswith("kube-retrofit: not checked, because policy shop/asks rule reject")
