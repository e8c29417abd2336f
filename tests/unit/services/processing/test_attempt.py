import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import Object, policy_ref, ref_of
from reconciler.api.updaterequest import (
    Counts,
    Outcome,
    Reason,
    RequestStatus,
    State,
    TriggerRecord,
    UpdateRequest,
)
from reconciler.errors import Conflict, Denied, Forbidden, Invalid, Unavailable
from reconciler.installation import BESIDE
from reconciler.requests.lifecycle import MAX_TARGETS, Done, Fail, Retry, Skip, merge_targets
from reconciler.requests.redaction import HIDDEN, withheld
from reconciler.services.processing.attempt import DENIALS
from tests.unit.services.conftest import Make, World

APPEND = "- {op: add, path: /spec/list/-, value: x}"


@pytest.fixture
def target(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object("Secret", "s", spec={"list": []}))


@pytest.fixture
def trigger(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object(data={"v": "1"}))


@pytest.fixture
def attempt(world: World) -> Callable[[UpdateRequest], Awaitable[tuple[Any, UpdateRequest]]]:
    """Return a function that makes one attempt, and returns its end and the updated request."""

    async def run(request):
        ended = await world.processor.attempt(request, 0.0)
        if ended is None:
            return ended, request
        counts = ended.counts or Counts()
        targets = ended.targets or request.status.targets
        status = replace(
            request.status,
            attempts=request.status.attempts + 1,
            targets=targets,
            counts=replace(counts, failed=sum(t.outcome is not Outcome.PATCHED for t in targets)),
        )
        return ended, replace(request, status=status)

    return run


def outcomes(ended):
    return {item.ref.name: item.outcome for item in ended.targets}


async def test_a_trigger_changes_its_target(world, make, target, trigger, attempt):
    ended, _ = await attempt(await world.ask(world.install(make.policy()), trigger))
    assert ended.disposition == Done()
    assert (await world.read(target))["metadata"]["labels"] == {"done": "yes"}
    (result,) = ended.targets
    assert result.ref == ref_of(target)
    assert (result.version_before, result.version_after) == (
        target["metadata"]["resourceVersion"],
        (await world.read(target))["metadata"]["resourceVersion"],
    )


async def test_one_trigger_and_one_named_target_cost_two_reads_and_one_write(
    world, make, target, trigger, attempt
):
    await attempt(await world.ask(world.install(make.policy()), trigger))
    calls = world.wire.calls
    assert (calls["get"], calls["list"], calls["change"]) == (2, 0, 1)


async def test_a_target_that_the_settings_exclude_is_skipped_and_the_setting_named(
    world, make, target, trigger, attempt
):
    world.index.languages.installation = BESIDE
    world.processor = replace(world.processor, is_excluded=lambda key: key.name == "s")
    ended, _ = await attempt(await world.ask(world.install(make.policy()), trigger))
    (result,) = ended.targets
    assert (result.outcome, result.message) == (
        Outcome.SKIPPED,
        "resourceFilters in the ConfigMap kube-retrofit excludes it",
    )


class TestPolicy:
    async def test_a_request_of_a_deleted_policy_is_skipped(self, world, make, trigger, attempt):
        policy = world.install(make.policy())
        request = await world.ask(policy, trigger)
        world.remove(policy)
        world.forget("p")
        ended, _ = await attempt(request)
        assert ended.disposition == Skip(reason="PolicyGone", message="policy p was deleted")

    async def test_a_request_of_an_unknown_kind_of_policy_is_retried(
        self, world, make, trigger, attempt
    ):
        """A policy of the same name and another kind does not act for it."""
        policy = world.install(make.policy())
        request = await world.ask(policy, trigger)
        other = replace(policy_ref(policy), kind="ModRule")
        ended, _ = await attempt(replace(request, spec=replace(request.spec, policy=other)))
        assert (type(ended.disposition), ended.disposition.reason) == (Retry, Reason.NOT_FOUND)
        assert "ModRule of kyverno.io/v1 is not a kind of policy" in ended.disposition.message

    async def test_a_request_of_a_policy_that_was_recreated_is_skipped(
        self, world, make, trigger, attempt
    ):
        policy = world.install(make.policy())
        request = await world.ask(policy, trigger)
        world.remove(policy)
        world.install(make.policy())
        ended, _ = await attempt(request)
        assert (ended.disposition.reason, type(ended.disposition)) == ("PolicyGone", Skip)

    async def test_a_recreated_policy_that_the_index_does_not_have_yet_is_applied(
        self, world, make, trigger, target, attempt
    ):
        old = world.install(make.policy(patch={"metadata": {"labels": {"old": "yes"}}}))
        world.remove(old)
        new = world.cluster.add(make.policy())
        ended, _ = await attempt(await world.ask(new, trigger))
        assert ended.disposition == Done()
        assert (await world.read(target))["metadata"]["labels"] == {"done": "yes"}

    async def test_a_policy_that_the_index_does_not_have_yet_is_read_live(
        self, world, make, trigger, target, attempt
    ):
        policy = world.cluster.add(make.policy())
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition == Done()

    async def test_a_request_of_a_removed_rule_is_skipped(self, world, make, trigger, attempt):
        policy = world.install(make.policy())
        ended, _ = await attempt(await world.ask(policy, trigger, rule="gone"))
        assert ended.disposition.reason == "RuleGone"
        assert isinstance(ended.disposition, Skip)

    async def test_the_newest_generation_of_the_policy_is_applied(
        self, world, make, trigger, target, attempt
    ):
        policy = world.install(make.policy())
        request = await world.ask(policy, trigger)
        newer = make.policy(patch={"metadata": {"labels": {"newer": "yes"}}})
        edited = await world.edit(policy, spec=newer["spec"])
        world.index.apply(edited)
        await attempt(request)
        assert (await world.read(target))["metadata"]["labels"] == {"newer": "yes"}

    async def test_a_newer_generation_than_the_indexed_one_is_read_live(
        self, world, make, trigger, target, attempt
    ):
        policy = world.install(make.policy())
        newer = make.policy(patch={"metadata": {"labels": {"newer": "yes"}}})
        edited = await world.edit(policy, spec=newer["spec"])
        await attempt(await world.ask(edited, trigger))
        assert (await world.read(target))["metadata"]["labels"] == {"newer": "yes"}

    async def test_an_invalid_policy_fails_the_request_with_the_location(
        self, world, make, trigger, attempt
    ):
        policy = make.policy(targets=[{"apiVersion": "v1", "name": "x"}])
        stored = world.cluster.add(policy)
        ended, _ = await attempt(await world.ask(stored, trigger))
        assert ended.disposition.reason == "InvalidPolicy"
        assert "spec.rules[0].mutate.targets[0].kind" in ended.disposition.message

    async def test_a_policy_that_cannot_be_read_is_tried_again(
        self, world, make, trigger, attempt
    ):
        policy = world.cluster.add(make.policy())
        world.cluster.forbid("get", "clusterpolicies.kyverno.io")
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert isinstance(ended.disposition, Retry)
        assert ended.disposition.missing_permission == "get clusterpolicies.kyverno.io"


class TestTrigger:
    @pytest.fixture
    def policy(self, world: World, make: type[Make]) -> Object:
        return world.install(make.policy())

    async def test_a_trigger_that_is_not_stored_yet_is_unconfirmed(
        self, world, make, policy, attempt
    ):
        absent = make.object()
        absent["metadata"]["uid"] = "u"
        ended, _ = await attempt(await world.ask(policy, absent))
        assert ended is None

    async def test_a_request_of_a_deleted_trigger_is_skipped(
        self, world, policy, trigger, attempt
    ):
        request = await world.ask(policy, trigger, operation="UPDATE")
        world.remove(trigger)
        ended, _ = await attempt(request)
        uid = trigger["metadata"]["uid"]
        message = (
            f"ConfigMap a/c with uid {uid} is gone: it was deleted before this request was done"
        )
        assert ended.disposition == Skip(reason="TriggerGone", message=message)

    async def test_a_trigger_that_no_longer_matches_is_skipped(
        self, world, make, trigger, attempt
    ):
        condition = {"all": [{"key": "{{ request.object.data.v }}", "operator": "Equals"}]}
        condition["all"][0]["value"] = "1"
        policy = world.install(make.policy("q", preconditions=condition))
        request = await world.ask(policy, trigger)
        await world.edit(trigger, data={"v": "2"})
        ended, _ = await attempt(request)
        assert isinstance(ended.disposition, Skip)
        assert ended.disposition.reason == "NoMatch"
        assert "preconditions not met" in ended.disposition.message

    async def test_a_trigger_that_cannot_be_read_is_tried_again(
        self, world, policy, trigger, attempt
    ):
        def down(_verb, _kind):
            raise Unavailable("no answer")

        world.wire.before_read = down
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition == Retry(reason="Failed", message="no answer", retry_after=1.0)

    async def test_backoff_grows_with_the_attempts(self, world, policy, trigger, attempt):
        def down(_verb, _kind):
            raise Unavailable("no answer")

        world.wire.before_read = down
        request = await world.ask(policy, trigger)
        pauses = []
        for _ in range(4):
            ended, request = await attempt(request)
            pauses.append(ended.disposition.retry_after)
        assert pauses == [1.0, 2.0, 4.0, 8.0]

    async def test_on_delete_the_recorded_object_is_read(self, world, make, target, attempt):
        policy = world.install(
            make.policy(
                "del",
                resources={"operations": ["DELETE"]},
                patch={"metadata": {"labels": {"was": "{{ request.object.data.v }}"}}},
            )
        )
        deleted = make.object(data={"v": "kept"})
        deleted["metadata"]["uid"] = "u"
        ended, _ = await attempt(
            await world.ask(policy, deleted, operation="DELETE", recorded={"object": deleted})
        )
        assert ended.disposition == Done()
        assert (await world.read(target))["metadata"]["labels"] == {"was": "kept"}

    async def test_on_update_the_resource_version_is_the_recorded_one(
        self, world, make, target, trigger, attempt
    ):
        label = {"seen": "v{{ request.object.metadata.resourceVersion }}"}
        policy = world.install(make.policy("rv", patch={"metadata": {"labels": label}}))
        carried = trigger["metadata"]["resourceVersion"]
        await world.edit(trigger, data={"v": "2"})
        record = TriggerRecord(resource_version=carried)
        await attempt(await world.ask(policy, trigger, operation="UPDATE", record=record))
        assert (await world.read(target))["metadata"]["labels"] == {"seen": f"v{carried}"}

    async def test_the_old_object_is_the_recorded_one(self, world, make, target, trigger, attempt):
        label = {"was": "{{ request.oldObject.data.v }}"}
        policy = world.install(make.policy("old", patch={"metadata": {"labels": label}}))
        request = await world.ask(
            policy, trigger, operation="UPDATE", recorded={"oldObject": {"data": {"v": "0"}}}
        )
        await attempt(request)
        assert (await world.read(target))["metadata"]["labels"] == {"was": "0"}

    async def test_a_subresource_is_taken_from_the_record_and_matched_by_its_parent(
        self, world, make, target, attempt
    ):
        policy = world.install(
            make.policy(
                "bind",
                kinds=("Pod/binding",),
                patch={"metadata": {"labels": {"node": "{{ request.object.target.name }}"}}},
            )
        )
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "pod", "namespace": "a"},
            "target": {"name": "n1"},
        }
        request = await world.ask(
            policy,
            binding,
            record=TriggerRecord(subresource="binding"),
            recorded={"object": binding},
            request={"resource": {"group": "", "version": "v1", "resource": "pods"}},
        )
        ended, _ = await attempt(request)
        assert ended.disposition == Done()
        assert (await world.read(target))["metadata"]["labels"] == {"node": "n1"}

    async def test_an_object_recorded_in_a_secret_is_read_from_it(
        self, world, make, target, attempt
    ):
        policy = world.install(
            make.policy(
                "hidden",
                kinds=("Secret",),
                resources={"operations": ["DELETE"]},
                patch={"metadata": {"labels": {"was": "{{ request.object.data.k }}"}}},
            )
        )
        gone = make.object("Secret", "gone")
        gone["metadata"]["uid"] = "u"
        recorded = b'{"object": {"metadata": {"name": "gone"}, "data": {"k": "djE"}}}'
        await world.requests.create_recorded("ur-1", {}, recorded)
        request = await world.ask(
            policy, gone, operation="DELETE", recorded_secret="ur-1-recorded"
        )
        ended, _ = await attempt(request)
        assert ended.disposition == Done()
        assert (await world.read(target))["metadata"]["labels"] == {"was": "djE"}

    async def test_a_missing_secret_with_recorded_objects_fails_the_request(
        self, world, policy, trigger, attempt
    ):
        request = await world.ask(policy, trigger, recorded_secret="ur-1-recorded")
        ended, _ = await attempt(request)
        assert isinstance(ended.disposition, Fail)
        assert ended.disposition.reason == "RecordGone"
        assert "ur-1-recorded" in ended.disposition.message

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ({"recorded": {"object": 7}}, "spec.recorded.object is a JSON number"),
            ({"recorded": {"object": {"metadata": {"labels": [1]}}}}, "metadata.labels is a JSON"),
            ({"request": {"resource": "pods"}}, "admissionRequest.resource is a JSON string"),
        ],
    )
    async def test_a_malformed_request_fails_with_the_location_of_the_fault(
        self, world, make, spec, words
    ):
        policy = world.install(make.policy(resources={"operations": ["DELETE"]}))
        await world.ask(policy, make.object(), operation="DELETE", **spec)
        ended = await world.processor.attempt(await world.requests.get("ur-1"), 0.0)
        assert ended.disposition.reason == "MalformedRequest"
        assert words in ended.disposition.message

    async def test_namespace_labels_are_read_if_the_rule_needs_them(
        self, world, make, target, trigger, attempt
    ):
        selector = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
        policy = world.install(make.policy("ns", resources=selector))
        world.cluster.add(make.object("Namespace", "a", "", labels={"env": "prod"}))
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition == Done()
        assert world.wire.calls["get Namespace a"] == 1

    async def test_a_match_that_cannot_be_decided_fails_the_request(
        self, world, make, target, trigger, attempt
    ):
        policy = make.policy("roles", spec={"background": False})
        policy["spec"]["rules"][0]["match"]["any"][0]["clusterRoles"] = ["admin"]
        stored = world.install(policy)
        user = {"userInfo": {"username": "jane", "groups": []}}
        ended, _ = await attempt(await world.ask(stored, trigger, user=user))
        assert isinstance(ended.disposition, Fail)
        assert "the roles of the user are not known" in ended.disposition.message


class TestTargets:
    async def test_a_rule_without_any_matching_target_is_not_a_failure(
        self, world, make, trigger, attempt
    ):
        policy = world.install(make.policy(targets=[make.target("none-*")]))
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition == Done(message="no object matches the targets of the rule")

    async def test_an_absent_target_given_by_name_is_a_final_failure(
        self, world, make, trigger, attempt
    ):
        policy = world.install(make.policy())
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition == Fail(reason="TargetNotFound", message="Secret a/s: not found")

    async def test_a_target_that_resolves_to_nothing_fails_and_the_others_are_changed(
        self, world, make, target, trigger, attempt
    ):
        empty = make.target("{{ request.object.data.name || '' }}")
        policy = world.install(make.policy(targets=[empty, make.target()]))
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert isinstance(ended.disposition, Fail)
        assert ended.disposition.reason == "TargetUnresolved"
        assert "spec.rules[0].mutate.targets[0].name" in ended.disposition.message
        assert outcomes(ended) == {"s": Outcome.PATCHED}

    async def test_an_error_of_the_rule_is_final(self, world, make, target, trigger, attempt):
        policy = world.install(
            make.policy(patch={"metadata": {"labels": {"x": "{{ request.object.data.no }}"}}})
        )
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert isinstance(ended.disposition, Fail)
        assert ended.disposition.reason == "TargetFailed"
        assert "request.object.data.no" in ended.disposition.message

    async def test_an_error_of_a_precondition_of_the_rule_is_final(
        self, world, make, target, trigger, attempt
    ):
        key = "{{ request.object.data.no }}"
        condition = {"all": [{"key": key, "operator": "Equals", "value": "1"}]}
        policy = world.install(make.policy(preconditions=condition))
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert isinstance(ended.disposition, Fail)
        assert ended.disposition.reason == "EvaluationFailed"

    async def test_a_missing_right_is_recorded_and_the_request_is_tried_again(
        self, world, make, target, trigger, attempt
    ):
        policy = world.install(make.policy())
        for verb in ("patch", "update"):
            world.cluster.forbid(verb, "secrets")
        ended, parked = await attempt(await world.ask(policy, trigger))
        assert isinstance(ended.disposition, Retry)
        assert "secrets" in ended.disposition.missing_permission
        world.cluster.permit("patch", "secrets")
        again, _ = await attempt(parked)
        assert again.disposition == Done()

    async def test_a_missing_right_takes_precedence_over_other_reasons(
        self, world, make, trigger, attempt
    ):
        for name in ("s", "t"):
            world.cluster.add(make.object("Secret", name))
        policy = world.install(make.policy(targets=[make.target(), make.target("t")]))

        def refuse(before, _after):
            if before["metadata"]["name"] == "s":
                raise Forbidden("no", permission="patch secrets in namespace a")
            raise Conflict("modified")

        world.wire.before_change = refuse
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition.reason == "Forbidden"
        assert ended.disposition.missing_permission == "patch secrets in namespace a"

    async def test_targets_that_succeeded_are_not_repeated(self, world, make, trigger, attempt):
        for name in ("s", "t"):
            world.cluster.add(make.object("Secret", name, spec={"list": []}))
        policy = world.install(
            make.policy(targets=[make.target("s"), make.target("t")], json=APPEND)
        )

        def refuse(before, _after):
            if before["metadata"]["name"] == "t":
                raise Unavailable("down")

        world.wire.before_change = refuse
        ended, parked = await attempt(await world.ask(policy, trigger))
        assert outcomes(ended) == {"s": Outcome.PATCHED, "t": Outcome.FAILED}
        world.wire.before_change = lambda *_: None
        world.wire.calls.clear()
        again, _ = await attempt(parked)
        assert again.disposition == Done()
        assert outcomes(again) == {"s": Outcome.PATCHED, "t": Outcome.PATCHED}
        assert not world.wire.calls["get Secret s"]
        assert (await world.read(make.object("Secret", "s")))["spec"]["list"] == ["x"]

    async def test_a_target_that_could_not_be_listed_is_processed_later(
        self, world, make, trigger, attempt
    ):
        for name in ("s", "t"):
            world.cluster.add(make.object("Secret", name))
        world.cluster.add(make.object("Pod", "pod"))
        pods = {"apiVersion": "v1", "kind": "Pod", "namespace": "a"}
        policy = world.install(make.policy(targets=[make.target("s"), make.target("t"), pods]))
        world.cluster.forbid("list", "pods")

        def refuse(before, _after):
            if before["metadata"]["name"] == "t":
                raise Unavailable("down")

        world.wire.before_change = refuse
        ended, parked = await attempt(await world.ask(policy, trigger))
        assert ended.disposition.missing_permission == "list pods in namespace a"
        world.wire.before_change = lambda *_: None
        world.cluster.permit("list", "pods")
        again, _ = await attempt(parked)
        assert again.disposition == Done()
        assert outcomes(again) == dict.fromkeys(("s", "t", "pod"), Outcome.PATCHED)

    async def test_a_target_that_failed_and_vanished_is_skipped(
        self, world, make, trigger, attempt
    ):
        stored = world.cluster.add(make.object("Secret", "s1"))
        policy = world.install(make.policy(targets=[make.target("s*")]))

        def down(_before, _after):
            raise Unavailable("down")

        world.wire.before_change = down
        _, parked = await attempt(await world.ask(policy, trigger))
        world.remove(stored)
        ended, _ = await attempt(parked)
        assert isinstance(ended.disposition, Done)
        assert outcomes(ended) == {"s1": Outcome.SKIPPED}

    async def test_a_change_that_is_refused_for_its_content_is_a_final_failure(
        self, world, make, target, trigger, attempt
    ):
        def refuse(_before, _after):
            raise Invalid("spec.x: no", status=422)

        world.wire.before_change = refuse
        policy = world.install(make.policy())
        ended, _ = await attempt(await world.ask(policy, trigger))
        reported = f"Secret a/s: {withheld(Invalid.kind_of_failure)}"
        assert ended.disposition == Fail(reason="TargetInvalid", message=reported)

    async def test_denials_of_another_webhook_are_limited(
        self, world, make, target, trigger, attempt
    ):
        def refuse(_before, _after):
            raise Denied("quota", status=403)

        world.wire.before_change = refuse
        request = await world.ask(world.install(make.policy()), trigger)
        for _ in range(DENIALS - 1):
            ended, request = await attempt(request)
            assert isinstance(ended.disposition, Retry)
            assert ended.disposition.retry_after >= 10
        ended, _ = await attempt(request)
        reported = f"Secret a/s: {withheld(Denied.kind_of_failure)}"
        assert ended.disposition == Fail(reason="TargetDenied", message=reported)

    @pytest.mark.parametrize("invalid", [0, MAX_TARGETS])
    async def test_denied_targets_that_the_status_does_not_list_are_not_retried_for_ever(
        self, world, make, trigger, invalid
    ):
        for number in range(MAX_TARGETS + 1):
            world.cluster.add(make.object("Secret", f"s{number:03}"))

        def refuse(before, _after):
            number = int(before["metadata"]["name"][1:])
            raise Invalid("no", status=422) if number < invalid else Denied("no", status=403)

        world.wire.before_change = refuse
        policy = world.install(make.policy(targets=[make.target("*")]))
        await world.ask(policy, trigger)
        await world.dispatcher.resync()
        for _ in range(DENIALS + 1):
            await world.settle()
            world.clock.tick(3600)
        status = await world.status()
        assert (status.state, status.attempts) == (State.FAILED, DENIALS)
        assert status.counts.failed == MAX_TARGETS + 1

    async def test_two_target_entries_that_select_one_object_make_one_result(
        self, world, make, target, trigger, attempt
    ):
        policy = world.install(make.policy(targets=[make.target(), make.target("*")]))
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert outcomes(ended) == {"s": Outcome.PATCHED}
        assert ended.disposition == Done()

    async def test_many_failures_are_counted_in_one_line(self, world, make, trigger, attempt):
        for number in range(4):
            world.cluster.add(make.object("Secret", f"s{number}"))

        def refuse(_before, _after):
            raise Invalid("no", status=422)

        world.wire.before_change = refuse
        policy = world.install(make.policy(targets=[make.target("*")]))
        ended, _ = await attempt(await world.ask(policy, trigger))
        reported = f"Secret a/s0: {withheld(Invalid.kind_of_failure)} (and 3 more)"
        assert ended.disposition.message == reported

    @pytest.mark.parametrize(
        "where",
        [
            {"namespace": "a", "selector": {"matchLabels": {"app": "x"}}},
            {"namespace": "a", "name": "t*"},
            {"name": "target", "namespace": "*"},
            {"namespace": "a"},
        ],
    )
    async def test_a_listed_target_that_is_deleted_meanwhile_is_not_a_failure(
        self, world, make, trigger, attempt, where
    ):
        for name in ("stays", "target"):
            world.cluster.add(make.object("Pod", name, labels={"app": "x"}))
        policy = world.install(make.policy(targets=[{"apiVersion": "v1", "kind": "Pod", **where}]))

        def restart(before, _after):
            if before["metadata"]["name"] == "target":
                world.remove(make.object("Pod", "target"))

        world.wire.before_change = restart
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition == Done()
        assert outcomes(ended)["target"] is Outcome.SKIPPED
        assert "was deleted" in next(
            item.message for item in ended.targets if item.ref.name == "target"
        )
        assert outcomes(ended).get("stays", Outcome.PATCHED) is Outcome.PATCHED
        assert not world.wire.calls["get Pod target"]

    async def test_a_target_that_is_both_named_and_selected_must_exist(
        self, world, make, trigger, attempt
    ):
        world.cluster.add(make.object("Pod", "target"))
        pods = {"apiVersion": "v1", "kind": "Pod", "namespace": "a"}
        policy = world.install(make.policy(targets=[pods, {**pods, "name": "target"}]))
        world.wire.before_change = lambda before, _after: world.remove(before)
        ended, _ = await attempt(await world.ask(policy, trigger))
        assert ended.disposition.reason == "TargetNotFound"


class TestHiddenNames:
    """A target whose name is made of a Secret has no name in the status until it was read."""

    @pytest.fixture
    def ask(self, world: World, make: type[Make]) -> Callable[..., Awaitable[UpdateRequest]]:
        """Return a function that stores a request with targets named by keys of a Secret."""

        async def run(**names):
            targets = [
                {**make.target(f"{{{{ request.object.data.{key} }}}}"), "kind": "ConfigMap"}
                for key in names
            ]
            policy = world.install(make.policy(targets=targets, kinds=("Secret",)))
            trigger = world.cluster.add(make.object("Secret", "s", data=names))
            return await world.ask(policy, trigger)

        return run

    async def test_the_worse_of_two_results_under_a_hidden_name_is_shown(
        self, world, make, ask, attempt
    ):
        world.cluster.add(make.object(name="excluded"))
        world.processor = replace(world.processor, is_excluded=lambda key: key.name == "excluded")
        ended, _ = await attempt(await ask(first="absent", second="excluded"))
        assert outcomes(ended) == {HIDDEN: Outcome.NOT_FOUND}
        assert ended.disposition.reason == "TargetNotFound"

    async def test_a_result_under_a_hidden_name_is_replaced_by_one_with_a_name(
        self, world, make, ask, attempt
    ):
        world.cluster.add(make.object(name="target"))

        def refuse(verb, kind):
            if (verb, kind) == ("get", "ConfigMap"):
                raise Forbidden("no", permission="get configmaps in namespace a")

        world.wire.before_read = refuse
        ended, request = await attempt(await ask(first="target"))
        assert outcomes(ended) == {HIDDEN: Outcome.FORBIDDEN}
        world.wire.before_read = lambda *_: None
        ended, _ = await attempt(request)
        assert outcomes(ended) == {"target": Outcome.PATCHED}
        assert ended.disposition == Done()


async def test_a_failed_target_that_is_no_longer_selected_is_skipped(
    world, make, trigger, attempt
):
    for name in ("gone", "stays"):
        world.cluster.add(make.object("Secret", name))

    def refuse(before, _after):
        if before["metadata"]["name"] == "gone":
            raise Denied("no", status=403)

    world.wire.before_change = refuse
    policy = world.install(make.policy(targets=[make.target("*")]))
    _, request = await attempt(await world.ask(policy, trigger))
    world.remove(make.object("Secret", "gone"))
    ended, _ = await attempt(request)
    assert outcomes(ended) == {"gone": Outcome.SKIPPED, "stays": Outcome.PATCHED}
    assert ended.disposition == Done()


async def test_only_the_rule_that_the_request_names_runs(world, make, trigger, attempt):
    first = make.policy(patch={"metadata": {"labels": {"first": "yes"}}})
    second = make.policy(patch={"metadata": {"labels": {"second": "yes"}}})["spec"]["rules"][0]
    first["spec"]["rules"].append({**second, "name": "other"})
    target = world.cluster.add(make.object("Secret", "s"))
    await attempt(await world.ask(world.install(first), trigger, rule="other"))
    assert (await world.read(target))["metadata"]["labels"] == {"second": "yes"}


async def test_requests_for_one_target_are_processed_together(world, make, target):
    policy = world.install(
        make.policy(patch={"metadata": {"labels": {"{{ request.object.metadata.name }}": "yes"}}})
    )
    requests = []
    for number in range(30):
        trigger = world.cluster.add(make.object(name=f"c{number}"))
        requests.append(await world.ask(policy, trigger, name=f"ur-{number}"))
    ended = await asyncio.gather(*(world.processor.attempt(item, 0.0) for item in requests))
    assert {item.disposition for item in ended} == {Done()}
    assert len((await world.read(target))["metadata"]["labels"]) == 30
    assert world.wire.calls["change"] < 5


def test_a_first_attempt_without_targets_has_no_results():
    assert merge_targets(RequestStatus().targets, []) == ()
