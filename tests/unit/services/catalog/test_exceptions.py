"""The index of exceptions, and rules that exceptions or earlier rules keep from acting."""

import asyncio
import contextlib
import time

import pytest

from admission.exceptions import ExceptionFeed
from reconciler.api.meta import Object
from reconciler.api.updaterequest import Outcome, Source
from reconciler.clock import SystemClock
from reconciler.controller.exceptions import ExceptionInformer
from reconciler.errors import Unavailable
from reconciler.installation import REPLACING
from reconciler.observe.logs import logger
from reconciler.requests.lifecycle import Done, Retry, Skip
from reconciler.services.catalog.exceptions import DISABLED, ExceptionIndex, ExceptionSettings
from tests.unit.services.conftest import Make, World

ALL = ExceptionSettings(enabled=True, namespaces="*")


def exception(name="e", namespace="team", annotation="", policy="p", rules=("r",), **spec):
    meta = {"name": name, "namespace": namespace}
    if annotation:
        meta["annotations"] = {"kube-retrofit.dev/excepts": annotation}
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": meta,
        "spec": {
            "match": {"any": [{"resources": spec.pop("resources", {"kinds": ["ConfigMap"]})}]},
            "exceptions": [{"policyName": policy, "ruleNames": list(rules)}],
            **spec,
        },
    }


@pytest.fixture
def known(world: World) -> ExceptionIndex:
    """The exception index of the processor, which honours exceptions from all namespaces."""
    world.processor.exceptions.exception_settings = ALL
    return world.processor.exceptions


@pytest.fixture
def target(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object("Secret", "s"))


@pytest.fixture
def trigger(world: World, make: type[Make]) -> Object:
    return world.cluster.add(make.object(data={"mode": "on"}))


async def attempt(world, request):
    return await world.processor.attempt(request, 0.0)


class Fed:
    """A watch that has delivered one object."""

    def __init__(self, obj):
        self.obj, self.problem = obj, ""
        self.synced = asyncio.Event()
        self.progress = 0.0

    async def events(self):
        yield "ADDED", self.obj
        self.synced.set()
        await asyncio.Event().wait()


def in_the_controller(index, watch):
    return ExceptionInformer(
        installation=REPLACING,
        index=index,
        watch=watch,
        wake=lambda _policy: None,
        log=logger("test"),
    )


def in_the_admission_server(index, watch):
    return ExceptionFeed(index).informer(watch, SystemClock())


@pytest.mark.parametrize("informer", [in_the_controller, in_the_admission_server])
async def test_a_large_exception_does_not_block_the_event_loop(world, make, informer):
    keys = (f"{{{{ request.object.data.k{number} }}}}" for number in range(1_500))
    large = [{"key": key, "operator": "Equals", "value": "a"} for key in keys]
    index = ExceptionIndex(exception_settings=ALL)
    watch, turns = Fed(exception(conditions={"all": large})), 0
    task = asyncio.create_task(informer(index, watch).run())
    while not watch.synced.is_set():
        await asyncio.sleep(0)
        turns += 1
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert turns > 20
    (program,) = world.index.apply(make.policy()).programs
    assert [item.key for item in index.of(program)] == ["team/e"]


class TestIndex:
    def test_thousands_of_exceptions_are_taken_in_in_a_moment(self, world, make):
        index = ExceptionIndex(exception_settings=ALL)
        each = [exception(f"e-{number:04}", policy=f"p-{number % 50}") for number in range(4_000)]
        begun = time.process_time()
        for item in reversed(each):
            index.on_event("ADDED", item)
        assert time.process_time() - begun < 4.0
        (program,) = world.index.apply(make.policy("p-7")).programs
        found = [item.key for item in index.of(program)]
        assert found == [f"team/e-{number:04}" for number in range(7, 4_000, 50)]

    @pytest.mark.parametrize(
        ("exception_settings", "namespace", "problem"),
        [
            (ALL, "a", ""),
            (ExceptionSettings(enabled=True, namespaces="x, a"), "a", ""),
            (ExceptionSettings(enabled=True, namespaces="team-*"), "team-a", ""),
            (ExceptionSettings(enabled=True, namespaces="x,y"), "a", "allows x,y"),
            (ExceptionSettings(namespaces="*"), "a", DISABLED),
        ],
    )
    def test_exceptions_count_only_in_the_allowed_namespaces(
        self, exception_settings, namespace, problem
    ):
        taken = ExceptionIndex(exception_settings=exception_settings).on_event(
            "ADDED", exception(namespace=namespace)
        )
        assert problem in taken.problem
        assert bool(taken.problem) is bool(problem)
        assert taken.policies == (() if problem else ("p",))

    def test_exceptions_are_found_by_their_rule(self, world, make):
        program = world.index.apply(make.policy()).programs[0]
        index = ExceptionIndex(exception_settings=ALL)
        index.on_event("ADDED", exception("b"))
        index.on_event("ADDED", exception("a"))
        index.on_event("ADDED", exception("other", rules=("x",)))
        assert [item.key for item in index.of(program)] == ["team/a", "team/b"]
        assert index.on_event("DELETED", {"metadata": exception("a")["metadata"]}).policies == (
            "p",
        )
        assert index.on_event("DELETED", exception("a")).policies == ()
        assert [item.key for item in index.of(program)] == ["team/b"]

    def test_a_changed_exception_affects_its_old_and_its_new_policies(self):
        index = ExceptionIndex(exception_settings=ALL)
        index.on_event("ADDED", exception())
        assert index.on_event("MODIFIED", exception(policy="q")).policies == ("p", "q")

    def test_an_exception_that_becomes_invalid_no_longer_applies(self, world, make):
        program = world.index.apply(make.policy()).programs[0]
        index = ExceptionIndex(exception_settings=ALL)
        index.on_event("ADDED", exception())
        taken = index.on_event("MODIFIED", exception(match={}))
        assert taken.policies == ("p",)
        assert taken.problem.startswith("spec.match: ")
        assert index.of(program) == ()


class TestTrigger:
    async def test_an_excepted_trigger_is_skipped_with_the_name_of_the_exception(
        self, world, make, known, target, trigger
    ):
        request = await world.ask(world.install(make.policy()), trigger)
        known.on_event("ADDED", exception())
        ended = await attempt(world, request)
        assert ended.disposition == Skip(
            reason="Excepted", message="rule is skipped due to policy exceptions team/e"
        )
        assert "labels" not in (await world.read(target))["metadata"]
        calls = world.wire.calls
        assert (calls["get"], calls["list"], calls["change"]) == (1, 0, 0)

    async def test_a_trigger_is_processed_once_the_exception_is_deleted(
        self, world, make, known, target, trigger
    ):
        request = await world.ask(world.install(make.policy()), trigger)
        known.on_event("ADDED", exception())
        known.on_event("DELETED", exception())
        assert (await attempt(world, request)).disposition == Done()

    async def test_conditions_of_an_exception_read_context_entries_of_the_rule(
        self, world, make, known, target, trigger
    ):
        world.cluster.add(make.object(name="settings", data={"frozen": "yes"}))
        entries = [{"name": "settings", "configMap": {"name": "settings", "namespace": "a"}}]
        request = await world.ask(world.install(make.policy(context=entries)), trigger)
        condition = {"key": "{{ settings.data.frozen }}", "operator": "Equals", "value": "yes"}
        known.on_event("ADDED", exception(conditions={"all": [condition]}))
        assert (await attempt(world, request)).disposition.reason == "Excepted"

    async def test_namespace_labels_of_a_trigger_are_read_if_an_exception_needs_them(
        self, world, make, known, target, trigger
    ):
        space = make.object("Namespace", "a", "", labels={"env": "prod"})
        world.cluster.add(space)
        request = await world.ask(world.install(make.policy()), trigger)
        selector = {"matchLabels": {"env": "prod"}}
        resources = {"kinds": ["ConfigMap"], "namespaceSelector": selector}
        known.on_event("ADDED", exception(resources=resources))
        assert (await attempt(world, request)).disposition.reason == "Excepted"
        assert world.wire.calls["get Namespace a"] == 1

    @pytest.mark.parametrize(("field", "reason"), [("name", "Excepted"), ("data", "Done")])
    async def test_a_condition_on_a_field_that_was_not_recorded_does_not_hold(
        self, world, make, known, target, trigger, field, reason
    ):
        """The rule records no data of a deleted object, so no condition on it can hold."""
        policy = world.install(
            make.policy(resources={"operations": ["DELETE"]}, kinds=("ConfigMap",))
        )
        meta = {"name": "c", "namespace": "a"}
        kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        request = await world.ask(policy, trigger, operation="DELETE", recorded={"object": kept})
        world.remove(trigger)
        key = {
            "name": "{{ request.object.metadata.name }}",
            "data": "{{ request.object.data.x || 'c' }}",
        }
        condition = {"key": key[field], "operator": "Equals", "value": "c"}
        known.on_event("ADDED", exception(conditions={"all": [condition]}))
        disposition = (await attempt(world, request)).disposition
        assert getattr(disposition, "reason", "Done") == reason

    async def test_a_request_is_retried_until_the_exceptions_are_known(
        self, world, make, known, target, trigger
    ):
        async def fail():
            raise Unavailable("the PolicyExceptions cannot be read")

        known.caught_up = fail
        request = await world.ask(world.install(make.policy()), trigger)
        disposition = (await attempt(world, request)).disposition
        assert isinstance(disposition, Retry)
        assert "PolicyExceptions cannot be read" in disposition.message

    async def test_an_excepted_trigger_of_a_sweep_is_skipped(
        self, world, make, known, target, trigger
    ):
        policy = world.install(make.policy(on_change=True))
        free = world.cluster.add(make.object(name="free"))
        resources = {"kinds": ["ConfigMap"], "names": ["c"]}
        known.on_event("ADDED", exception(resources=resources))
        patched = make.policy(
            on_change=True,
            targets=[make.target()],
            patch={"metadata": {"annotations": {"{{ request.object.metadata.name }}": "seen"}}},
        )
        policy = await world.edit(policy, spec=patched["spec"])
        world.index.apply(policy)
        request = await sweep(world, policy)
        await world.sweeper.run(request)
        assert (await world.read(target))["metadata"]["annotations"] == {
            free["metadata"]["name"]: "seen"
        }


async def sweep(world, policy, rule="r"):
    return await world.ask(
        policy,
        policy,
        name=f"sweep-{rule}",
        rule=rule,
        operation="",
        source=Source.POLICY_CHANGE,
        sweep=True,
    )


class TestTarget:
    async def test_an_excepted_target_is_skipped_and_the_others_are_changed(
        self, world, make, known, target, trigger
    ):
        other = world.cluster.add(make.object("Secret", "other"))
        targets = [make.target(), make.target("other")]
        request = await world.ask(world.install(make.policy(targets=targets)), trigger)
        resources = {"kinds": ["Secret"], "names": ["s"]}
        known.on_event("ADDED", exception(resources=resources))
        ended = await attempt(world, request)
        found = {item.ref.name: (item.outcome, item.message) for item in ended.targets}
        text = "rule is skipped due to policy exceptions team/e"
        assert found == {"s": (Outcome.SKIPPED, text), "other": (Outcome.PATCHED, "")}
        assert ended.disposition == Done()
        assert "labels" not in (await world.read(target))["metadata"]
        assert (await world.read(other))["metadata"]["labels"] == {"done": "yes"}

    async def test_a_target_is_changed_if_the_exception_covers_only_triggers(
        self, world, make, known, target, trigger
    ):
        request = await world.ask(world.install(make.policy()), trigger)
        known.on_event("ADDED", exception(annotation="triggers", resources={"kinds": ["Secret"]}))
        await attempt(world, request)
        assert (await world.read(target))["metadata"]["labels"] == {"done": "yes"}

    async def test_a_target_is_excepted_by_the_labels_of_its_namespace(
        self, world, make, known, target, trigger
    ):
        world.cluster.add(make.object("Namespace", "a", "", labels={"frozen": "yes"}))
        request = await world.ask(world.install(make.policy()), trigger)
        selector = {"matchLabels": {"frozen": "yes"}}
        resources = {"kinds": ["Secret"], "namespaceSelector": selector}
        known.on_event("ADDED", exception(annotation="both", resources=resources))
        (status,) = (await attempt(world, request)).targets
        assert status.outcome is Outcome.SKIPPED


def one_of_two(make, first=None, second=None, **spec):
    policy = make.policy(spec={"applyRules": "One", **spec}, **(first or {}))
    (rule,) = policy["spec"]["rules"]
    patch = {"metadata": {"labels": {"second": "yes"}}}
    (other,) = make.policy(patch=patch, **(second or {}))["spec"]["rules"]
    policy["spec"]["rules"] = [rule, {**other, "name": "second"}]
    return policy


class TestOne:
    """A policy with ``applyRules: One`` applies only the first rule that fires."""

    async def second(self, world, policy, trigger, **spec):
        request = await world.ask(world.install(policy), trigger, rule="second", **spec)
        return (await attempt(world, request)).disposition

    async def test_a_rule_is_skipped_if_an_earlier_rule_fires(self, world, make, target, trigger):
        ended = await self.second(world, one_of_two(make), trigger, unless=("r",))
        assert ended == Skip(
            reason="OtherRule",
            message="rule r comes first, and the policy has applyRules: One",
        )

    async def test_a_rule_applies_if_admission_ruled_out_the_earlier_one(
        self, world, make, target, trigger
    ):
        """The first rule fires for the object's present state, which has a request of its own."""
        assert await self.second(world, one_of_two(make), trigger) == Done()

    @pytest.mark.parametrize(
        "condition",
        [
            {"key": "{{ request.object.data.mode }}", "operator": "Equals", "value": "off"},
            {"key": "{{ request.object.data.nothing }}", "operator": "Equals", "value": "off"},
        ],
        ids=["not met", "fails"],
    )
    async def test_a_rule_applies_if_the_conditions_of_the_earlier_one_do_not_hold(
        self, world, make, target, trigger, condition
    ):
        policy = one_of_two(make, {"preconditions": {"all": [condition]}})
        assert await self.second(world, policy, trigger, unless=("r", "gone")) == Done()

    async def test_a_rule_applies_if_the_earlier_one_is_excepted(
        self, world, make, known, target, trigger
    ):
        known.on_event("ADDED", exception())
        assert await self.second(world, one_of_two(make), trigger, unless=("r",)) == Done()

    async def test_context_entries_of_the_earlier_rule_are_read(
        self, world, make, target, trigger
    ):
        world.cluster.add(make.object(name="settings", data={"on": "yes"}))
        entries = [{"name": "settings", "configMap": {"name": "settings", "namespace": "a"}}]
        condition = {"key": "{{ settings.data.on }}", "operator": "Equals", "value": "yes"}
        policy = one_of_two(make, {"context": entries, "preconditions": {"all": [condition]}})
        ended = await self.second(world, policy, trigger, unless=("r",))
        assert ended.reason == "OtherRule"

    async def test_namespace_labels_for_the_earlier_rule_are_read(
        self, world, make, target, trigger
    ):
        world.cluster.add(make.object("Namespace", "a", "", labels={"env": "prod"}))
        selector = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
        policy = one_of_two(make, {"resources": selector})
        ended = await self.second(world, policy, trigger, unless=("r",))
        assert ended.reason == "OtherRule"

    async def test_a_sweep_applies_the_first_matching_rule_to_each_trigger(
        self, world, make, trigger
    ):
        target = world.cluster.add(make.object("Secret", "s"))
        seen = {"metadata": {"annotations": {"{{ request.object.metadata.name }}": "first"}}}
        last = {"metadata": {"annotations": {"{{ request.object.metadata.name }}": "second"}}}
        policy = one_of_two(
            make,
            {"patch": seen, "resources": {"names": ["c"]}, "on_change": True},
            {"on_change": True},
        )
        policy["spec"]["rules"][1]["mutate"]["patchStrategicMerge"] = last
        world.cluster.add(make.object(name="free"))
        stored = world.install(policy)
        for rule in ("second", "r"):
            await world.sweeper.run(await sweep(world, stored, rule))
        assert (await world.read(target))["metadata"]["annotations"] == {
            "c": "first",
            "free": "second",
        }
