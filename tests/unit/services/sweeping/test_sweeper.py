import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from reconciler.api.meta import ANNOTATION_APPLIED, Kind, Object
from reconciler.api.updaterequest import RequestStatus, Source, State, SweepProgress, UpdateRequest
from reconciler.errors import Denied, Gone, Unavailable
from reconciler.requests.lifecycle import Done, Fail, Retry, Skip
from reconciler.requests.naming import child_name
from reconciler.services.processing.attempt import Attempt
from tests.unit.services.conftest import Make, World, until

EACH = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "namespace": "{{ request.object.metadata.namespace }}",
    "name": "{{ request.object.metadata.name }}",
}
TRIGGERS = [f"{number:02}" for number in range(20)]
APPEND = "- {op: add, path: /data/list/-, value: x}"


@pytest.fixture
def policy(world: World, make: type[Make]) -> Object:
    """A policy whose triggers are their own targets."""
    return world.install(make.policy(targets=[EACH], on_change=True))


@pytest.fixture
def triggers(world: World, make: type[Make]) -> Callable[..., list[Object]]:
    def create(*places):
        return [
            world.cluster.add(make.object("ConfigMap", name, namespace))
            for namespace, name in (place.split("/") for place in places)
        ]

    return create


@pytest.fixture
def sweep(world: World) -> Callable[..., Awaitable[UpdateRequest]]:
    """Return a function that stores a sweep of a policy."""

    async def run(policy, **spec):
        facts = {"source": Source.POLICY_CHANGE, "sweep": True, **spec}
        return await world.ask(policy, policy, name="sweep-1", operation="", **facts)

    return run


@pytest.fixture
def go_on(world: World) -> Callable[..., Awaitable[tuple[UpdateRequest, Attempt]]]:
    """Return a function that runs a stored sweep on a sweeper with small pages."""

    async def run(request, **settings):
        sweeper = replace(world.sweeper, **{"page": 2, "parallel": 2, **settings})
        return await sweeper.run(request)

    return run


def third_list_fails(error: Exception) -> Callable[[str, Kind], None]:
    """Return a hook for reads that raises an error at the third page of a list."""
    lists = 0

    def fail(verb: str, _kind: Kind) -> None:
        nonlocal lists
        lists += verb == "list"
        if lists == 3:
            raise error

    return fail


async def done(world):
    kind = world.cluster.exact("v1", "ConfigMap")
    page = await world.cluster.list_page(kind, labels="done=yes")
    return {f"{obj['metadata']['namespace']}/{obj['metadata']['name']}" for obj in page.items}


async def test_every_existing_trigger_is_processed(world, policy, triggers, sweep, go_on):
    triggers("a/1", "a/2", "a/3", "b/1", "c-c/1")
    request, ended = await go_on(await sweep(policy))
    assert ended.disposition == Done()
    assert await done(world) == {"a/1", "a/2", "a/3", "b/1", "c-c/1"}
    assert (ended.sweep.done, ended.sweep.total, ended.sweep.failed) == (5, 5, 0)
    assert ended.counts.patched == 5
    assert request.name == "sweep-1"


async def test_a_rule_for_what_cannot_be_listed_has_no_existing_triggers(
    world, make, sweep, go_on
):
    policy = world.install(make.policy("q", targets=[EACH], kinds=("Pod/status", "Config*")))
    _, ended = await go_on(await sweep(policy))
    assert ended.disposition == Done(message="no existing object matches the rule")


async def test_objects_that_the_settings_exclude_are_examined_but_not_processed(
    world, policy, triggers, sweep, go_on
):
    triggers("a/1", "a/2", "a/3")
    reported = list[str]()
    _, ended = await go_on(
        await sweep(policy),
        is_excluded=lambda _program, subject: subject.name == "2",
        each=lambda spec, _attempt: reported.append(spec.resource.name),
    )
    assert await done(world) == {"a/1", "a/3"}
    assert (ended.sweep.done, ended.sweep.matched, reported) == (3, 2, ["1", "3"])


async def test_a_sweep_without_objects_reports_that_none_matches(policy, sweep, go_on):
    _, ended = await go_on(await sweep(policy))
    assert ended.disposition == Done(message="no existing object matches the rule")
    assert (ended.sweep.done, ended.sweep.total) == (0, 0)


async def test_lists_are_narrowed_by_the_namespace_and_selector_of_the_match(
    world, make, triggers, sweep, go_on
):
    resources = {"namespaces": ["b"], "selector": {"matchLabels": {"team": "x"}}}
    policy = world.install(make.policy("q", targets=[EACH], resources=resources))
    triggers("a/1", "b/1")
    world.cluster.add(make.object("ConfigMap", "2", "b", labels={"team": "x"}))
    asked = []
    whole = world.wire.list_page

    async def list_page(kind, **options):
        asked.append((options["namespace"], options["labels"]))
        return await whole(kind, **options)

    world.wire.list_page = list_page
    await go_on(await sweep(policy))
    assert set(asked) == {("b", "team=x")}
    assert await done(world) == {"b/2"}


async def test_an_unknown_total_is_not_guessed(world, make, triggers, sweep, go_on):
    """The API server does not count the remaining objects of a list with a selector."""
    policy = world.install(
        make.policy("q", targets=[EACH], resources={"selector": {"matchLabels": {"x": "y"}}})
    )
    for number in range(5):
        world.cluster.add(make.object("ConfigMap", str(number), labels={"x": "y"}))
    whole = world.wire.list_page
    totals = []

    async def list_page(kind, **options):
        return replace(await whole(kind, **options), remaining=0)

    write = world.requests.write_status

    async def write_status(request, status):
        totals.append(status.sweep.total)
        return await write(request, status)

    world.wire.list_page = list_page
    world.requests.write_status = write_status
    _, ended = await go_on(await sweep(policy))
    assert set(totals) == {-1}
    assert (ended.sweep.done, ended.sweep.total) == (5, 5)


async def test_a_sweep_waits_while_none_of_its_kinds_is_served(world, make, sweep, go_on):
    """An API server that has just started does not serve custom resources for a moment."""
    policy = world.install(make.policy("q", targets=[EACH], kinds=("example.com/v1/Widget",)))
    request, ended = await go_on(await sweep(policy))
    assert isinstance(ended.disposition, Retry)
    assert ended.disposition.message == "the cluster serves no kind that rule r matches"
    widgets = Kind(
        group="example.com", version="v1", kind="Widget", plural="widgets", namespaced=True
    )
    world.cluster.serve(widgets)
    world.cluster.add(make.object("Widget", "one", apiVersion="example.com/v1"))
    _, ended = await go_on(request)
    assert ended.sweep.done == 1


async def test_rules_for_operations_have_no_existing_triggers(world, make, triggers, sweep, go_on):
    policy = world.install(
        make.policy("q", targets=[EACH], resources={"operations": ["CREATE", "UPDATE"]})
    )
    triggers("a/1")
    _, ended = await go_on(await sweep(policy))
    assert ended.sweep.done == 0
    assert await done(world) == set()


async def test_triggers_that_do_not_meet_the_preconditions_are_skipped(
    world, make, triggers, sweep, go_on
):
    condition = {
        "all": [{"key": "{{ request.object.metadata.name }}", "operator": "Equals", "value": "1"}]
    }
    policy = world.install(make.policy("q", targets=[EACH], preconditions=condition))
    triggers("a/1", "a/2")
    _, ended = await go_on(await sweep(policy))
    assert ended.disposition == Done()
    assert await done(world) == {"a/1"}
    assert (ended.sweep.done, ended.sweep.matched) == (2, 1)


class TestOrder:
    PLACES = ("a/1", "a/2", "b/1", "b/1-2", "b/10", "b/2", "c/0", "c/1")

    @pytest.mark.parametrize("broken_after", range(8))
    async def test_a_crash_at_any_point_skips_no_trigger(
        self, world, make, triggers, sweep, broken_after
    ):
        policy = world.install(make.policy(targets=[EACH], on_change=True))
        triggers(*self.PLACES)
        request = await sweep(policy)
        sweeper = replace(world.sweeper, page=3, parallel=1)
        count = 0

        def crash(_before, _after):
            nonlocal count
            count += 1
            world.clock.tick(5)
            if count > broken_after:
                raise asyncio.CancelledError

        world.wire.before_change = crash
        await asyncio.gather(sweeper.run(request), return_exceptions=True)
        before = await done(world)
        world.wire.before_change = lambda *_: None
        world.restart()
        world.index.apply(policy)
        sweeper = replace(world.sweeper, page=3, parallel=1)
        _, ended = await sweeper.run(await world.requests.get("sweep-1"))
        assert len(before) == broken_after
        assert await done(world) == set(self.PLACES)
        assert ended.disposition == Done()
        assert ended.sweep.done == len(self.PLACES)

    async def test_triggers_processed_before_a_restart_are_not_evaluated_again(
        self, world, policy, triggers, sweep, go_on
    ):
        triggers(*self.PLACES)
        request = await sweep(policy)
        at = SweepProgress(cursor="configmaps@?:b/1", done=3, total=8)
        stored = await world.requests.write_status(request, RequestStatus(sweep=at))
        _, ended = await go_on(stored)
        assert await done(world) == {"b/1-2", "b/10", "b/2", "c/0", "c/1"}
        assert ended.sweep.done == 8

    async def test_kinds_are_swept_one_after_the_other(self, world, make, triggers, sweep, go_on):
        each = {**EACH, "kind": "{{ request.object.kind }}"}
        policy = world.install(
            make.policy("q", targets=[each], kinds=("ConfigMap", "Secret"), on_change=True)
        )
        triggers("z/1")
        world.cluster.add(make.object("Secret", "1", "a"))
        request = await sweep(policy)
        at = SweepProgress(cursor="secrets@?:", done=1, total=2)
        _, ended = await go_on(await world.requests.write_status(request, RequestStatus(sweep=at)))
        assert await done(world) == set()
        assert ended.sweep.cursor == "secrets@?:a/1"
        assert ended.sweep.done == 2

    async def test_every_list_is_swept_to_its_end(self, world, make, triggers, sweep, go_on):
        policy = make.policy("q", targets=[EACH], on_change=True)
        resources = {"kinds": ["Secret", "ConfigMap"], "namespaces": ["a", "b"]}
        policy["spec"]["rules"][0]["match"] = {"any": [{"resources": resources}]}
        world.cluster.add(make.object("Secret", "1", "a"))
        triggers("a/1", "a/2", "b/1", "c/1")
        _, ended = await go_on(await sweep(world.install(policy)))
        assert ended.disposition == Done()
        assert await done(world) == {"a/1", "a/2", "b/1"}
        assert (ended.sweep.done, ended.sweep.total) == (4, 4)


class TestFailures:
    @pytest.fixture
    def refusing(self, world: World) -> None:
        def refuse(before, _after):
            if before["metadata"]["name"] in {"2", "3"}:
                raise Unavailable("no answer")

        world.wire.before_change = refuse

    async def test_failed_triggers_continue_as_separate_requests(
        self, world, policy, triggers, sweep, go_on, refusing
    ):
        created = triggers("a/1", "a/2", "a/3", "a/4")
        _, ended = await go_on(await sweep(policy))
        assert await done(world) == {"a/1", "a/4"}
        assert ended.disposition == Done(message="2 of 4 triggers continue as separate requests")
        assert (ended.sweep.failed, ended.counts.failed) == (2, 2)
        uid = created[1]["metadata"]["uid"]
        child = await world.requests.get(child_name("sweep-1", uid))
        assert (child.spec.resource.name, child.spec.resource.uid) == ("2", uid)
        assert (child.spec.sweep, child.spec.operation) == (False, "")
        assert child.spec.source is Source.POLICY_CHANGE
        assert child.spec.policy_generation == policy["metadata"]["generation"]

    async def test_a_separate_request_of_a_failed_trigger_can_be_processed(
        self, world, policy, triggers, sweep, go_on, refusing
    ):
        triggers("a/2")
        await go_on(await sweep(policy))
        world.wire.before_change = lambda *_: None
        ended = RequestStatus(state=State.COMPLETED)
        await world.requests.write_status(await world.requests.get("sweep-1"), ended)
        await world.dispatcher.resync()
        await world.settle()
        assert await done(world) == {"a/2"}
        assert world.dispatcher.waiting == 0

    async def test_separate_requests_are_stored_before_the_cursor_moves(
        self, world, policy, triggers, sweep, go_on, refusing
    ):
        triggers("a/1", "a/2", "a/3")
        order = []
        create, write = world.requests.create, world.requests.write_status

        async def record_create(name, labels, spec):
            order.append(f"child {spec.resource.name}")
            await create(name, labels, spec)

        async def record_write(request, status):
            order.append(f"cursor {status.sweep.cursor}")
            world.clock.tick(5)
            return await write(request, status)

        request = await sweep(policy)
        world.requests.create, world.requests.write_status = record_create, record_write
        await go_on(request, page=1)
        assert order == [
            "cursor configmaps@?:a/1",
            "child 2",
            "cursor configmaps@?:a/2",
            "child 3",
            "cursor configmaps@?:a/3",
        ]

    async def test_a_failed_list_resumes_where_it_stopped(
        self, world, policy, triggers, sweep, go_on
    ):
        triggers("a/1", "a/2", "a/3")
        world.wire.before_read = third_list_fails(Unavailable("no answer"))
        request, ended = await go_on(await sweep(policy))
        assert isinstance(ended.disposition, Retry)
        assert ended.sweep.cursor == "configmaps@?:a/2"
        world.wire.before_read = lambda *_: None
        request = replace(request, status=replace(request.status, sweep=ended.sweep))
        _, ended = await go_on(request)
        assert ended.disposition == Done()
        assert ended.sweep.done == 3

    async def test_a_list_that_has_expired_is_no_error(
        self, world, policy, triggers, sweep, go_on
    ):
        triggers("a/1", "a/2", "a/3")
        world.wire.before_read = third_list_fails(
            Gone("the continue token is too old", status=410)
        )
        _, ended = await go_on(await sweep(policy))
        assert ended.disposition == Done()
        assert ended.sweep.done == 3

    async def test_a_missing_right_is_named(self, world, policy, sweep, go_on):
        world.cluster.forbid("list", "configmaps")
        _, ended = await go_on(await sweep(policy))
        assert isinstance(ended.disposition, Retry)
        assert ended.disposition.missing_permission == "list configmaps"


class TestPolicy:
    async def test_a_newer_generation_supersedes_the_sweep_at_once(
        self, world, make, policy, triggers, sweep, go_on
    ):
        triggers("a/1", "a/2", "a/3", "a/4", "a/5")
        request = await sweep(policy)

        async def edit(_before, _after):
            world.wire.before_change = lambda *_: None
            spec = make.policy(targets=[EACH], patch={"data": {"n": "1"}}, on_change=True)["spec"]
            world.index.apply(await world.edit(policy, spec=spec))

        world.wire.before_change = edit
        _, ended = await go_on(request)
        assert isinstance(ended.disposition, Skip)
        assert ended.disposition.reason == "Superseded"
        assert len(await done(world)) <= 2

    async def test_a_deleted_policy_ends_the_sweep(self, world, policy, triggers, sweep, go_on):
        triggers("a/1")
        request = await sweep(policy)
        world.remove(policy)
        world.forget("p")
        _, ended = await go_on(request)
        assert isinstance(ended.disposition, Skip)
        assert ended.disposition.reason == "PolicyGone"
        assert await done(world) == set()

    async def test_a_policy_that_became_invalid_fails_the_sweep(
        self, world, policy, triggers, sweep, go_on
    ):
        triggers("a/1")
        request = await sweep(policy)
        world.index.apply(await world.edit(policy, spec={"rules": []}))
        _, ended = await go_on(request)
        assert isinstance(ended.disposition, Fail)


class TestProgress:
    async def test_progress_is_written_every_second_with_the_remaining_time(
        self, world, policy, triggers, sweep, go_on
    ):
        triggers(*(f"a/{number}" for number in range(8)))
        written = []
        write = world.requests.write_status

        async def record(request, status):
            written.append((status.sweep.done, status.sweep.total, status.sweep.eta))
            return await write(request, status)

        world.requests.write_status = record

        def slow(_before, _after):
            world.clock.tick(1)

        world.wire.before_change = slow
        await go_on(await sweep(policy))
        assert written == [(2, 8, "6s"), (4, 8, "4s"), (6, 8, "2s"), (8, 8, "")]

    async def test_progress_is_written_at_most_once_per_second(
        self, world, policy, triggers, sweep, go_on
    ):
        triggers(*(f"a/{number}" for number in range(20)))
        request = await sweep(policy)
        before = request.resource_version
        request, _ = await go_on(request)
        assert request.resource_version != before
        assert request.status.sweep.done == 2

    async def test_a_completed_sweep_has_no_remaining_time(self, world, policy, triggers, sweep):
        triggers("a/1", "a/2")
        world.dispatcher.on_stored(await sweep(policy))
        await world.settle()
        status = await world.status("sweep-1")
        assert status.state is State.COMPLETED
        assert (status.sweep.done, status.sweep.total, status.sweep.eta) == (2, 2, "")
        assert status.counts.patched == 2


async def test_rules_that_do_not_converge_change_each_trigger_once(world, make, sweep, go_on):
    policy = world.install(make.policy(targets=[EACH], json=APPEND, on_change=True))
    stored = world.cluster.add(make.object("ConfigMap", "1", data={"list": []}))
    await world.dispatcher.resync()
    world.dispatcher.on_stored(await sweep(policy))
    request = await world.requests.get("sweep-1")
    await go_on(request)
    # The process dies before the end is stored, and another one begins again.
    await go_on(request)
    assert (await world.read(stored))["data"]["list"] == ["x"]


class TestOneTarget:
    """A rule that does not converge and whose triggers all have the same target."""

    @pytest.fixture
    async def target(
        self,
        world: World,
        make: type[Make],
        triggers: Callable[..., list[Object]],
        sweep: Callable[..., Awaitable[UpdateRequest]],
    ) -> Object:
        append = "- {op: add, path: /list/-, value: '{{ request.object.metadata.name }}'}"
        policy = world.install(make.policy(json=append, on_change=True))
        triggers(*(f"a/{name}" for name in TRIGGERS))
        await sweep(policy)
        world.wire.before_change = lambda *_: world.clock.tick(1)
        return world.cluster.add(make.object("Secret", "s", list=[]))

    @staticmethod
    async def work(world):
        world.dispatcher.sweep = replace(world.sweeper, page=5, parallel=1).run
        await world.dispatcher.resync()
        await world.settle()

    async def die_after(self, world, writes):
        """Work until a process ends with a write that is not sent; status writes count too."""
        change, sent = world.cluster.change, 0

        async def end(*args, **options):
            nonlocal sent
            sent += 1
            if sent > writes:
                raise asyncio.CancelledError
            return await change(*args, **options)

        world.cluster.change = end
        work = asyncio.create_task(self.work(world))
        await until(lambda: sent > writes)
        work.cancel()
        await asyncio.wait({work})
        world.cluster.change = change

    async def test_the_target_names_only_triggers_whose_progress_is_not_stored(
        self, world, target
    ):
        named = []

        def count(_before, after):
            world.clock.tick(1)
            named.append(after["metadata"]["annotations"][ANNOTATION_APPLIED].count(",") + 1)

        world.wire.before_change = count
        await self.work(world)
        assert (await world.status("sweep-1")).state is State.COMPLETED
        assert (await world.read(target))["list"] == TRIGGERS
        assert max(named) == 4

    @pytest.mark.parametrize("seconds", [0, 1])
    async def test_no_trigger_is_applied_twice_wherever_a_process_ends(
        self, world, target, seconds
    ):
        world.wire.before_change = lambda *_: world.clock.tick(seconds)
        for writes in range(1, 6):
            await self.die_after(world, writes)
            world.restart()
        await self.work(world)
        assert (await world.status("sweep-1")).state is State.COMPLETED
        assert (await world.read(target))["list"] == TRIGGERS

    async def test_a_sweep_that_waits_briefly_continues_at_its_progress(self, world, make, target):
        limits = {"kube-retrofit.dev/rate": "90/m", "kube-retrofit.dev/batch-size": "1"}
        world.index.apply(await world.edit(make.policy(), annotations=limits))
        world.wire.before_change = lambda *_: None
        await self.work(world)
        for done in range(1, 4):
            assert (await world.read(target))["list"] == TRIGGERS[:done]
            world.clock.tick(0.7)
            await world.settle()


@pytest.mark.parametrize("source", [Source.POLICY_CHANGE, Source.MANUAL])
async def test_a_trigger_that_failed_at_one_target_is_not_applied_again_at_another(
    world, make, triggers, sweep, source
):
    append = "- {op: add, path: /list/-, value: '{{ request.object.metadata.name }}'}"
    both = [make.target("s"), make.target("t")]
    policy = world.install(make.policy(targets=both, json=append, on_change=True))
    triggers(*(f"a/{name}" for name in TRIGGERS))
    first, second = (world.cluster.add(make.object("Secret", name, list=[])) for name in "st")
    await sweep(policy, source=source)

    def refuse(before, _after):
        world.clock.tick(1)
        if before["metadata"]["name"] == "t":
            raise Unavailable("no answer")

    world.wire.before_change = refuse
    world.dispatcher.sweep = replace(world.sweeper, page=5, parallel=1).run
    await world.dispatcher.resync()
    await world.settle()
    assert (await world.status("sweep-1")).state is State.COMPLETED
    assert (await world.read(first))["list"] == TRIGGERS
    world.restart()
    world.wire.before_change = lambda *_: None
    world.clock.tick(600)
    await world.dispatcher.resync()
    await world.settle()
    assert [item async for item in world.requests.waiting()] == []
    assert (await world.read(first))["list"] == TRIGGERS
    assert sorted((await world.read(second))["list"]) == TRIGGERS
    ended = [item async for item in world.requests.finished() if not item.spec.sweep]
    results = {target.ref.name: target.message for item in ended for target in item.status.targets}
    assert results == {"s": "applied by the sweep", "t": ""}


async def test_a_manual_run_starts_over_with_a_changed_rule(
    world, make, policy, triggers, sweep, go_on
):
    triggers("a/1", "a/2", "a/3")
    other = make.policy(targets=[EACH], patch={"metadata": {"labels": {"other": "yes"}}})
    change = world.wire.cluster.change
    seen = 0

    async def changed(kind, before, after, **name):
        nonlocal seen
        seen += 1
        if seen == 2:
            meta = {**policy["metadata"], "generation": policy["metadata"]["generation"] + 1}
            world.index.apply({**policy, "spec": other["spec"], "metadata": meta})
        return await change(kind, before, after, **name)

    world.wire.change = changed
    _, ended = await go_on(await sweep(policy, source=Source.MANUAL))
    assert ended.disposition == Done()
    assert (ended.sweep.done, ended.sweep.total) == (3, 3)
    kind = world.cluster.exact("v1", "ConfigMap")
    page = await world.cluster.list_page(kind, labels="other=yes")
    assert len(page.items) == 3


async def test_concurrent_failures_do_not_list_the_objects_again(
    world, policy, triggers, sweep, go_on
):
    triggers(*(f"a/{number:02}" for number in range(30)))

    def refuse(_before, _after):
        raise Denied("no", status=403)

    world.wire.before_change = refuse
    _, ended = await go_on(await sweep(policy), page=30, parallel=3)
    assert (ended.sweep.done, ended.sweep.failed) == (30, 30)
    # One of the two lists counts the objects.
    assert world.wire.calls["list"] == 2
