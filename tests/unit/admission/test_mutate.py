"""The responses of the mutating webhook, over real HTTP."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import jsonpatch
import orjson
import pytest

from reconciler.api.meta import Object
from reconciler.dialects.kyverno.match import Matcher
from reconciler.engine.loads import ConfigMapLoad, GlobalLoad, Load
from reconciler.errors import Unavailable
from reconciler.requests.draft import MOST_LEVELS
from reconciler.services.catalog.rule_index import RuleIndex
from tests.calls import counted
from tests.filters import parse_filters
from tests.unit.admission.conftest import Make
from tests.unit.admission.serving import Broken, World

Ask = Callable[..., Awaitable[Object]]
LABEL = {"team": "a"}
MISSING = {
    "patchStrategicMerge": {"metadata": {"labels": {"x": "{{ request.object.data.gone }}"}}}
}
SETTINGS = {"name": "settings", "configMap": {"name": "settings", "namespace": "a"}}
FROM_SETTINGS = {
    "context": [SETTINGS],
    "mutate": {"patchStrategicMerge": {"data": {"mode": "{{ settings.data.mode }}"}}},
}


def labels(**values: str) -> Object:
    return {"mutate": {"patchStrategicMerge": {"metadata": {"labels": values}}}}


async def ask(world: World, path: str, body: bytes) -> Object:
    status, answer = await world.post(path, body)
    assert status == 200, answer
    response: Object = answer["response"]
    return response


def patch_of(response: Object) -> list[Any]:
    assert response["patchType"] == "JSONPatch"
    operations: list[Any] = orjson.loads(base64.b64decode(response["patch"]))
    return operations


def changed(obj: Object, response: Object) -> Object:
    """Return the object with the response's patch applied, as the API server stores it."""
    after: Object = jsonpatch.apply_patch(obj, patch_of(response))
    return after


@pytest.fixture
async def world(make: type[Make]) -> AsyncIterator[World]:
    async with World(make.index(make.mutating())) as world:
        yield world


async def test_the_patch_turns_the_object_into_the_result_of_the_rule(world, make):
    obj = make.thing(data={"a": "1"})
    response = await ask(world, "/mutate/fail", make.review(obj=obj))
    assert response["allowed"] is True
    assert patch_of(response) == [{"op": "add", "path": "/metadata/labels", "value": LABEL}]
    assert world.count("mutations_total", policy="add-team", rule="add") == 1


async def test_an_unmatched_or_unchanged_object_is_allowed_without_a_patch(world, make):
    for obj in (make.thing("Secret"), make.thing(metadata={"labels": LABEL})):
        response = await ask(world, "/mutate/fail", make.review(obj=obj))
        assert response == {"uid": response["uid"], "allowed": True}


async def test_a_rule_is_matched_and_evaluated_on_the_result_of_earlier_rules(make):
    second = {
        "name": "second",
        "match": {
            "any": [{"resources": {"kinds": ["ConfigMap"], "selector": {"matchLabels": LABEL}}}]
        },
        **labels(second="{{ request.object.metadata.labels.team }}"),
    }
    third = make.mutating(
        "later",
        preconditions={
            "all": [
                {
                    "key": "{{ request.object.metadata.labels.second || '' }}",
                    "operator": "Equals",
                    "value": "a",
                }
            ]
        },
        **labels(third="yes"),
    )
    first = make.mutating("first", rules=[{"name": "first"}, second])
    obj = make.thing()
    async with World(make.index(third, first)) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=obj))
    assert changed(obj, response)["metadata"]["labels"] == {
        "team": "a",
        "second": "a",
        "third": "yes",
    }


async def test_under_apply_rules_one_only_the_first_changing_rule_is_applied(make):
    rules = [
        {"name": "none", **labels()},
        {"name": "a", **labels(a="1")},
        {"name": "b", **labels(b="1")},
    ]
    obj = make.thing(metadata={"labels": {"x": "y"}})
    policy = make.mutating(spec={"applyRules": "One"}, rules=rules)
    async with World(make.index(policy)) as world:
        response = await ask(world, "/mutate-once/fail", make.review(obj=obj))
    assert changed(obj, response)["metadata"]["labels"] == {"x": "y", "a": "1"}


async def test_an_error_refuses_under_fail_and_changes_nothing(make):
    policy = make.mutating(rules=[{"name": "good"}, {"name": "bad", "mutate": MISSING}])
    async with World(make.index(policy)) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        assert response["allowed"] is False
        assert "patch" not in response
        assert response["status"]["code"] == 400
        message = response["status"]["message"]
        assert message.startswith("kube-retrofit: policy add-team rule bad: spec.rules[1]: ")
        assert message.endswith("; correct the rule or the data that it reads")
        assert world.count("mutations_refused_total", policy="add-team", reason="evaluation") == 1


async def test_under_ignore_a_failing_policy_is_skipped_whole_and_others_are_applied(make):
    lax = {"failurePolicy": "Ignore"}
    broken = make.mutating(
        "broken",
        spec=lax,
        rules=[{"name": "a", **labels(a="1")}, {"name": "b", "mutate": MISSING}],
    )
    fine = make.mutating("fine", spec=lax)
    obj, reported = make.thing(), list[str]()
    async with World(make.index(broken, fine), lost=partial(reported.append, "lost")) as world:
        response = await ask(world, "/mutate/ignore", make.review(obj=obj))
        assert changed(obj, response)["metadata"]["labels"] == LABEL
        assert reported == [], "no other time does the rule any good"
        (warning,) = response["warnings"]
        assert "not changed, because policy broken rule b: spec.rules[1]: " in warning
        assert world.count("mutations_lost_total", policy="broken", reason="evaluation") == 1
        assert world.count("mutations_total", policy="broken", rule="a") == 0


async def test_the_path_for_all_policies_treats_every_policy_as_ignore(make):
    broken = make.mutating("broken", rules=[{"name": "bad", "mutate": MISSING}])
    index = make.index(broken, make.mutating("fine"), make.policy("records", uid="3"))
    obj = make.thing()
    async with World(index) as world:
        response = await ask(world, "/mutate/all", make.review(obj=obj))
        assert changed(obj, response)["metadata"]["labels"] == LABEL
        assert "not changed, because policy broken rule bad" in response["warnings"][0]
        await ask(world, "/validate/all", make.review(obj=obj))
        assert [item.spec.policy.key for item in await world.stored()] == ["records"]
        world.cluster.forbid("create", "updaterequests.kyverno.io")
        other = make.review(obj=make.thing(name="other"))
        response = await ask(world, "/validate/all", other)
        assert (response["allowed"], len(response["warnings"])) == (True, 1)


async def test_a_rule_may_not_add_more_than_a_mebibyte_to_an_object(make):
    def rule(name, size):
        patch = {"data": {name: "\N{GRINNING FACE}" * size}}
        return {"name": name, "mutate": {"patchStrategicMerge": patch}}

    policy = make.mutating(rules=[rule("a", 150_000), rule("b", 150_000)])
    large = make.thing(data={"own": "x" * 900_000})
    async with World(make.index(policy)) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        message = response["status"]["message"]
        assert message.startswith("kube-retrofit: policy add-team rule b: spec.rules[1]: ")
        assert "and no rule may add more than 1048576 before an object is stored" in message
        assert world.count("mutations_refused_total", policy="add-team", reason="evaluation") == 1
    index = make.index(make.mutating(rules=[rule("a", 150_000)]))
    async with World(index, largest=1 << 20) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=large))
        assert changed(large, response)["data"]["own"] == large["data"]["own"]


async def test_a_dry_run_is_answered_the_same_and_not_counted(world, make):
    response = await ask(world, "/mutate/fail", make.review(obj=make.thing(), dryRun=True))
    assert patch_of(response)
    assert world.count("mutations_total", policy="add-team", rule="add") == 0


async def test_emit_warning_reports_the_changed_object_to_the_caller(make):
    policy = make.mutating(spec={"emitWarning": True})
    async with World(make.index(policy)) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
    assert response["warnings"] == ["policy add-team.add: mutated ConfigMap/dict in namespace a"]


async def test_emit_warning_shows_the_generate_name_of_an_object_without_a_name(make):
    obj = make.thing(name="")
    obj["metadata"]["generateName"] = "web-"
    async with World(make.index(make.mutating(spec={"emitWarning": True}))) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=obj))
    assert response["warnings"] == ["policy add-team.add: mutated ConfigMap/web-* in namespace a"]


async def test_an_event_reports_a_mutation_only_if_success_events_are_enabled(make):
    for wanted in (False, True):
        async with World(make.index(make.mutating()), tells_success=wanted) as world:
            await ask(world, "/mutate/fail", make.review(obj=make.thing()))
            await ask(world, "/mutate/fail", make.review(obj=make.thing(), dryRun=True))
            reported = [
                (item.reason, item.action, item.reporter, item.regarding["name"])
                for item in world.events.kept
            ]
        expected = ("PolicyApplied", "Resource Mutated", "kyverno-admission", "add-team")
        assert reported == ([expected] if wanted else [])


async def test_nothing_is_changed_beside_a_live_kyverno(make):
    async with World(make.index(make.mutating()), standing_by=lambda: "kyverno is alive") as world:
        response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
    assert response == {"uid": response["uid"], "allowed": True}


@pytest.mark.parametrize(
    "obj",
    [
        {"namespace": "kyverno"},
        {"namespace": "kube-retrofit-recorded"},
        {"namespace": "kube-system"},
        {"kind": "Namespace", "name": "kyverno", "namespace": ""},
        {"kind": "ClusterPolicy", "api_version": "kyverno.io/v1", "namespace": ""},
    ],
)
async def test_system_namespaces_and_own_objects_are_never_changed(make, obj):
    policy = make.mutating(resources={"kinds": ["*"]}, spec={"failurePolicy": "Ignore"})
    async with World(make.index(policy)) as world:
        response = await ask(world, "/mutate/ignore", make.review(obj=make.thing(**obj)))
    assert "patch" not in response


async def test_a_crash_refuses_under_fail_and_is_admitted_with_a_warning_under_ignore(
    make, caplog
):
    caplog.set_level(logging.CRITICAL)
    selected = {"namespaceSelector": {"matchLabels": {"a": "b"}}, "kinds": ["ConfigMap"]}
    strict = make.mutating(resources=selected)
    lax = make.mutating("lax", resources=selected, spec={"failurePolicy": "Ignore"})
    reported = list[str]()
    lost = partial(reported.append, "lost")
    async with World(make.index(strict, lax), namespaces=Broken(), lost=lost) as world:
        refused = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        assert refused["status"]["code"] == 500
        assert not reported
        admitted = await ask(world, "/mutate/ignore", make.review(obj=make.thing()))
        assert "because of a bug" in admitted["warnings"][0]
        assert world.count("mutations_lost_total", policy="", reason="crash") == 1
        assert reported == ["lost"]


SELECTED = {"namespaceSelector": {"matchLabels": {"env": "test"}}, "kinds": ["ConfigMap"]}


class TestNamespaceLabels:
    async def test_labels_of_an_unknown_namespace_are_read(self, make):
        async with World(make.index(make.mutating(resources=SELECTED)), namespaces={}) as world:
            world.cluster.add(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": "a", "labels": {"env": "test"}},
                }
            )
            response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        assert patch_of(response)

    async def test_namespace_labels_that_cannot_be_read_are_an_error(self, make):
        index, reported = make.index(make.mutating(resources=SELECTED)), list[str]()
        lost = partial(reported.append, "lost")
        async with World(index, namespaces={}, lost=lost) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
            await ask(world, "/mutate/ignore", make.review(obj=make.thing(), dryRun=True))
        assert not reported
        assert (response["allowed"], response["status"]["code"]) == (False, 503)
        assert "it is unknown which rules apply to" in response["status"]["message"]

    async def test_under_ignore_unreadable_namespace_labels_leave_the_object_unchanged(self, make):
        policy = make.mutating(resources=SELECTED, spec={"failurePolicy": "Ignore"})
        reported = list[str]()
        lost = partial(reported.append, "lost")
        async with World(make.index(policy), namespaces={}, lost=lost) as world:
            response = await ask(world, "/mutate/ignore", make.review(obj=make.thing()))
            assert world.count("mutations_lost_total", policy="", reason="unknown") == 1
            await ask(world, "/mutate/ignore", make.review(obj=make.thing(), dryRun=True))
        assert response["allowed"] is True
        assert "patch" not in response
        (text,) = response["warnings"]
        assert "it is unknown which rules apply to" in text
        assert reported == ["lost"]

    async def test_namespace_labels_that_no_rule_needs_are_not_read(self, make):
        async with World(make.index(make.mutating()), namespaces={}) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        assert patch_of(response)


@pytest.mark.parametrize(
    "filters",
    [
        {"resources": "[ConfigMap,a,d*]"},
        {"exclude_groups": "devs"},
        {"exclude_usernames": "jan?"},
    ],
)
async def test_filtered_objects_and_excluded_users_change_nothing(make, filters):
    rule = make.mutating()
    async with World(make.index(rule), filters=parse_filters(**filters)) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        assert response == {"uid": response["uid"], "allowed": True}
        jack = {"userInfo": {"username": "jack", "groups": []}}
        other = make.review(obj=make.thing(name="other"), **jack)
        assert "patch" in await ask(world, "/mutate/fail", other)


class Never:
    """A loader that never answers."""

    async def load(self, load: Load) -> Any:
        await asyncio.Event().wait()


class Away:
    """A loader whose API server is unavailable."""

    async def load(self, load: Load) -> Any:
        msg = "the API server does not answer"
        raise Unavailable(msg)


class Together:
    """A loader that answers only once the given number of loads is pending."""

    def __init__(self, waiting: int) -> None:
        self.asked: list[Load] = []
        self.all_here = asyncio.Barrier(waiting)

    async def load(self, load: Load) -> Any:
        self.asked.append(load)
        await self.all_here.wait()
        return {"data": {"k": load.name if isinstance(load, ConfigMapLoad) else ""}}


TEAMS = {"name": "teams", "globalReference": {"name": "teams"}}


class Kept:
    """A loader that has only the data of GlobalContextEntries."""

    async def load(self, load: Load) -> Any:
        if isinstance(load, GlobalLoad):
            return {"a": "red"}
        msg = "nothing else is kept"
        raise Unavailable(msg)


class TestEntries:
    async def test_global_context_entries_are_available_to_policies_with_an_account(self, make):
        named = {"metadata": {"annotations": {"kube-retrofit.dev/service-account": "a/bot"}}}
        policy = make.mutating(context=[TEAMS], **labels(team="{{ teams.a }}"))
        other = make.mutating(context=[SETTINGS], **labels(team="{{ settings.data.k }}"))
        for item in (policy, other):
            item["metadata"].update(named["metadata"])
        obj = make.thing()
        async with World(make.index(policy), loader=Kept()) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=obj))
        assert changed(obj, response)["metadata"]["labels"] == {"team": "red"}
        async with World(make.index(other), loader=Kept()) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=obj))
        message = response["status"]["message"]
        assert "before an object is stored: let the rule read only GlobalContextEntries" in message

    async def test_used_entries_are_read_concurrently_and_once_and_unused_ones_never(self, make):
        entries = [
            {"name": name, "configMap": {"name": of, "namespace": "a"}}
            for name, of in (("one", "x"), ("two", "y"), ("again", "x"), ("unnamed", "z"))
        ]
        rule = labels(one="{{ one.data.k }}", two="{{ two.data.k }}{{ again.data.k }}")
        index, obj = make.index(make.mutating(context=entries, **rule)), make.thing()
        loader = Together(2)
        async with World(index, loader=loader, budget=5.0) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=obj))
        assert changed(obj, response)["metadata"]["labels"] == {"one": "x", "two": "yx"}
        assert loader.asked == [ConfigMapLoad(namespace="a", name=name) for name in ("x", "y")]

    async def test_entries_are_read_during_the_review_for_all_rules(self, make):
        again = {**FROM_SETTINGS, **labels(mode="{{ settings.data.mode }}"), "name": "again"}
        policy = make.mutating(rules=[FROM_SETTINGS, again])
        obj = make.thing()
        async with World(make.index(policy)) as world:
            world.cluster.add(make.thing(name="settings", data={"mode": "fast"}))
            response = await ask(world, "/mutate/fail", make.review(obj=obj))
        after = changed(obj, response)
        assert (after["data"], after["metadata"]["labels"]) == ({"mode": "fast"}, {"mode": "fast"})

    @pytest.mark.parametrize(("loader", "reason"), [(Never(), "deadline"), (Away(), "read")])
    async def test_unreadable_entries_are_an_error_of_their_policy_alone(
        self, make, loader, reason
    ):
        budget = 0.1 if reason == "deadline" else 5.0
        lax = {"failurePolicy": "Ignore"}
        index = make.index(
            make.mutating("reads", spec=lax, **FROM_SETTINGS), make.mutating("xlater", spec=lax)
        )
        obj, reported = make.thing(), list[str]()
        lost = partial(reported.append, "lost")
        async with World(index, loader=loader, budget=budget, lost=lost) as world:
            response = await ask(world, "/mutate/ignore", make.review(obj=obj))
            assert world.count("mutations_lost_total", policy="reads", reason=reason) == 1
            # The catch-up is notified, which finds the object if the policy runs on existing ones.
            assert reported == ["lost"]
            await ask(world, "/mutate/ignore", make.review(obj=obj, dryRun=True))
            assert reported == ["lost"]
        assert changed(obj, response)["metadata"]["labels"] == LABEL

    @pytest.mark.parametrize(
        ("loader", "reported"),
        [(Never(), "there was no answer within 0.1 s"), (Away(), "does not answer")],
    )
    async def test_unreadable_entries_refuse_the_request_under_fail(self, make, loader, reported):
        index = make.index(make.mutating("reads", **FROM_SETTINGS), make.mutating("xlater"))
        budget = 0.1 if isinstance(loader, Never) else 5.0
        async with World(index, loader=loader, budget=budget) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        assert (response["allowed"], response["status"]["code"]) == (False, 400)
        assert response["status"]["message"].startswith("kube-retrofit: policy reads rule add: ")
        assert reported in response["status"]["message"]
        assert "patch" not in response

    async def test_entries_that_read_objects_fail_for_a_policy_with_an_account(self, make):
        policy = make.mutating(**FROM_SETTINGS)
        policy["metadata"]["annotations"] = {"kube-retrofit.dev/service-account": "a/robot"}
        async with World(make.index(policy)) as world:
            world.cluster.add(make.thing(name="settings", data={"mode": "fast"}))
            response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        assert "the policy works as" in response["status"]["message"]

    async def test_an_object_that_does_not_exist_is_named_in_the_error(self, make):
        async with World(make.index(make.mutating(**FROM_SETTINGS))) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        text = response["status"]["message"]
        assert 'context entry settings: configmaps "settings" not found' in text

    async def test_a_failure_of_an_entry_that_uses_read_data_is_reported_without_the_data(
        self, make
    ):
        named = {"name": "{{ settings.data.mode }}", "namespace": "a"}
        rule = {
            "context": [SETTINGS, {"name": "next", "configMap": named}],
            "mutate": {"patchStrategicMerge": {"data": {"x": "{{ next.data.x }}"}}},
        }
        async with World(make.index(make.mutating(**rule))) as world:
            world.cluster.add(make.thing(name="settings", data={"mode": "hush"}))
            response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
        text = response["status"]["message"]
        assert "context entry next: an object that is read does not exist" in text
        assert "hush" not in text

    async def test_data_that_was_read_is_not_in_an_error_message(self, make):
        rule = {
            "context": [SETTINGS],
            "mutate": {"patchStrategicMerge": {"data": "{{ settings.data.mode }}"}},
        }
        async with World(make.index(make.mutating(**rule))) as world:
            world.cluster.add(make.thing(name="settings", data={"mode": "hush"}))
            response = await ask(
                world, "/mutate/fail", make.review(obj=make.thing(data={"a": "b"}))
            )
        assert "hush" not in str(response.get("status", ""))


COSTLY = {
    "mutate": {
        "foreach": [
            {
                "list": "request.object.data.list",
                "patchStrategicMerge": {"data": {"k{{ element }}": "{{ elementIndex }}"}},
            }
        ]
    }
}


class TestCost:
    async def test_a_rule_that_takes_too_many_steps_is_an_error_and_others_are_applied(self, make):
        lax = {"failurePolicy": "Ignore"}
        index = make.index(
            make.mutating("costly", spec=lax, **COSTLY), make.mutating("fine", spec=lax)
        )
        obj = make.thing(data={"list": list(range(2000))})
        async with World(index) as world:
            response = await ask(world, "/mutate/ignore", make.review(obj=obj))
        assert changed(obj, response)["metadata"]["labels"] == LABEL
        assert "takes more than 200000 steps for one object" in response["warnings"][0]

    async def test_a_foreach_over_the_containers_of_a_large_pod_is_applied(self, make):
        env = [{"name": f"VARIABLE_{number}", "value": "some text " * 3} for number in range(40)]
        containers = [{"name": f"c{n}", "image": f"a:{n}", "env": env} for n in range(20)]
        image = [{"name": "{{ element.name }}", "image": "mirror/{{ element.image }}"}]
        foreach = {
            "list": "request.object.spec.containers",
            "patchStrategicMerge": {"spec": {"containers": image}},
        }
        policy = make.mutating(resources={"kinds": ["Pod"]}, mutate={"foreach": [foreach]})
        pod = make.thing("Pod", spec={"containers": containers})
        async with World(make.index(policy), largest=1 << 20) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=pod))
        after = changed(pod, response)["spec"]["containers"]
        assert [item["image"] for item in after] == [f"mirror/a:{n}" for n in range(20)]

    async def test_all_rules_together_have_a_limit_of_steps(self, make):
        lax = {"failurePolicy": "Ignore"}
        policies = [make.mutating(f"p{number:02}", spec=lax, **COSTLY) for number in range(60)]
        obj = make.thing(data={"list": list(range(100))})
        async with World(make.index(*policies), budget=10.0) as world:
            response = await ask(world, "/mutate/ignore", make.review(obj=obj))
        assert patch_of(response)
        assert 0 < len(response["warnings"]) < 60
        reason = "evaluating all rules takes more than 4000000 steps for one request; narrow down"
        assert all(reason in warning for warning in response["warnings"])

    async def test_an_object_that_is_nested_too_deeply_is_an_error(self, make):
        deep = b'{"a":' * (MOST_LEVELS + 10) + b"1" + b"}" * (MOST_LEVELS + 10)
        body = make.review(obj=make.thing(spec="deep")).replace(b'"deep"', deep)
        async with World(make.index(make.mutating())) as world:
            response = await ask(world, "/mutate/fail", body)
        assert "nested more deeply than" in response["status"]["message"]

    async def test_four_hundred_policies_are_applied_to_a_large_object(self, make):
        chosen = ({"names": ["one"]}, {"selector": {"matchLabels": {"a": "b"}}}, {})
        policies = [
            make.mutating(
                f"p{number}",
                resources={"kinds": ["ConfigMap"], **chosen[number % 3]},
                **labels(**{f"l{number}": "yes"}),
            )
            for number in range(400)
        ]
        obj = make.thing(metadata={"labels": {"a": "c"}}, data={"own": "x" * 1_000_000})
        async with World(make.index(*policies), largest=1 << 22, together=1 << 22) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=obj))
        found = changed(obj, response)["metadata"]["labels"]
        assert found == {"a": "c", **{f"l{number}": "yes" for number in range(2, 400, 3)}}
        # One patch operation sets all labels and leaves the rest of the object as it was.
        assert [item["path"] for item in patch_of(response)] == ["/metadata/labels"]


async def test_a_patch_whose_result_is_not_an_object_is_an_error(make):
    patch = '[{"op": "replace", "path": "/metadata/labels", "value": "x"}]'
    policy = make.mutating(
        rules=[{"name": "r", "mutate": {"patchesJson6902": patch}}, {"name": "s"}]
    )
    async with World(make.index(policy)) as world:
        body = make.review(obj=make.thing(metadata={"labels": LABEL}))
        response = await ask(world, "/mutate/fail", body)
    message = "the patch changes the object into something that is not an object"
    assert message in response["status"]["message"]


async def test_the_path_selects_the_policies(make):
    condition = [{"name": "all", "expression": "true"}]
    append = '[{"op": "add", "path": "/data/-", "value": "x"}]'
    index = make.index(
        make.mutating(
            "alone",
            spec={"webhookConfiguration": {"matchConditions": condition}},
            **labels(own="1"),
        ),
        make.mutating("lax", spec={"failurePolicy": "Ignore"}, **labels(lax="1")),
        make.mutating("shared", **labels(shared="1")),
        make.mutating(
            "once",
            rules=[
                {"name": "o", **labels(once="1")},
                {
                    "name": "p",
                    "mutate": {"patchesJson6902": append},
                    "preconditions": {"all": [{"key": "a", "operator": "Equals", "value": "b"}]},
                },
            ],
        ),
    )
    found = {}
    obj = make.thing()
    async with World(index) as world:
        for path in ("mutate/fail", "mutate/fail/alone", "mutate/ignore", "mutate-once/fail"):
            response = await ask(world, f"/at/{index.digest}/{path}", make.review(obj=obj))
            found[path] = list(changed(obj, response)["metadata"]["labels"])
    assert found == {
        "mutate/fail": ["shared"],
        "mutate/fail/alone": ["own"],
        "mutate/ignore": ["lax"],
        "mutate-once/fail": ["once"],
    }


@pytest.mark.parametrize("skips", [False, True])
async def test_writes_of_the_controller_are_changed_like_any_others(make, skips):
    mine = {"userInfo": {"username": "own", "groups": []}}
    policy = make.mutating(skipBackgroundRequests=skips)
    async with World(make.index(policy)) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=make.thing(), **mine))
    assert "patch" in response


async def test_a_deletion_is_allowed_without_a_patch(world, make):
    response = await ask(world, "/mutate/fail", make.review("DELETE", old=make.thing()))
    assert response == {"uid": response["uid"], "allowed": True}


async def test_an_object_without_a_name_yet_is_changed_too(world, make):
    obj = make.thing()
    del obj["metadata"]["name"]
    obj["metadata"]["generateName"] = "x-"
    response = await ask(world, "/mutate/fail", make.review(obj=obj))
    assert changed(obj, response)["metadata"]["labels"] == LABEL


async def test_a_policy_of_another_namespace_changes_nothing(make):
    async with World(make.index(make.mutating(namespace="b"))) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=make.thing()))
    assert "patch" not in response


def selecting(name: str, **wanted: str) -> Object:
    resources = {"kinds": ["ConfigMap"], "selector": {"matchLabels": wanted}}
    return {"name": name, "match": {"any": [{"resources": resources}]}}


async def test_rules_for_labels_that_earlier_rules_add_are_applied(make):
    gives = {"name": "gives", **labels(team="a")}
    takes = {**selecting("takes", team="a"), **labels(taken="{{ request.object.data.x }}")}
    last = {**selecting("last", taken="1"), **labels(last="yes")}
    obj = make.thing(data={"x": "1"})
    for rules, expected in (
        ([gives, takes, last], {"team": "a", "taken": "1", "last": "yes"}),
        ([last, takes, gives], {"team": "a"}),
    ):
        policy = make.mutating(rules=rules, spec={"emitWarning": True})
        async with World(make.index(policy)) as world:
            response = await ask(world, "/mutate/fail", make.review(obj=obj))
        assert changed(obj, response)["metadata"]["labels"] == expected
        assert len(response["warnings"]) == len(expected)


async def test_a_rule_that_depends_on_a_rule_found_during_mutation_succeeds(make):
    needs = {"patchStrategicMerge": {"data": {"y": "{{ request.object.data.x }}"}}}
    rules = [
        {"name": "gives", **labels(team="a")},
        {**selecting("takes", team="a"), "mutate": {"patchStrategicMerge": {"data": {"x": "1"}}}},
        {"name": "needs", "mutate": needs},
    ]
    obj = make.thing()
    async with World(make.index(make.mutating(rules=rules))) as world:
        response = await ask(world, "/mutate/fail", make.review(obj=obj))
    assert changed(obj, response)["data"] == {"x": "1", "y": "1"}


async def test_rules_for_other_labels_are_not_evaluated(make):
    policies = [
        make.mutating(f"p{number}", rules=[{**selecting("r", app=str(number)), **labels(x="y")}])
        for number in range(20)
    ]
    obj = make.thing(metadata={"labels": {"app": "7"}})
    async with World(make.index(*policies)) as world:
        with counted(RuleIndex.rules, Matcher.evaluate) as calls:
            response = await ask(world, "/mutate/fail", make.review(obj=obj))
    assert changed(obj, response)["metadata"]["labels"] == {"app": "7", "x": "y"}
    assert calls == {"rules": 1, "evaluate": 1}
