"""The webhook server over real HTTP, on an in-memory cluster."""

import asyncio
import logging
from collections.abc import AsyncIterator

import aiohttp
import orjson
import pytest
from typing_extensions import override

from admission.resources import CostlyRules
from reconciler.clock import SystemClock
from reconciler.requests.overload import Backlog, Thresholds
from tests.unit.admission.conftest import Make
from tests.unit.admission.serving import JSON, MAX_BODY, RECORDED, Away, Broken, Slow, Stuck, World
from tests.unit.admission.test_decide import MANY, bombs


class StillClock(SystemClock):
    """A clock that tests advance."""

    seconds = 1000.0

    @override
    def monotonic(self):
        return self.seconds


@pytest.fixture
async def world(make: type[Make]) -> AsyncIterator[World]:
    lax = make.policy("lax", uid="lax-uid", spec={"failurePolicy": "Ignore"})
    async with World(make.index(make.policy(), lax)) as world:
        yield world


async def test_a_trigger_is_stored_before_the_response(world, make):
    status, answer = await world.post("/validate/fail", make.review(obj=make.thing()))
    assert status == 200
    assert answer["response"]["allowed"] is True
    (request,) = await world.stored()
    assert (request.spec.policy.key, request.spec.rule) == ("set-team", "copy")
    assert world.count(
        "requests_recorded_total", policy="set-team", rule="copy", source="admission"
    )


async def test_a_closing_server_ends_a_connection_only_with_a_response(make):
    async with World(make.index(make.policy()), farewell=2.0) as world:
        await world.post("/validate/fail", make.review(obj=make.thing()))
        closing = asyncio.create_task(world.server.close())
        await asyncio.wait({closing}, timeout=0.1)
        async with world.session.post(
            "/validate/fail", data=make.review(obj=make.thing(), uid="second"), headers=JSON
        ) as response:
            assert response.headers["Connection"] == "close"
            assert (await response.json())["response"]["allowed"] is True
        await asyncio.wait_for(closing, 10)
        with pytest.raises(aiohttp.ClientConnectionError):
            await world.post("/validate/fail", make.review(obj=make.thing(), uid="third"))
        assert len(await world.stored()) == 2


async def test_a_closing_server_waits_while_callers_continue(make):
    async with World(make.index(make.policy()), farewell=0.5) as world:
        await world.post("/validate/fail", make.review(obj=make.thing()))
        closing = asyncio.create_task(world.server.close())
        for number in range(10):
            await asyncio.wait({closing}, timeout=0.1)
            answer = await world.post(
                "/validate/fail", make.review(obj=make.thing(), uid=f"late-{number}")
            )
            assert answer[0] == 200
        await asyncio.wait_for(closing, 5)


async def test_an_unknown_digest_makes_the_replica_read_policies_before_it_responds(make):
    index, reads = make.index(), []

    async def read_policies():
        reads.append("policies")
        index.apply(make.policy())

    registered = make.index(make.policy()).digest
    async with World(index, read_policies=read_policies) as world:
        path = f"/at/{registered}/validate/fail"
        for number in range(3):
            review = make.review(obj=make.thing(), uid=f"review-{number}")
            assert (await world.post(path, review))[1]["response"]["allowed"] is True
        assert len(await world.stored()) == 3
        assert reads == ["policies"]


async def test_a_digest_that_stays_unknown_causes_one_read_of_policies(make):
    index, reads = make.index(make.policy()), []

    async def read_policies():
        reads.append("policies")

    async with World(index, read_policies=read_policies) as world:
        for number in range(3):
            review = make.review(obj=make.thing(), uid=f"review-{number}")
            await world.post("/at/0123456789abcdef/validate/fail", review)
        assert len(await world.stored()) == 3
        assert reads == ["policies"]


async def test_beside_a_live_kyverno_everything_is_allowed_and_nothing_stored(make):
    reasons = ["a live Kyverno is in this cluster", ""]
    index = make.index(make.policy())
    async with World(index, standing_by=lambda: reasons.pop(0)) as world:
        for stored in (0, 1):
            _, answer = await world.post("/validate/fail", make.review(obj=make.thing()))
            assert answer["response"]["allowed"] is True
            assert len(await world.stored()) == stored


async def test_the_same_review_sent_twice_is_stored_as_one_request(world, make):
    body = make.review(obj=make.thing())
    for _ in range(2):
        _, answer = await world.post("/validate/fail", body)
        assert answer["response"]["allowed"] is True
    assert len(await world.stored()) == 1


async def test_the_path_selects_the_failure_policy(world, make):
    await world.post("/validate/ignore", make.review(obj=make.thing()))
    assert [item.spec.policy.key for item in await world.stored()] == ["lax"]


async def test_a_dry_run_stores_nothing(world, make):
    _, answer = await world.post("/validate/fail", make.review(obj=make.thing(), dryRun=True))
    assert answer["response"]["allowed"] is True
    assert await world.stored() == []


async def test_a_failed_write_is_denied_under_fail_and_admitted_under_ignore(world, make):
    world.cluster.forbid("create", "updaterequests.kyverno.io")
    _, answer = await world.post("/validate/fail", make.review(obj=make.thing()))
    response = answer["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 503
    assert (
        "could not record the work of rule copy of policy set-team"
        in (response["status"]["message"])
    )
    assert "create updaterequests.kyverno.io" in response["status"]["message"]
    _, answer = await world.post("/validate/ignore", make.review(obj=make.thing()))
    assert answer["response"]["allowed"] is True
    assert "grant" in answer["response"]["warnings"][0]
    assert world.count("requests_lost_total", reason="forbidden") == 1


async def test_a_trigger_admitted_without_a_request_is_reported_as_lost(make):
    reported = []
    lax = make.policy("lax", spec={"failurePolicy": "Ignore"})
    async with World(
        make.index(make.policy(), lax), lost=lambda: reported.append("lost")
    ) as world:
        await world.post("/validate/ignore", make.review(obj=make.thing()))
        world.cluster.forbid("create", "updaterequests.kyverno.io")
        await world.post("/validate/fail", make.review(obj=make.thing()))
        assert reported == []
        await world.post("/validate/ignore", make.review(obj=make.thing()))
        assert reported == ["lost"]


async def test_a_write_that_hangs_ends_with_the_budget(make):
    async with World(make.index(make.policy()), requests=Stuck) as world:
        _, answer = await world.post("/validate/fail", make.review(obj=make.thing()))
        assert "within 0.5 s" in answer["response"]["status"]["message"]


async def test_discovery_that_hangs_ends_with_the_budget(make):
    index = make.index(
        make.policy(resources={"kinds": ["Deployment/scale"]}),
        make.policy(
            "lax",
            uid="lax-uid",
            resources={"kinds": ["Deployment/scale"]},
            spec={"failurePolicy": "Ignore"},
        ),
    )
    reported = []
    async with World(index, cluster=Slow, lost=lambda: reported.append("lost")) as world:
        async with asyncio.timeout(5):
            _, strict = await world.post("/validate/fail", scale_review(make))
            _, lax = await world.post("/validate/ignore", scale_review(make))
        assert world.cluster.asked.is_set()
        assert strict["response"]["status"]["code"] == 503
        assert "within 0.5 s" in strict["response"]["status"]["message"]
        assert lax["response"]["allowed"] is True
        assert world.count("requests_lost_total", reason="unavailable") == 1
        assert reported == ["lost"]


async def test_all_waits_of_one_response_share_one_budget(make):
    clock = StillClock()

    async def slowly():
        clock.seconds += 60.0

    world = World(
        make.index(make.policy()), requests=Stuck, caught_up=slowly, clock=clock, budget=60.0
    )
    async with world, asyncio.timeout(5):
        _, answer = await world.post("/validate/fail", make.review(obj=make.thing()))
    assert "did not store it within 60 s" in answer["response"]["status"]["message"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"kind: AdmissionReview", JSON, 400, "not JSON"),
        (b"[]", JSON, 400, "a JSON array"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "text/plain"),
        (b"x" * (MAX_BODY + 1), JSON, 413, f"{MAX_BODY + 1} bytes long, the limit is {MAX_BODY}"),
    ],
)
async def test_a_body_that_is_not_a_review_is_refused_with_the_reason(
    world, body, headers, status, words
):
    found, answer = await world.post("/validate/fail", body, headers)
    assert found == status
    assert (answer["kind"], answer["code"]) == ("Status", status)
    assert words in answer["message"]


async def test_a_body_of_unknown_length_is_refused_before_it_is_read(world):
    async def chunks():
        for _ in range(3):
            yield b"x" * MAX_BODY

    found, answer = await world.post("/validate/fail", chunks())
    assert found == 411
    assert "Content-Length" in answer["message"]


async def test_unknown_paths_and_methods_are_refused_with_the_valid_ones(world):
    status, answer = await world.post("/mutate", b"{}")
    assert status == 404
    assert "/validate/fail" in answer["message"]
    async with world.session.get("/policies") as response:
        assert response.status == 405
        assert "POST" in orjson.loads(await response.read())["message"]


async def test_a_crash_is_answered_according_to_the_failure_policy(make, caplog):
    lax = make.policy("lax", uid="lax-uid", spec={"failurePolicy": "Ignore"})
    index = make.index(make.policy(), lax)
    async with World(index, namespaces=Broken()) as world:
        with caplog.at_level(logging.CRITICAL):
            _, strict = await world.post("/validate/fail", make.review(obj=make.thing()))
            _, lax = await world.post("/validate/ignore", make.review(obj=make.thing()))
        assert strict["response"]["allowed"] is False
        assert strict["response"]["status"]["code"] == 500
        assert "boom" not in orjson.dumps(strict).decode()
        assert "Traceback" not in orjson.dumps(strict).decode()
        assert lax["response"]["allowed"] is True
        assert world.count("requests_lost_total", reason="crash") == 1


async def test_policies_are_validated(world, make):
    _, answer = await world.post("/policies", make.review(obj=make.policy()))
    assert answer["response"]["allowed"] is True
    broken = make.policy()
    broken["spec"]["rules"][0]["match"] = {}
    _, answer = await world.post("/policies", make.review(obj=broken))
    assert answer["response"]["allowed"] is False
    assert "spec.rules[0].match" in answer["response"]["status"]["message"]


def scale_review(make):
    scale = make.thing(kind="Scale", api_version="autoscaling/v1", spec={"replicas": 3})
    resource = {"group": "apps", "version": "v1", "resource": "deployments"}
    return make.review("UPDATE", scale, scale, subResource="scale", resource=resource)


async def test_a_subresource_is_looked_up_by_its_parent(make):
    async with World(make.index(make.policy(resources={"kinds": ["Deployment/scale"]}))) as world:
        world.cluster.add(make.thing(kind="Deployment", api_version="apps/v1"))
        await world.post("/validate/fail", scale_review(make))
        (request,) = await world.stored()
        assert request.spec.resource.kind == "Scale"
        assert request.spec.recorded["object"]["metadata"]["name"] == "dict"


async def test_without_discovery_a_subresource_review_follows_the_failure_policy(make):
    index = make.index(make.policy(resources={"kinds": ["Deployment/scale"]}))
    async with World(index, cluster=Away) as world:
        _, strict = await world.post("/validate/fail", scale_review(make))
        _, lax = await world.post("/validate/ignore", scale_review(make))
        assert strict["response"]["allowed"] is False
        assert strict["response"]["status"]["code"] == 503
        assert "gone for lunch" in strict["response"]["status"]["message"]
        assert lax["response"]["allowed"] is True
        assert world.count("requests_lost_total", reason="unavailable") == 1


async def test_a_request_in_flight_is_answered_before_the_server_closes(make):
    async with World(make.index(make.policy()), requests=Stuck) as world:
        call = asyncio.create_task(world.post("/validate/fail", make.review(obj=make.thing())))
        await world.requests.begun.wait()
        closing = asyncio.create_task(world.server.close())
        await asyncio.sleep(0)
        world.requests.go_on.set()
        _, answer = await call
        assert answer["response"]["allowed"] is True
        await closing
        with pytest.raises(aiohttp.ClientError):
            await world.post("/validate/fail", make.review(obj=make.thing()))


async def test_a_rule_that_was_too_costly_is_not_evaluated_for_a_minute_and_others_are(make):
    """Everything that the rule matches is recorded meanwhile, and the controller decides."""
    never = {"all": [{"key": "a", "operator": "Equals", "value": "b"}]}
    costly = {"all": [*bombs(50)["all"], *never["all"]]}
    index = make.index(
        make.policy("costly", uid="1", preconditions=costly),
        make.policy("never", uid="2", preconditions=never),
    )
    clock = StillClock()
    marks = CostlyRules(clock=clock)
    async with World(index, largest=1 << 20, budget=10.0, costly=marks) as world:

        async def recorded(name: str, **data: str) -> list[str]:
            obj = make.thing(name=name, data=data)
            await world.post("/validate/fail", make.review(obj=obj))
            found = await world.stored()
            return [item.spec.policy.key for item in found if item.spec.resource.name == name]

        assert await recorded("before") == []
        assert "costly" in await recorded("large", **MANY)
        assert await recorded("after") == ["costly"]
        clock.seconds += 61.0
        assert await recorded("later") == []


class TestOverload:
    LIMITS = Thresholds(limit=2, hard=4)
    OLD = "{{ request.oldObject.data.a || 'none' }}"

    def rules(self, make, **spec):
        """A policy whose requests can be rebuilt, and one that reads the old object."""
        old = {"data": {"old": self.OLD}}
        return make.index(
            make.policy(spec=spec), make.policy("old", uid="old-uid", patch=old, spec=spec)
        )

    async def send(self, world, make, count, path="fail"):
        answers = []
        for number in range(count):
            body = make.review(obj=make.thing(name=f"trigger-{number}"))
            answers.append((await world.post(f"/validate/{path}", body))[1]["response"])
        return answers

    async def test_above_the_limit_rebuildable_triggers_go_to_an_aggregate_request(self, make):
        async with World(self.rules(make), thresholds=self.LIMITS) as world:
            answers = await self.send(world, make, 3)
            assert all(item["allowed"] for item in answers)
            stored = await world.stored()
            assert sum(item.spec.policy.key == "old" for item in stored) == 3
            (aggregate,) = (item for item in stored if item.spec.sequence)
            assert (aggregate.spec.policy.key, aggregate.spec.sequence) == ("set-team", 2)
            assert world.count("triggers_diverted_total", policy="set-team", rule="copy") == 2
            assert world.count("requests_recorded_total", **RECORDED) == 1

    async def test_at_the_hard_limit_a_trigger_is_refused_with_the_cure(self, make):
        async with World(self.rules(make), thresholds=self.LIMITS) as world:
            world.estimate.update(Backlog(waiting=4))
            (answer,) = await self.send(world, make, 1)
            assert answer["allowed"] is False
            assert answer["status"]["code"] == 503
            for part in ("rule copy of policy old", "4 requests wait", "--hard-limit", "status"):
                assert part in answer["status"]["message"]
            # A request that can be rebuilt later is never refused.
            assert [item.spec.policy.key for item in await world.stored()] == ["set-team"]

    async def test_under_ignore_a_trigger_at_the_hard_limit_is_admitted_and_counted(self, make):
        rules = self.rules(make, failurePolicy="Ignore")
        async with World(rules, thresholds=self.LIMITS) as world:
            world.estimate.update(Backlog(waiting=4))
            (answer,) = await self.send(world, make, 1, path="ignore")
            assert answer["allowed"] is True
            (warning,) = answer["warnings"]
            assert "--hard-limit" in warning
            assert world.count("requests_lost_total", reason="overload") == 1

    async def test_triggers_are_recorded_one_by_one_again_after_the_backlog_shrinks(self, make):
        async with World(self.rules(make), thresholds=self.LIMITS) as world:
            world.estimate.update(Backlog(waiting=3))
            await self.send(world, make, 1)
            world.estimate.update(Backlog(waiting=0, seen=10**9))
            await self.send(world, make, 1)
            assert world.count("requests_recorded_total", **RECORDED) == 1

    async def test_triggers_of_a_policy_with_match_conditions_are_never_aggregated(self, make):
        conditions = [{"name": "somebody", "expression": "request.userInfo.username == 'a'"}]
        policy = make.policy(spec={"webhookConfiguration": {"matchConditions": conditions}})
        async with World(make.index(policy), thresholds=self.LIMITS) as world:
            world.estimate.update(Backlog(waiting=3))
            (answer,) = await self.send(world, make, 1, path="fail/set-team")
            assert answer["allowed"]
            assert [item.spec.sequence for item in await world.stored()] == [0]

    async def test_a_flood_in_one_namespace_does_not_refuse_triggers_of_others(self, make):
        thresholds = Thresholds(limit=2, hard=4, namespace=50)
        async with World(
            self.rules(make), thresholds=thresholds, namespaces={"a": {}, "b": {}}
        ) as world:
            world.estimate.update(Backlog(waiting=2, of={"namespace/a": 2}))
            (refused,) = await self.send(world, make, 1)
            assert "2 requests of namespace a wait" in refused["status"]["message"]
            assert "--namespace-share" in refused["status"]["message"]
            world.estimate.update(Backlog(waiting=1, of={"namespace/a": 2}))
            review = make.review(obj=make.thing(namespace="b"))
            _, answer = await world.post("/validate/fail", review)
            assert answer["response"]["allowed"] is True
            assert {item.spec.policy.key for item in await world.stored()} == {"set-team", "old"}
