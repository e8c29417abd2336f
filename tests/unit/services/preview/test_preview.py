"""Previews on an in-memory cluster: their changes and required rights; they write nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from reconciler.api.meta import ANNOTATION_EXISTING
from reconciler.api.updaterequest import Outcome
from reconciler.dialects.registry import compile_policy
from reconciler.errors import Conflict, Denied, Forbidden, Gone, Unreadable
from reconciler.requests.redaction import withheld
from reconciler.services.catalog.exceptions import ExceptionIndex, ExceptionSettings
from reconciler.services.preview.dryrun import DryRun
from reconciler.services.preview.preview import (
    Occasion,
    Preview,
    preview_over,
)
from tests.filters import parse_filters
from tests.unit.services.conftest import World

UPDATE = Occasion(operation="UPDATE")
OWN = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "namespace": "{{ request.namespace }}",
    "name": "{{ request.object.metadata.name }}",
}


class Seen:
    """All chunks that a preview yields, merged."""

    def __init__(self, chunks):
        self.chunks = chunks
        self.read = sum(chunk.read for chunk in chunks)
        self.failures = [chunk.failure for chunk in chunks if chunk.failure]
        self.all = [seen for chunk in chunks for seen in chunk.seen]
        self.unmet = [seen.unmet for seen in self.all if seen.unmet]
        self.errors = [error for seen in self.all for error in seen.errors]
        self.touches = [touch for seen in self.all for touch in seen.touches]

    @property
    def outcomes(self):
        return [touch.outcome for touch in self.touches]

    @property
    def writes(self):
        return {key[3]: write for chunk in self.chunks for key, write in chunk.writes.items()}


@pytest.fixture
def open_preview(world: World) -> Callable[..., Preview]:
    def open_preview(server=None, parallel=64, exceptions=None, filters=None):
        return preview_over(
            kinds=world.cluster,
            keys=world.cluster,
            reader=world.wire,
            loader=world.loader,
            policies=world.policies,
            requests=world.requests,
            server=server,
            exceptions=exceptions or ExceptionIndex(),
            filters=filters,
            clock=world.clock,
            randbelow=lambda limit: limit - 1,
            parallel=parallel,
        )

    return open_preview


@pytest.fixture
def see(open_preview: Callable[..., Preview]) -> Callable[..., Awaitable[Seen]]:
    """Return a function that previews the first rule of a policy."""

    async def see(policy, occasion=UPDATE, preview=None, **options):
        preview = preview or open_preview(**options)
        (program, *_) = compile_policy(policy).programs
        return Seen([chunk async for chunk in preview.walk(program, occasion)])

    return see


async def test_a_preview_reports_the_writes_and_writes_nothing(world, make, see):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s"))
    writes = world.cluster.writes
    seen = await see(make.policy())
    assert seen.outcomes == [Outcome.PATCHED]
    assert seen.writes["s"].after["metadata"]["labels"] == {"done": "yes"}
    assert "labels" not in seen.writes["s"].before["metadata"]
    assert world.cluster.writes == writes
    assert world.wire.calls["change"] == 0


async def test_a_second_trigger_sees_the_changes_of_the_first(world, make, see):
    for name in ("a", "b", "c"):
        world.cluster.add(make.object(name=name))
    world.cluster.add(make.object("Secret", "s"))
    seen = await see(make.policy(), parallel=1)
    assert seen.outcomes == [Outcome.PATCHED, Outcome.UNCHANGED, Outcome.UNCHANGED]
    assert world.wire.calls["get Secret s"] == 1


async def test_triggers_that_the_settings_exclude_are_reported_as_unmet(world, make, see):
    for namespace in ("a", "kube-system"):
        world.cluster.add(make.object(namespace=namespace))
    world.cluster.add(make.object("Secret", "s"))
    filters = parse_filters(resources="[*/*,kube-system,*]")
    seen = await see(make.policy(), filters=filters)
    reasons = [(item.trigger["metadata"]["namespace"], item.unmet) for item in seen.all]
    assert reasons == [
        ("a", ""),
        ("kube-system", "filtered by resourceFilters [*/*,kube-system,*]"),
    ]
    assert len(seen.touches) == 1
    filters = parse_filters(exclude_usernames="robot-*")
    sender = {"userInfo": {"username": "robot-1"}}
    seen = await see(make.policy(), Occasion(operation="UPDATE", user=sender), filters=filters)
    assert {item.unmet for item in seen.all} == {"excludeUsernames excludes the sender"}


async def test_a_later_rule_sees_the_changes_of_an_earlier_one(world, make, see, open_preview):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s", labels={"old": "yes"}))
    preview = open_preview()
    await see(make.policy(), preview=preview)
    later = {"metadata": {"labels": {"+(done)": "no", "more": "yes"}}}
    seen = await see(make.policy(patch=later), preview=preview)
    labels = {"old": "yes", "done": "yes", "more": "yes"}
    assert seen.writes["s"].after["metadata"]["labels"] == labels


async def test_triggers_are_listed_in_pages_and_counted(world, make, see, open_preview):
    for number in range(7):
        world.cluster.add(make.object(name=f"c{number}"))
    world.cluster.add(make.object("Secret", "s"))
    preview = open_preview(parallel=2)
    preview = replace(preview, lister=replace(preview.lister, page=3))
    seen = await see(make.policy(), preview=preview)
    assert seen.read == 7
    assert world.wire.calls["list"] == 3
    assert [chunk.left for chunk in seen.chunks][-1] == 0
    assert max(chunk.read for chunk in seen.chunks) == 2


async def test_a_list_that_expires_is_continued_where_it_was(world, make, see, open_preview):
    for number in range(6):
        world.cluster.add(make.object(name=f"c{number}"))
    world.cluster.add(make.object("Secret", "s"))
    preview = open_preview()
    preview = replace(preview, lister=replace(preview.lister, page=2))

    def expire(verb, kind):
        if (verb, kind) == ("list", "ConfigMap") and world.wire.calls["list"] == 2:
            raise Gone("too old", status=410)

    world.wire.before_read = expire
    seen = await see(make.policy(), preview=preview)
    names = [item.trigger["metadata"]["name"] for item in seen.all]
    assert names == [f"c{number}" for number in range(6)]
    assert seen.failures == []


async def test_a_list_that_always_expires_is_reported_as_a_failure(world, make, see):
    world.cluster.add(make.object(name="a"))

    def expire(verb, _kind):
        raise Gone(f"{verb}: too old", status=410)

    world.wire.before_read = expire
    assert (await see(make.policy())).failures == ["list: too old"]


async def test_a_missing_right_is_reported_and_the_rest_is_previewed(
    world, make, see, open_preview
):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s"))
    world.cluster.forbid("list", "configmaps")
    preview = open_preview()
    seen = await see(make.policy(kinds=("ConfigMap", "Secret")), preview=preview)
    assert len(seen.failures) == 1
    assert seen.outcomes == [Outcome.PATCHED]
    assert preview.cluster.permissions == {"list configmaps"}


async def test_a_target_that_may_not_be_read_is_not_a_refusal(world, make, see, open_preview):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s"))
    world.cluster.forbid("get", "secrets")
    preview = open_preview(server=world.cluster)
    seen = await see(make.policy(), preview=preview)
    (touch,) = seen.touches
    assert (touch.outcome, touch.refused) == (Outcome.FORBIDDEN, False)
    assert preview.cluster.permissions == {"get secrets in namespace a"}


async def test_a_change_that_the_server_refuses_is_reported_and_not_kept(
    world, make, see, open_preview, refuse
):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s"))
    world.wire.before_change = refuse(Denied("denied by somebody"), lambda _: True)
    preview = open_preview(server=world.wire)
    seen = await see(make.policy(), preview=preview)
    (touch,) = seen.touches
    assert (touch.outcome, touch.refused) == (Outcome.DENIED, True)
    assert touch.message == withheld(Denied.kind_of_failure)
    assert seen.writes == {}
    again = await see(make.policy(), preview=preview)
    assert again.outcomes == [Outcome.DENIED]


async def test_after_a_conflict_the_object_is_read_again(world, make, see, open_preview):
    world.cluster.add(make.object(name="a"))
    stored = world.cluster.add(make.object("Secret", "s"))
    changes = []

    def meanwhile(_before, _after):
        if not changes:
            changes.append(1)
            return world.edit(stored, labels={"meanwhile": "yes"})
        return None

    world.wire.before_change = meanwhile
    seen = await see(make.policy(), preview=open_preview(server=world.wire))
    assert seen.outcomes == [Outcome.PATCHED]
    assert seen.writes["s"].before["metadata"]["labels"] == {"meanwhile": "yes"}


async def test_a_marker_of_the_controller_is_not_part_of_a_change(world, make, see):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s", data={"list": []}))
    policy = make.policy(json="- {op: add, path: /data/list/-, value: x}")
    seen = await see(policy)
    assert seen.writes["s"].repeats
    assert "annotations" not in seen.writes["s"].after["metadata"]


async def test_an_object_that_two_filters_match_triggers_once(world, make, see):
    world.cluster.add(make.object(name="a", labels={"x": "1"}))
    policy = make.policy()
    filters = policy["spec"]["rules"][0]["match"]["any"]
    filters.append(
        {"resources": {"kinds": ["ConfigMap"], "selector": {"matchLabels": {"x": "1"}}}}
    )
    seen = await see(policy)
    assert [item.trigger["metadata"]["name"] for item in seen.all] == ["a"]


async def test_only_triggers_of_the_given_namespace_are_previewed(world, make, see):
    for namespace in ("a", "b"):
        world.cluster.add(make.object(namespace=namespace))
    seen = await see(make.policy(targets=[OWN]), replace(UPDATE, namespace="b"))
    assert [touch.target[2] for touch in seen.touches] == ["b"]


async def test_a_precondition_that_does_not_hold_is_reported(world, make, see):
    world.cluster.add(make.object(name="a"))
    wanted = {"all": [{"key": "{{ request.operation }}", "operator": "Equals", "value": "CREATE"}]}
    policy = make.policy(preconditions=wanted)
    assert (await see(policy)).unmet != []
    assert (await see(policy, Occasion(operation="CREATE"))).unmet == []


async def test_a_missing_target_is_reported_at_once(world, make, see):
    world.cluster.add(make.object(name="a"))
    seen = await asyncio.wait_for(see(make.policy()), 5)
    assert seen.outcomes == [Outcome.NOT_FOUND]


async def test_a_target_that_does_not_resolve_is_an_error_of_its_trigger(world, make, see):
    world.cluster.add(make.object(name="a"))
    unresolved = {"name": "{{ request.object.data.none }}"}
    seen = await see(make.policy(targets=[make.target(**unresolved)]))
    assert len(seen.errors) == 1
    assert "none" in seen.errors[0]


async def test_the_given_user_is_the_user_of_the_request(world, make, see):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s"))
    policy = make.policy(patch={"metadata": {"labels": {"by": "{{ request.userInfo.username }}"}}})
    policy["spec"]["background"] = False
    user = {"userInfo": {"username": "eve"}, "roles": [], "clusterRoles": []}
    seen = await see(policy, replace(UPDATE, user=user))
    assert seen.writes["s"].after["metadata"]["labels"] == {"by": "eve"}


async def test_an_exception_keeps_a_rule_from_its_trigger(world, make, see):
    for name in ("a", "b"):
        world.cluster.add(make.object(name=name, data={"frozen": name}))
    world.cluster.add(make.object("Secret", "s"))
    exceptions = ExceptionIndex(exception_settings=ExceptionSettings(enabled=True, namespaces="*"))
    # The condition reads a field that a request would not record, and a preview has.
    condition = {"key": "{{ request.object.data.frozen }}", "operator": "Equals", "value": "a"}
    taken = exceptions.on_event(
        "ADDED",
        {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "a"},
            "spec": {
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "conditions": {"all": [condition]},
                "exceptions": [{"policyName": "p", "ruleNames": ["r"]}],
            },
        },
    )
    assert taken.problem == ""
    seen = await see(make.policy(), exceptions=exceptions)
    assert seen.outcomes == [Outcome.PATCHED]
    (unmet,) = seen.unmet
    assert "a/e" in unmet


async def test_with_apply_rules_one_a_later_rule_does_not_apply_after_the_first(
    world, make, open_preview
):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s"))
    policy = make.policy(spec={"applyRules": "One"})
    (rule,) = policy["spec"]["rules"]
    policy["spec"]["rules"].append({**rule, "name": "second"})
    preview = open_preview()
    first, second = compile_policy(policy).programs
    assert Seen([chunk async for chunk in preview.walk(first, UPDATE)]).unmet == []
    (unmet,) = Seen([chunk async for chunk in preview.walk(second, UPDATE)]).unmet
    assert "applyRules: One" in unmet


async def test_kinds_that_cannot_be_listed_are_reported(world, make, open_preview):
    policy = make.policy(kinds=("Pod/binding", "None", "ConfigMap"))
    (program,) = compile_policy(policy).programs
    notes = await open_preview().unseen(program, UPDATE)
    assert [note.partition(":")[0] for note in notes] == ["Pod/binding", "None"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
async def test_a_rule_for_an_operation_is_previewed_only_if_an_operation_is_given(
    world, make, see, operation
):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object("Secret", "s"))
    policy = make.policy(resources={"operations": [operation]})
    assert (await see(policy, Occasion(operation=operation))).outcomes == [Outcome.PATCHED]
    assert (await see(policy, Occasion())).all == []


async def test_concurrent_reads_of_an_object_share_one_call(world, make):
    stored = world.cluster.add(make.object())
    kind = world.cluster.exact("v1", "ConfigMap")
    cluster = DryRun(world.wire)
    found = await asyncio.gather(*(cluster.get(kind, "a", "c") for _ in range(10)))
    assert found == [stored] * 10
    assert world.wire.calls["get"] == 1


async def test_a_kept_change_is_dropped_if_the_object_has_changed_since(world, make):
    stored = world.cluster.add(make.object(data={"x": "1"}))
    kind = world.cluster.exact("v1", "ConfigMap")
    cluster = DryRun(world.wire)
    await cluster.change(kind, stored, {**stored, "data": {}})
    await world.edit(stored, data={"y": "1"})
    assert (await cluster.get(kind, "a", "c"))["data"] == {"y": "1"}


async def test_an_object_that_cannot_be_copied_is_reported_as_unreadable(world, make):
    nested: object = "x"
    for _ in range(2000):
        nested = [nested]
    stored = {**world.cluster.add(make.object()), "data": nested}

    class Deep(type(world.wire)):
        async def get(self, *_args):
            return stored

    kind = world.cluster.exact("v1", "ConfigMap")
    cluster = DryRun(Deep(world.cluster))
    labelled = {**stored["metadata"], "labels": {"seen": "yes"}}
    await cluster.change(kind, stored, {**stored, "metadata": labelled})
    with pytest.raises(Unreadable, match="v1/ConfigMap/a/c is nested too deeply to be copied"):
        await cluster.get(kind, "a", "c")


async def test_rights_that_the_server_reports_as_missing_are_recorded(world, make):
    stored = world.cluster.add(make.object())
    kind = world.cluster.exact("v1", "ConfigMap")
    world.cluster.forbid("patch", "configmaps")
    world.cluster.forbid("update", "configmaps")
    cluster = DryRun(world.wire, world.cluster)
    with pytest.raises(Forbidden):
        await cluster.change(kind, stored, {**stored, "data": {"x": "1"}})
    assert cluster.permissions == {"patch configmaps in namespace a"}
    assert len(cluster.refused) == 1


async def test_a_conflict_is_not_a_refusal(world, make):
    stored = world.cluster.add(make.object())
    await world.edit(stored, data={"y": "1"})
    kind = world.cluster.exact("v1", "ConfigMap")
    cluster = DryRun(world.wire, world.cluster)
    with pytest.raises(Conflict):
        await cluster.change(kind, stored, {**stored, "data": {"x": "1"}})
    assert not cluster.refused


async def test_with_apply_rules_one_a_later_rule_applies_only_to_other_triggers(
    world, make, open_preview
):
    world.cluster.add(make.object(name="a"))
    world.cluster.add(make.object(name="b"))
    world.cluster.add(make.object("Secret", "s"))
    policy = make.policy(spec={"applyRules": "One"}, resources={"names": ["a"]})
    (rule,) = make.policy()["spec"]["rules"]
    policy["spec"]["rules"].append({**rule, "name": "second"})
    preview = open_preview()
    _, second = compile_policy(policy).programs
    seen = Seen([chunk async for chunk in preview.walk(second, UPDATE)])
    assert seen.unmet == ["rule r comes first, and the policy has applyRules: One"]
    assert seen.outcomes == [Outcome.PATCHED]


async def test_a_rule_on_existing_objects_sees_the_changes_of_the_rule_before_it(
    world, make, open_preview
):
    policy = make.policy()
    (first,) = policy["spec"]["rules"]
    del first["mutate"]["targets"]
    labels = {"+(done)": "no", "second": "{{ request.object.metadata.labels.done }}"}
    second = {
        **first,
        "name": "second",
        "mutate": {"patchStrategicMerge": {"metadata": {"labels": labels}}},
    }
    policy["spec"]["rules"].append(second)
    policy["metadata"]["annotations"] = {ANNOTATION_EXISTING: "true"}
    world.cluster.add(make.object(name="a"))
    preview = open_preview()
    seen = [
        Seen([chunk async for chunk in preview.walk(program, Occasion())])
        for program in compile_policy(policy).on_existing
    ]
    assert [item.outcomes for item in seen] == [[Outcome.PATCHED]] * 2
    assert seen[1].writes["a"].after["metadata"]["labels"] == {"done": "yes", "second": "yes"}
    assert world.wire.calls["change"] == 0
    assert world.wire.calls["list"] == 1, "and what was listed is remembered"
