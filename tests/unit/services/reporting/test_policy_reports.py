"""Policy reports: their results, how often they are written, and when results are removed."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef, policy_ref
from reconciler.api.policyreport import MAX_RESULTS
from reconciler.api.updaterequest import (
    Outcome,
    RequestSpec,
    RequestStatus,
    State,
    TargetStatus,
)
from reconciler.dialects.registry import OPTIONAL_KINDS, POLICY_KINDS
from reconciler.errors import (
    Conflict,
    Denied,
    Forbidden,
    NamespaceTerminating,
    NoKindMatch,
    NotFound,
    Unauthorized,
    Unavailable,
)
from reconciler.installation import REPLACING
from reconciler.services.reporting.policy_reports import DISABLED, Reports
from tests.calls import counted
from tests.holding import holds
from tests.skipping import SkippingLoop
from tests.unit.services.conftest import Make, World
from tests.unit.services.hooks.world import LoopClock


class Store:
    """Reports in memory with resource versions; records the calls."""

    def __init__(self):
        self.stored = {}
        self.calls = []
        self.fault = None
        self.on_put = lambda: None

    async def get(self, namespace):
        self.calls.append("get")
        if self.fault:
            raise self.fault
        return self.stored.get(namespace)

    async def put(self, namespace, report):
        live = self.stored.get(namespace)
        version = report["metadata"].get("resourceVersion", "")
        self.calls.append("put")
        self.on_put()
        if version != (live or {"metadata": {}})["metadata"].get("resourceVersion", ""):
            raise Conflict(namespace, status=409)
        meta = {**report["metadata"], "resourceVersion": str(len(self.calls))}
        self.stored[namespace] = {**report, "metadata": meta}

    async def delete(self, namespace):
        self.calls.append("delete")
        self.stored.pop(namespace, None)

    async def namespaces(self):
        self.calls.append("namespaces")
        if self.fault:
            raise self.fault
        return frozenset(self.stored)

    def results(self, namespace="a"):
        report = self.stored.get(namespace)
        return None if report is None else [outcome_of(item) for item in report["results"]]


def outcome_of(raw):
    return raw["resources"][0]["name"], raw["result"], raw["message"]


@pytest.fixture
def store() -> Store:
    return Store()


def reports_of(world: World, store: Store) -> Reports:
    """Return the reports of a new leader."""
    return Reports(
        store=store,
        index=world.index,
        policies=world.policies,
        kinds=world.cluster,
        reader=world.wire,
        clock=world.clock,
        warn=pytest.fail,
    )


@pytest.fixture
def reports(world: World, make: type[Make], store: Store) -> Reports:
    reports = reports_of(world, store)
    world.install(make.policy())
    return reports


def spec(policy="p", rule="r"):
    ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace="a", name="c")
    return RequestSpec(policy=policy_named(policy), rule=rule, resource=ref)


def came(name="s", outcome=Outcome.PATCHED, message="", namespace="a", kind="Secret"):
    ref = ObjectRef(api_version="v1", kind=kind, namespace=namespace, name=name)
    return TargetStatus(ref=ref, outcome=outcome, message=message)


@pytest.fixture
def write(world: World, reports: Reports) -> Callable[..., Awaitable[None]]:
    """Return a function that advances the clock and writes the reports that are due."""

    async def run(seconds=10.0):
        world.clock.tick(seconds)
        await reports.write_due()

    return run


async def test_a_report_lists_the_outcome_of_each_target(store, reports, write):
    reports.add(spec(), [came()])
    await write()
    report = store.stored["a"]
    assert (report["kind"], report["metadata"]["name"]) == ("PolicyReport", REPLACING.prefix)
    assert report["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "kyverno"
    assert report["summary"] == {"pass": 1, "fail": 0, "warn": 0, "error": 0, "skip": 0}
    (result,) = report["results"]
    assert (result["policy"], result["rule"], result["result"]) == ("p", "r", "pass")
    assert result["message"] == "mutated Secret/s in namespace a"
    wanted = "/v1, Kind=Secret Name=s Namespace=a"
    assert result["properties"] == {"patched-target": wanted}


def modrule():
    """Return the ModRule ``a/p``, which runs on existing objects."""
    return {
        "apiVersion": "api.kubemod.io/v1beta1",
        "kind": "ModRule",
        "metadata": {
            "name": "p",
            "namespace": "a",
            "annotations": {"kube-retrofit.dev/existing": "true"},
        },
        "spec": {
            "type": "Patch",
            "match": [{"select": "$.kind", "matchValue": "ConfigMap"}],
            "patch": [{"op": "add", "path": "/metadata/labels/a", "value": "b"}],
        },
    }


async def test_results_of_a_modrule_are_reported(world, store, reports, write):
    stored = world.install(modrule())
    (program,) = world.index.get(policy_ref(stored)).in_background
    reports.add(replace(spec(rule=program.rule), policy=policy_ref(stored)), [came()])
    await write()
    assert store.results() == [("s", "pass", "mutated Secret/s in namespace a")]
    world.remove(stored)
    world.index.on_deleted(stored)
    await write()
    assert store.results() is None


def ended(request, moment, *targets):
    """Return the request as completed at a moment."""
    status = RequestStatus(state=State.COMPLETED, finished=moment, targets=targets)
    return replace(request, status=status)


async def test_results_that_a_killed_process_did_not_write_are_recovered(
    world, make, store, reports, write
):
    trigger = world.cluster.add(make.object())
    request = await world.ask(await world.read(make.policy()), trigger)
    reports.add(spec(), [came("newer", Outcome.FAILED, "no")])
    stored_at = world.clock.now()
    await write()
    world.clock.tick(90)
    reports.on_recovered(ended(request, stored_at - timedelta(seconds=50), came("too-old")))
    reports.on_recovered(
        ended(
            request,
            stored_at + timedelta(seconds=5),
            came("s"),
            came("gone", Outcome.NOT_FOUND),
        )
    )
    reports.on_recovered(ended(request, stored_at, came("newer")))
    await write()
    assert store.results() == [
        ("newer", "error", "no"),
        ("s", "pass", "mutated Secret/s in namespace a"),
    ]
    (_, recovered) = store.stored["a"]["results"]
    assert recovered["timestamp"]["seconds"] == int(stored_at.timestamp()) + 5


async def test_outcomes_become_results(store, reports, write):
    reports.add(
        spec(),
        [
            came("one", Outcome.UNCHANGED),
            came("dropped", Outcome.UNCHANGED, "the API server stored nothing"),
            came("two", Outcome.SKIPPED, "preconditions not met"),
            came("three", Outcome.INVALID, "field is immutable"),
            came("four", Outcome.NOT_FOUND, "not found"),
        ],
    )
    await write()
    assert sorted(store.results()) == [
        ("dropped", "pass", "Secret/dropped in namespace a: the API server stored nothing"),
        ("one", "pass", "Secret/one in namespace a: already as the rule requires"),
        ("three", "error", "field is immutable"),
        ("two", "skip", "preconditions not met"),
    ]
    assert store.stored["a"]["summary"]["error"] == 1


async def test_a_report_that_takes_long_to_write_is_written_less_often(
    world, store, reports, write
):
    def results():
        reports.add(spec(), [came(f"s-{len(store.calls)}")])

    store.on_put = lambda: (world.clock.tick(0.7), results())
    results()
    await write(1.0)
    store.on_put = lambda: None
    assert store.calls.count("put") == 1
    await write(13.0)
    assert store.calls.count("put") == 1
    await write(1.1)
    assert store.calls.count("put") == 2
    results()
    await write(5.0)
    assert store.calls.count("put") == 3


async def test_results_that_arrive_together_are_one_write(store, reports, write):
    for number in range(100):
        reports.add(spec(), [came(f"s-{number}")])
    await write()
    assert store.calls == ["namespaces", "get", "put"]
    assert store.stored["a"]["summary"]["pass"] == 100


async def test_writes_of_one_report_are_spaced_out(store, reports, write):
    reports.add(spec(), [came()])
    await write()
    for number in range(4):
        reports.add(spec(), [came(f"s-{number}")])
        await write(1)
    assert store.calls.count("put") == 1
    await write(1)
    assert store.calls.count("put") == 2
    assert len(store.results()) == 5


def test_results_in_thousands_of_namespaces_are_recorded_in_a_moment(reports):
    results = [came(namespace=f"n-{number}") for number in range(6_000)]
    begun = time.process_time()
    reports.add(spec(), results)
    reports.add(spec(), results)
    assert time.process_time() - begun < 1.5


@pytest.mark.parametrize("failing", [False, True])
async def test_results_beyond_the_limit_of_waiting_ones_are_dropped(
    reports, store, write, failing
):
    reports.most = 3
    store.fault = Unavailable("no") if failing else None
    for name in ("a", "a", "b", "c"):
        reports.add(spec(), [came(name)])
    with contextlib.suppress(Unavailable):
        await write()
    store.fault = None
    reports.add(spec(), [came(name) for name in ("d", "e", "f")])
    assert reports.dropped == (3 if failing else 0)
    reports.add(spec(), [came("g")])
    assert reports.dropped == (4 if failing else 1)


async def test_the_reports_of_many_namespaces_take_turns(store, reports, write):
    for number in range(6):
        reports.add(spec(), [came(namespace=f"n-{number}")])
    await write()
    assert len(store.stored) == 2
    await write(1)
    await write(1)
    assert len(store.stored) == 6


async def test_an_unchanged_result_is_not_written_again(store, reports, write):
    failed = came("other", Outcome.INVALID, "no")
    reports.add(spec(), [came(), failed])
    await write()
    reports.add(spec(), [came(outcome=Outcome.UNCHANGED), failed])
    await write()
    assert store.calls.count("put") == 1
    assert ("s", "pass", "mutated Secret/s in namespace a") in store.results()


async def test_a_later_result_replaces_an_earlier_one(store, reports, write):
    reports.add(spec(), [came(outcome=Outcome.FORBIDDEN, message="grant it")])
    await write()
    reports.add(spec(), [came()])
    await write()
    assert [result for _, result, _ in store.results()] == ["pass"]


async def test_cluster_scoped_targets_have_a_report_of_their_own(store, reports, write):
    reports.add(spec(), [came("n", kind="Namespace", namespace="")])
    await write()
    assert store.stored[""]["kind"] == "ClusterPolicyReport"
    assert store.results("") == [("n", "pass", "mutated Namespace/n")]


async def test_a_full_report_keeps_failures_and_the_newest_results(store, world, reports, write):
    reports.add(spec(), [came("bad", Outcome.INVALID, "no")])
    reports.add(spec(), [came("oldest")])
    await write()
    world.clock.tick(60)
    for number in range(MAX_RESULTS - 1):
        reports.add(spec(), [came(f"s-{number}")])
    await write()
    names = [name for name, _, _ in store.results()]
    assert len(names) == MAX_RESULTS
    assert names[0] == "bad"
    assert "oldest" not in names
    assert "kube-retrofit.dev/shortened" in store.stored["a"]["metadata"]["annotations"]


class TestGone:
    async def test_results_of_a_deleted_policy_are_removed(
        self, world, make, store, reports, write
    ):
        other = world.install(make.policy("q"))
        reports.add(spec(), [came()])
        reports.add(spec("q"), [came()])
        await write()
        world.remove(other)
        world.forget("q")
        await write()
        assert len(store.results()) == 1
        world.remove(make.policy())
        world.forget("p")
        await write()
        assert store.stored == {}

    async def test_results_of_a_removed_rule_are_removed(self, world, make, store, reports, write):
        reports.add(spec(), [came()])
        await write()
        changed = make.policy()
        changed["spec"]["rules"][0]["name"] = "other"
        stored = await world.edit(changed, spec=changed["spec"])
        world.index.apply(stored)
        await write()
        assert store.stored == {}

    async def test_results_of_a_policy_deleted_while_there_was_no_leader_are_removed(
        self, world, make, store, reports, write
    ):
        reports.add(spec("unknown"), [came()])
        reports.add(spec(), [came("kept")])
        await write()
        assert [name for name, *_ in store.results()] == ["kept"]

    async def test_a_policy_that_is_gone_is_read_once_for_all_of_its_results(
        self, world, store, reports, write
    ):
        reports.add(spec("unknown"), [came(f"s{number}") for number in range(20)])
        with counted(type(world.policies).get) as calls:
            await write()
        # A report does not say of which kind the policy was; one that only refuses is in none.
        kinds = [kind for kind in POLICY_KINDS if kind.kind != "ClusterValidatePolicy"]
        assert calls["get"] == sum(not kind.namespaced for kind in kinds)
        assert store.stored == {}

    async def test_a_policy_that_the_watch_has_not_delivered_yet_keeps_its_results(
        self, world, make, store, reports, write
    ):
        world.cluster.add(make.policy("late"))
        reports.add(spec("late"), [came()])
        await write()
        assert len(store.results()) == 1

    @pytest.mark.parametrize("namesake", [False, True], ids=["alone", "beside a Policy"])
    async def test_a_modrule_that_the_watch_has_not_delivered_yet_keeps_its_results(
        self, world, make, store, reports, write, namesake
    ):
        stored = world.install(modrule())
        (program,) = world.index.get(policy_ref(stored)).in_background
        reports.add(replace(spec(rule=program.rule), policy=policy_ref(stored)), [came()])
        await write()
        world.restart()
        if namesake:
            world.install(make.policy("p", namespace="a"))
        following = reports_of(world, store)
        world.clock.tick(10)
        await following.write_due()  # It learns which reports there are.
        world.clock.tick(10)
        await following.write_due()
        assert len(store.results()) == 1

    @pytest.mark.parametrize(
        "error", [Forbidden("no", permission="get modrules"), NoKindMatch("no", status=404)]
    )
    async def test_languages_that_are_not_installed_keep_no_results(
        self, world, store, reports, write, error
    ):
        get = world.policies.get

        async def refuse(ref):
            if (ref.api_version, ref.kind) in {
                (kind.api_version, kind.kind) for kind in OPTIONAL_KINDS
            }:
                raise error
            return await get(ref)

        world.policies.get = refuse
        reports.add(spec("unknown"), [came()])
        await write()
        assert store.stored == {}

    async def test_results_of_a_rule_are_removed_even_if_its_policy_is_delivered_late(
        self, world, make, store, reports, write
    ):
        world.cluster.add(make.policy("late"))
        reports.add(spec("late", rule="removed"), [came()])
        await write()
        assert store.stored == {}

    async def test_results_of_a_deleted_target_are_removed(
        self, world, make, store, reports, write
    ):
        secret = world.cluster.add(make.object("Secret", "s"))
        world.cluster.add(make.object("Secret", "kept"))
        reports.add(spec(), [came(), came("kept")])
        await write()
        await reports.look_at_targets()
        await write()
        assert len(store.results()) == 2
        world.remove(secret)
        await reports.look_at_targets()
        await write()
        assert [name for name, *_ in store.results()] == ["kept"]

    async def test_targets_are_checked_a_few_at_a_time(self, world, store, reports, write):
        for namespace in ("a", "b"):
            reports.add(spec(), [came(f"s-{n}", namespace=namespace) for n in range(30)])
        await write()
        for calls in (20, 30, 50, 60):
            await reports.look_at_targets()
            assert world.wire.calls["get"] == calls
        await write()
        assert store.stored == {}


async def test_a_policy_can_opt_out_of_reports(world, make, store, reports, write):
    reports.add(spec(), [came()])
    await write()
    world.index.apply(await world.edit(make.policy(), labels={DISABLED: "true"}))
    reports.add(spec(), [came("other")])
    store.calls.clear()
    await write()
    assert store.calls == []


async def test_disabled_reports_make_no_calls(store, reports, write):
    reports.enabled = False
    reports.add(spec(), [came()])
    await reports.run()
    assert store.calls == []


class TestFaults:
    async def test_a_conflict_is_retried(self, store, reports, write):
        reports.add(spec(), [came()])
        await write()
        put = store.put

        async def conflict(namespace, report):
            store.put = put
            raise Conflict(namespace, status=409)

        store.put = conflict
        reports.add(spec(), [came("other")])
        await write()
        assert len(store.results()) == 1
        await write()
        assert len(store.results()) == 2

    @pytest.mark.parametrize(
        "fault",
        [
            Unavailable("no answer"),
            Unauthorized("an expired token", status=401),
            Forbidden("no", permission="create policyreports"),
        ],
    )
    async def test_results_are_kept_while_they_cannot_be_written(
        self, store, reports, write, fault
    ):
        reports.add(spec(), [came()])
        await write(0)
        store.fault = fault
        with pytest.raises(type(fault)):
            await write()
        store.fault = None
        await write()
        assert len(store.results()) == 1

    async def test_results_for_a_deleted_namespace_are_dropped(self, store, reports, write):
        async def gone(namespace, report):
            raise NotFound(namespace, status=404)

        store.put = gone
        reports.add(spec(), [came()])
        await write()
        store.calls.clear()
        await write()
        await reports.look_at_targets()
        assert store.calls == []

    async def test_results_for_a_namespace_that_is_being_deleted_are_dropped_silently(
        self, store, reports, write
    ):
        async def ending(namespace, report):
            raise NamespaceTerminating(namespace, status=403)

        put, store.put = store.put, ending
        reports.add(spec(), [came()])
        await write()
        store.put = put
        await write()
        assert store.stored == {}

    def test_a_report_that_is_refused_delays_no_other(self, store, reports):
        said, put = [], store.put

        async def by_quota(namespace, report):
            if namespace == "a":
                raise Denied("exceeded quota", status=403)
            await put(namespace, report)

        store.put, reports.warn = by_quota, said.append

        async def work():
            running = asyncio.create_task(reports.run())
            for number in range(3):
                reports.add(spec(), [came(f"s-{number}")])
                reports.add(spec(), [came(namespace=f"b-{number}")])
                await asyncio.sleep(2)
            running.cancel()
            return await asyncio.gather(running, return_exceptions=True)

        reports.clock = LoopClock()
        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            runner.run(work())
        assert store.stored.keys() == {"b-0", "b-1", "b-2"}
        assert said == ["cannot write a report: exceeded quota"]

    async def test_namespaces_that_were_deleted_later_delay_the_check_of_no_other(
        self, world, make, store, reports, write
    ):
        """A namespace of each pull request, say: its report is deleted with it."""
        gone = [f"a-{number}" for number in range(15)]
        for namespace in (*gone, "b"):
            reports.add(spec(), [came(namespace=namespace)])
        world.cluster.add(make.object("Secret", "s", namespace="b"))
        while len(store.stored) <= len(gone):
            await write()
        for namespace in gone:
            del store.stored[namespace]
        await reports.look_at_targets()
        assert world.wire.calls["get"] == 1
        store.calls.clear()
        await reports.look_at_targets()
        assert store.calls == ["get"]
        await write(60)
        assert not any(holds(reports, namespace) for namespace in gone)

    def test_a_cluster_without_report_definitions_is_warned_about_once(self, store, reports):
        said = []
        reports.warn = said.append
        store.fault = NoKindMatch("no", status=404)
        reports.add(spec(), [came()])

        async def run():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reports.run(), 300)

        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            runner.run(run())
        (text,) = said
        assert "kubectl create -k crds/reports" in text
        assert 4 <= store.calls.count("namespaces") <= 6
