"""The store of global entries: loading, reads, waits and statuses, on a fake cluster."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import reduce

import pytest

from reconciler.api.updaterequest import Source
from reconciler.engine.loads import ApiLoad, GlobalLoad
from reconciler.errors import Forbidden, Interrupted, NotReady, Unavailable
from reconciler.isolation import ChildProcesses
from reconciler.languages.jmespath import compile_expression
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.catalog.globalcontext import (
    Dependencies,
    GlobalContext,
    ProblemLog,
    StatusWriter,
)
from reconciler.services.catalog.globalcontext.sources import STALE
from tests.unit.keptdata import CALL, PODS, SHORT, Cluster, entry, eventually, pod
from tests.unit.services.conftest import World

TOO_MUCH = tuple(pod(f"p{number}", note="x" * 100) for number in range(30))
"""Objects above the limit of the stores below."""


class Isolated:
    """The `Isolation` port with the controller's child processes, counted and delayed."""

    def __init__(self):
        self.children = ChildProcesses()
        self.evaluations = self.cancelled = 0
        self.failures: list[Interrupted] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def evaluate(self, work, tenant):
        self.evaluations += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failures:
            raise self.failures.pop()
        return await self.children.evaluate(work, tenant)


@pytest.fixture
async def isolated() -> Isolated:
    return Isolated()


@pytest.fixture
def cluster(world: World) -> Cluster:
    return Cluster(world.clock)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def dependencies(
    world: World, cluster: Cluster, said: list[str], isolated: Isolated
) -> Dependencies:
    """The dependencies of a store, with pauses so short that tests wait only for conditions."""
    return Dependencies(
        entries=cluster,
        kinds=MemoryCluster(),
        loader=cluster,
        clock=world.clock,
        spread=lambda pause: pause,
        warn=said.append,
        most_bytes=2_000,
        pace=SHORT,
        isolation=isolated,
    )


@contextlib.asynccontextmanager
async def running(store: GlobalContext) -> AsyncIterator[GlobalContext]:
    """Run a store in the background."""
    work = asyncio.create_task(store.run())
    yield store
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


@pytest.fixture
async def context(
    world: World, cluster: Cluster, said: list[str], dependencies: Dependencies
) -> AsyncIterator[GlobalContext]:
    """A store of all entries, as in the controller."""
    writer = StatusWriter(entries=cluster, clock=world.clock, warn=said.append)
    async with running(GlobalContext(dependencies, verdicts=writer)) as found:
        yield found


@pytest.fixture
async def some(dependencies: Dependencies, said: list[str]) -> AsyncIterator[GlobalContext]:
    """A store of the requested entries only, as in an admission server."""
    pace = replace(SHORT, patience=0.05, missing=0.05)
    store = GlobalContext(
        replace(dependencies, pace=pace),
        verdicts=ProblemLog(warn=said.append),
        wanted=frozenset(),
    )
    async with running(store) as found:
        yield found


async def read(context, name="teams"):
    return await context.load(GlobalLoad(name=name))


async def reason(context, name="teams"):
    with pytest.raises(NotReady) as refused:
        await read(context, name)
    return str(refused.value)


async def follow(cluster, *objects, **spec):
    """Store an entry, send its objects, and return their stream."""
    known = len(cluster.objects)
    cluster.entries.give(entry(**{**PODS, **spec}))
    await eventually(lambda: len(cluster.objects) > known)
    stream = cluster.objects[-1][2]
    stream.give(*objects)
    return stream


class TestReading:
    async def test_objects_are_returned_in_order_and_without_managed_fields(
        self, context, cluster
    ):
        await follow(cluster, pod("b"), pod("a", "z"), pod("a", managedFields=[1]))
        assert await read(context) == [pod("a"), pod("b"), pod("a", "z")]

    async def test_changes_and_deletions_of_objects_are_followed(self, context, cluster):
        stream = await follow(cluster, pod("a"), pod("b"))
        assert len(await read(context)) == 2
        stream.give(pod("a"), change="DELETED")
        stream.give(pod("b", labels={"x": "y"}), change="MODIFIED")
        await eventually(stream.queue.empty)
        assert await read(context) == [pod("b", labels={"x": "y"})]

    async def test_objects_in_the_namespace_of_kube_retrofit_are_not_kept(self, context, cluster):
        await follow(cluster, pod("a", "kyverno"), pod("b"))
        assert await read(context) == [pod("b")]

    async def test_an_entry_without_objects_is_an_empty_list(self, context, cluster):
        await follow(cluster)
        assert await read(context) == []

    async def test_a_projection_follows_the_data(self, context, cluster):
        names = [{"name": "names", "jmesPath": "[].metadata.name"}]
        stream = await follow(cluster, pod("a"), projections=names)
        assert await read(context, "teams.names") == ["a"]
        stream.give(pod("b"))
        await eventually(stream.queue.empty)
        assert await read(context, "teams.names") == ["a", "b"]
        assert "has no projection other (it has names)" in await reason(context, "teams.other")

    async def test_other_loads_are_passed_to_the_loader(self, context, cluster):
        cluster.answers = [{"a": 1}]
        assert await context.load(ApiLoad(method="GET", path="/x")) == {"a": 1}


COPIES = f"[{', '.join(['@'] * 100)}][]"
COSTLY = f"{COPIES} | {COPIES} | length(map(&parse_json('[1,2,3]'), @))"
"""An expression on a list that processes ten thousand times as many elements."""


@contextlib.asynccontextmanager
async def turns():
    """Yield the processor times of this process between turns of the event loop, in seconds."""
    costs = []

    async def turn():
        while True:
            begun = time.process_time()
            await asyncio.sleep(0.001)
            costs.append(time.process_time() - begun)

    turning = asyncio.create_task(turn())
    yield costs
    turning.cancel()


class TestCostlyProjections:
    """Costly projections do not block the event loop."""

    @staticmethod
    def projections(number=1, expression=COSTLY):
        return [{"name": f"p{at}", "jmesPath": expression} for at in range(number)]

    async def test_costly_projections_do_not_block_the_event_loop(self, context, cluster):
        objects = [pod("a"), pod("b")]
        begun = time.process_time()
        assert compile_expression(COSTLY).search(objects) == 20_000
        alone = time.process_time() - begun
        async with turns() as costs:
            stream = await follow(cluster, *objects, projections=self.projections(2))
            assert await read(context, "teams.p1") == 20_000
            stream.give(pod("c"))
            await eventually(stream.queue.empty)
            assert await read(context, "teams.p0") == 30_000
        assert max(costs) < alone / 3

    async def test_concurrent_reads_share_one_evaluation(self, context, cluster, isolated):
        objects = [pod("a"), pod("b")]
        await follow(cluster, *objects, projections=self.projections())
        found = await asyncio.gather(*(read(context, "teams.p0") for _ in range(20)))
        assert found == [20_000] * 20
        assert isolated.evaluations == 1

    async def test_a_projection_that_takes_too_long_is_reported(self, context, cluster):
        endless = f"{COPIES} | {COPIES} | {COPIES} | length(map(&parse_json('[1,2,3]'), @))"
        objects = [pod(f"p{number}") for number in range(12)]
        await follow(cluster, *objects, projections=self.projections(expression=endless))
        assert await reason(context) == (
            "GlobalContextEntry teams is not ready: projection p0: the expression visits more than"
            " 1000000 elements; narrow it down"
        )

    async def test_an_interrupted_evaluation_is_tried_again(
        self, world, context, cluster, isolated
    ):
        isolated.failures = [Interrupted("ended by SIGKILL")]
        objects = [pod("a"), pod("b")]
        await follow(cluster, *objects, projections=self.projections())
        assert "projection p0: ended by SIGKILL" in await reason(context)
        ready = asyncio.Event()
        context.ready.subscribe(ready.set)
        world.clock.tick(60)
        await asyncio.wait_for(ready.wait(), 20)
        assert await read(context, "teams.p0") == 20_000

    async def test_the_deletion_of_an_entry_cancels_its_evaluation(
        self, context, cluster, isolated
    ):
        isolated.go_on.clear()
        objects = [pod("a"), pod("b")]
        await follow(cluster, *objects, projections=self.projections())
        await eventually(lambda: isolated.evaluations)
        cluster.entries.give(entry(**PODS), change="DELETED")
        await eventually(lambda: isolated.cancelled)


class TestVerdicts:
    async def test_each_change_of_readiness_is_reported_and_counted(self, context, cluster, world):
        reported = []
        context.verdicts.judged.subscribe(
            lambda entry, problem: reported.append((entry["metadata"]["name"], problem))
        )
        stream = await follow(cluster, pod("a"))
        await eventually(lambda: reported == [("teams", "")])
        assert context.readable() == (1, 0)
        stream.problem = "the watch ended"
        world.clock.tick(STALE + 5)
        await eventually(lambda: len(reported) > 1)
        assert "the watch ended" in reported[1][1]
        assert (context.readable(), len(reported)) == ((0, 1), 2)


class TestWanted:
    """Only the entries that rules of the admission phase name are kept."""

    async def test_an_entry_is_followed_only_while_it_is_wanted(self, some, cluster):
        cluster.entries.give(entry(**PODS))
        await eventually(cluster.entries.synced.is_set)
        assert not cluster.objects
        some.want(frozenset({"teams"}))
        await eventually(lambda: cluster.objects)
        stream = cluster.objects[0][2]
        stream.give(pod("a"))
        assert await read(some) == [pod("a")]
        some.want(frozenset({"teams", "other"}))
        assert await read(some) == [pod("a")]
        some.want(frozenset())
        await eventually(lambda: not stream.open)
        some.want(None)
        await eventually(lambda: len(cluster.objects) == 2)

    async def test_an_entry_deleted_before_it_is_wanted_is_not_kept(self, some, cluster):
        cluster.entries.give(entry(**PODS))
        cluster.entries.give(entry(**PODS), change="DELETED")
        await eventually(cluster.entries.queue.empty)
        some.want(frozenset({"teams"}))
        assert await reason(some) == "there is no GlobalContextEntry teams: create it"

    async def test_an_entry_that_the_watch_may_not_have_reported_yet_is_waited_for(
        self, some, cluster, world
    ):
        cluster.entries.give()
        some.want(frozenset({"teams"}))
        waiting = asyncio.create_task(read(some))
        await asyncio.sleep(0)
        cluster.answers = [[1]]
        cluster.entries.give(entry(**CALL))
        assert await waiting == [1]
        cluster.entries.give(entry(**CALL), change="DELETED")
        await eventually(cluster.entries.queue.empty)
        assert "there is no" in await reason(some)
        world.clock.tick(1)
        begun = time.monotonic()
        assert "there is no" in await reason(some)
        assert time.monotonic() - begun < 0.04, "it was known that it is missing"

    async def test_a_read_waits_only_briefly_for_an_evaluation(self, some, cluster, isolated):
        isolated.go_on.clear()
        some.want(frozenset({"teams"}))
        costly = [{"name": "p", "jmesPath": COSTLY}]
        stream = await follow(cluster, pod("a"), pod("b"), projections=costly)
        assert await reason(some, "teams.p") == (
            "GlobalContextEntry teams is not ready: its projections are not evaluated yet"
        )
        isolated.go_on.set()
        await eventually(lambda: sum(some.readable()) == some.readable()[0])
        isolated.go_on.clear()
        stream.give(pod("c"))
        await eventually(stream.queue.empty)
        assert "it takes longer than 0.05 s to evaluate" in await reason(some, "teams.p")

    async def test_begun_waits_until_all_wanted_entries_are_read_or_have_failed(
        self, some, cluster, world
    ):
        cluster.answers = [Unavailable("no")]
        some.want(frozenset({"teams", "calls", "missing"}))
        begun = asyncio.create_task(some.begun())
        cluster.entries.give(entry(**PODS), entry("calls", uid="v", **CALL))
        await eventually(lambda: cluster.objects)
        assert not begun.done()
        cluster.objects[0][2].give(pod("a"))
        await eventually(lambda: world.clock.tick(1) or begun.done())
        assert await read(some) == [pod("a")]

    async def test_a_problem_of_a_wanted_entry_is_logged_and_not_written_to_its_status(
        self, some, cluster, said
    ):
        cluster.answers = [Unavailable("no")]
        some.want(frozenset({"teams"}))
        cluster.entries.give(entry(**CALL))
        await eventually(lambda: said == ["GlobalContextEntry teams: no"])
        cluster.answers = [[1]]
        await eventually(lambda: said[1:] == ["GlobalContextEntry teams: rules can read it again"])
        assert not cluster.statuses


class TestNotReady:
    async def test_a_read_reports_why_an_entry_is_missing(self, context, cluster):
        assert "not listed yet" in await reason(context)
        cluster.entries.problem = "list globalcontextentries: no"
        assert "list globalcontextentries: no" in await reason(context)
        cluster.entries.give()
        await eventually(cluster.entries.synced.is_set)
        assert await reason(context) == "there is no GlobalContextEntry teams: create it"

    async def test_a_read_waits_for_the_first_list_of_objects(self, context, cluster):
        cluster.entries.give(entry(**PODS))
        await eventually(lambda: cluster.objects)
        waiting = asyncio.create_task(read(context))
        await asyncio.sleep(0)
        cluster.objects[0][2].give(pod("a"))
        assert await waiting == [pod("a")]

    @pytest.mark.parametrize(
        "wanted",
        [
            {"version": "v1", "resource": "secrets", "namespace": "kyverno"},
            {"group": "coordination.k8s.io", "version": "v1", "resource": "leases"},
            {"group": "kyverno.io", "version": "v2", "resource": "updaterequests"},
        ],
    )
    async def test_protected_objects_are_not_followed(self, context, cluster, wanted):
        cluster.entries.give(entry(kubernetesResource=wanted))
        await eventually(cluster.entries.synced.is_set)
        assert "polic" in await reason(context)
        assert not cluster.objects

    async def test_an_entry_of_an_unserved_kind_is_not_ready(self, context, cluster):
        cluster.entries.give(
            entry(kubernetesResource={"group": "x.example", "version": "v1", "resource": "xs"})
        )
        await eventually(lambda: sum(context.readable()))
        assert "does not serve xs of x.example/v1" in await reason(context)

    async def test_a_namespace_for_a_cluster_scoped_kind_is_reported(self, context, cluster):
        wanted = {"version": "v1", "resource": "nodes", "namespace": "a"}
        cluster.entries.give(entry(kubernetesResource=wanted))
        await eventually(lambda: sum(context.readable()))
        assert "nodes are in no namespace" in await reason(context)

    async def test_objects_are_stale_once_their_watch_has_failed_for_too_long(
        self, world, context, cluster
    ):
        stream = await follow(cluster, pod("a"))
        assert await read(context)
        stream.problem = "watch pods: forbidden"
        assert await read(context)
        world.clock.tick(STALE + 1)
        assert "watch pods: forbidden" in await reason(context)
        stream.problem = ""
        assert await read(context)

    async def test_objects_above_the_byte_limit_are_not_kept(self, context, cluster):
        stream = await follow(cluster, *TOO_MUCH)
        await eventually(lambda: not stream.open and stream.queue.qsize() < 30)
        assert "more than 2000 bytes (--max-entry)" in await reason(context)
        assert len(cluster.objects) == 1

    async def test_an_object_that_is_nested_too_deeply_is_named(self, context, cluster):
        deep = reduce(lambda inner, _: {"a": inner}, range(300), {})
        stream = await follow(cluster, {**pod("p"), "spec": deep})
        await eventually(lambda: not stream.open)
        assert "a/p is nested too deeply" in await reason(context)

    async def test_a_projection_is_evaluated_anew_after_there_were_too_many_objects(
        self, dependencies, cluster, said
    ):
        impatient = replace(dependencies, pace=replace(SHORT, too_much=0.001))
        writer = StatusWriter(entries=cluster, clock=dependencies.clock, warn=said.append)
        size = [{"name": "count", "jmesPath": "length(@)"}]
        async with running(GlobalContext(impatient, verdicts=writer)) as context:
            stream = await follow(cluster, pod("a"), projections=size)
            assert await read(context, "teams.count") == 1
            stream.give(pod("b", note="x" * 3_000))
            await eventually(lambda: len(cluster.objects) == 2)
            cluster.objects[1][2].give()
            await eventually(cluster.objects[1][2].queue.empty)
            assert await read(context, "teams.count") == 0

    async def test_objects_above_the_byte_limit_are_listed_again_until_they_fit(
        self, dependencies, cluster, said
    ):
        pace = replace(SHORT, too_much=0.001)
        store = GlobalContext(
            replace(dependencies, pace=pace), verdicts=ProblemLog(warn=said.append)
        )
        async with running(store) as context:
            first = await follow(cluster, *TOO_MUCH)
            await eventually(lambda: len(cluster.objects) == 2)
            second = cluster.objects[1][2]
            second.give(*TOO_MUCH)
            await eventually(lambda: len(cluster.objects) == 3)
            assert (first.open, second.open) == (False, False)
            # The third list has not arrived, and nothing is left of the others.
            assert "its data was not read yet" in await reason(context)
            cluster.objects[2][2].give(pod("a"))
            assert await read(context) == [pod("a")]
            assert len(cluster.objects) == 3

    async def test_projections_that_are_not_evaluated_yet_are_not_a_failure(
        self, context, cluster
    ):
        reported = []
        context.verdicts.judged.subscribe(lambda _entry, problem: reported.append(problem))
        names = [{"name": f"p{at}", "jmesPath": "[].metadata.name"} for at in range(20)]
        await follow(cluster, pod("a"), projections=names)
        await eventually(lambda: reported)
        assert reported == [""]

    async def test_a_projection_fails_until_the_data_fits_it(self, context, cluster):
        size = [{"name": "size", "jmesPath": "abs([0].metadata.size)"}]
        stream = await follow(cluster, pod("a", size="text"), projections=size)
        assert "projection size: " in await reason(context)
        stream.give(pod("a", size=2), change="MODIFIED")
        await eventually(stream.queue.empty)
        assert await read(context, "teams.size") == 2

    async def test_a_stored_entry_that_cannot_be_compiled_is_not_ready(self, context, cluster):
        cluster.entries.give(entry(apiCall={}))
        await eventually(lambda: sum(context.readable()))
        assert "spec.apiCall: either a urlPath or a service" in await reason(context)


class TestCalls:
    async def test_the_answer_of_a_call_is_kept(self, context, cluster):
        cluster.answers = [{"items": [1]}]
        cluster.entries.give(entry(**CALL))
        assert await read(context) == {"items": [1]}
        assert await read(context) == {"items": [1]}
        assert cluster.calls == 1

    async def test_a_failed_refresh_is_retried_within_the_limit_of_the_entry(
        self, dependencies, cluster, said
    ):
        paused: list[float] = []

        def spread(pause: float) -> float:
            paused.append(pause)
            return 0.001 if len(paused) < 3 else 3600.0

        store = GlobalContext(
            replace(dependencies, pace=replace(SHORT, first=1.0, longest=60.0), spread=spread),
            verdicts=ProblemLog(warn=said.append),
        )
        # The limit of the entry is three: two failures are within it, and three are not.
        cluster.answers = [Unavailable("no"), Unavailable("no"), [1]]
        cluster.entries.give(entry(**CALL))
        async with running(store) as context:
            assert await read(context) == [1]
            assert (cluster.calls, paused) == (3, [])
            cluster.answers, cluster.calls = [Unavailable("no")], 0
            cluster.entries.give(entry(generation=2, **CALL), change="MODIFIED")
            await eventually(lambda: len(paused) == 3)
            assert await reason(context) == "GlobalContextEntry teams is not ready: no"
            # Three refreshes of three tries each, after a longer and longer pause.
            assert (cluster.calls, paused) == (9, [1.0, 2.0, 4.0])

    async def test_a_failed_refresh_drops_the_old_answer_until_the_next_success(
        self, context, cluster
    ):
        cluster.answers = [[1], Unavailable("service t: HTTP 500")]
        spec = {"apiCall": {**CALL["apiCall"], "refreshInterval": "1s", "retryLimit": 1}}
        cluster.entries.give(entry(**spec))
        assert await read(context) == [1]
        await eventually(lambda: cluster.calls > 1)
        assert await reason(context) == (
            "GlobalContextEntry teams is not ready: service t: HTTP 500"
        )
        await eventually(lambda: context.readable() == (0, 1))
        cluster.answers = [[2]]
        await eventually(lambda: context.readable() == (1, 0))
        assert await read(context) == [2]

    async def test_a_missing_right_is_reported_after_one_call(self, context, cluster):
        missing = Forbidden("list nodes: no", permission="list nodes")
        cluster.answers = [missing]
        cluster.entries.give(entry(**CALL))
        await eventually(lambda: cluster.calls)
        assert "list nodes: no" in await reason(context)


class TestLife:
    async def test_an_entry_is_followed_anew_after_a_change_of_spec_but_not_of_labels(
        self, context, cluster
    ):
        first = await follow(cluster, pod("a"))
        assert await read(context)
        labelled = entry(**PODS)
        labelled["metadata"]["labels"] = {"x": "y"}
        cluster.entries.give(labelled, change="MODIFIED")
        cluster.entries.give(entry("other", uid="v", **PODS))
        await eventually(lambda: sum(context.readable()) == 2)
        assert first.open
        second = await follow(cluster, pod("b"), generation=2)
        await eventually(lambda: not first.open)
        assert second.open
        assert await read(context) == [pod("b")]

    async def test_a_deleted_entry_is_no_longer_followed(self, context, cluster):
        stream = await follow(cluster, pod("a"))
        assert await read(context)
        cluster.entries.give(entry(**PODS), change="DELETED")
        await eventually(lambda: not stream.open)
        assert "there is no GlobalContextEntry teams" in await reason(context)

    async def test_subscribers_are_notified_when_an_entry_becomes_ready(self, context, cluster):
        ready = []
        context.ready.subscribe(lambda: ready.append(1))
        cluster.answers = [Unavailable("no")]
        cluster.entries.give(entry(**CALL))
        await eventually(lambda: cluster.calls > 3)
        assert not ready
        cluster.answers = [[1]]
        await eventually(lambda: ready)

    async def test_an_internal_error_affects_only_its_entry(self, context, cluster):
        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: reported.append(facts))
        cluster.answers = [RuntimeError("a bug")]
        cluster.entries.give(entry(**CALL), entry("other", uid="v", **PODS))
        await eventually(lambda: reported and cluster.objects)
        cluster.objects[0][2].give(pod("a"))
        assert await read(context, "other") == [pod("a")]
        assert "kube-retrofit failed on it (RuntimeError)" in await reason(context)

    async def test_the_status_reports_failure_and_recovery(self, world, context, cluster, said):
        cluster.answers = [Unavailable("no")]
        cluster.entries.give(entry(**CALL))
        world.clock.tick(1)
        await eventually(lambda: cluster.statuses)
        (bad,) = cluster.statuses[0]["conditions"]
        assert (bad["status"], bad["message"], bad["observedGeneration"]) == ("False", "no", 1)
        assert said == ["GlobalContextEntry teams: no"]
        cluster.answers = [[1]]
        await eventually(lambda: context.readable() == (1, 0))
        world.clock.tick(3)
        await eventually(lambda: len(cluster.statuses) == 2)
        assert cluster.statuses[1]["conditions"][0]["status"] == "True"
        assert cluster.statuses[1]["lastRefreshTime"]

    async def test_the_refresh_time_of_a_busy_kind_is_written_rarely(
        self, world, context, cluster
    ):
        stream = await follow(cluster, pod("a"))
        await eventually(lambda: len(cluster.statuses) == 1)
        written = []
        for number in range(7):
            world.clock.tick(10)
            stream.give(pod(f"b{number}"))
            await eventually(stream.queue.empty)
            await context.look()
            written.append(len(cluster.statuses))
        assert written == [1, 1, 2, 2, 2, 3, 3]
        assert "conditions" not in cluster.statuses[1]

    async def test_a_status_write_that_conflicts_is_repeated_later(self, world, context, cluster):
        cluster.refuse = True
        await follow(cluster, pod("a"))
        await eventually(lambda: cluster.refused)
        assert not cluster.statuses
        cluster.refuse = False
        world.clock.tick(3)
        await eventually(lambda: cluster.statuses)


async def test_a_sweep_that_needs_a_missing_entry_waits_as_one_request(world, make):
    read_entry = {"name": "known", "globalReference": {"name": "teams"}}
    policy = world.install(
        make.policy(
            patch={"metadata": {"labels": {"done": "{{ known }}"}}},
            on_change=True,
            context=[read_entry],
        )
    )
    world.cluster.add(make.object("Secret", "s"))
    for name in ("1", "2"):
        world.cluster.add(make.object("ConfigMap", name))
    answers = []

    async def load(load):
        if not answers:
            raise NotReady(f"there is no GlobalContextEntry {load.name}: create it")
        return answers[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.loader, "load", load)
        facts = {"source": Source.POLICY_CHANGE, "sweep": True}
        world.dispatcher.on_stored(
            await world.ask(policy, policy, name="sweep-1", operation="", **facts)
        )
        await world.settle()
        status = await world.status("sweep-1")
        assert (status.state, status.reason) == ("Pending", "EntryNotReady")
        assert [item.name async for item in world.requests.waiting()] == ["sweep-1"]

        answers.append("yes")
        world.dispatcher.wake_parked("Forbidden")
        await world.settle()
        assert (await world.status("sweep-1")).state == "Pending"
        world.dispatcher.wake_parked("EntryNotReady")
        await world.settle()
        assert (await world.status("sweep-1")).state == "Completed"
