"""Fuzzers of lint and of the controller, which must finish any stored policy or request."""

import contextlib
import copy
import time
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from reconciler.api.meta import LABEL_SHARD
from reconciler.api.updaterequest import RequestStatus, State
from reconciler.cli.lint.command import namespaced
from reconciler.errors import AlreadyExists, NotFound
from reconciler.memory.kinds import REQUESTS
from reconciler.requests.adoption import read_request
from reconciler.services.authoring.lint import lint_entry, lint_exception, lint_policy
from tests.fuzz.documents import MAPPINGS, TEXTS, damaged
from tests.fuzz.fuzzing import Check, Fuzzer, Loop, event_loop
from tests.fuzz.grammar import OBJECTS, OPERATIONS, POLICIES, WRITTEN, Object
from tests.fuzz.schema import draw_value, stored_schema
from tests.unit.services.conftest import World, make_object, make_policy

DEADLINE = 20.0
"""Seconds for one input: an attempt may take about five, and several rules may fire."""
_LONGEST_INT = 2**63 - 1
_ROUNDS = 10
_PAUSE = 301.0
"""Seconds between two rounds: longer than the longest pause between two attempts."""


def _linted(obj: Any) -> None:
    """Fail if lint raises an error, or reports a finding without a text or a code."""
    if not isinstance(obj, dict):
        return
    match obj.get("kind"):
        case "GlobalContextEntry":
            found = lint_entry(obj)
        case "PolicyException":
            found = tuple(lint_exception(obj, {"p": frozenset({"r0"})}))
        case _:
            found = lint_policy(obj, scope=namespaced)
    for finding in found:
        assert finding.text
        assert finding.code


@contextlib.contextmanager
def _lint() -> Iterator[Check]:
    yield _linted


async def _end(world: World) -> None:
    """Run the dispatcher for some rounds until nothing waits; advance the clock between them."""
    for _ in range(_ROUNDS):
        await world.settle()
        if not world.dispatcher.waiting:
            return
        world.clock.tick(_PAUSE)


def _judge(status: RequestStatus) -> None:
    """Fail if a request that is not Completed has no reason and message for the user."""
    if status.state is State.COMPLETED:
        return
    assert status.reason, status
    assert status.reason != "InternalError", status
    assert status.message, status
    assert "Traceback" not in status.message
    assert 0 <= status.attempts <= _LONGEST_INT, status


@contextlib.contextmanager
def _rules() -> Iterator[Check]:
    with event_loop() as loop:

        def check(case: tuple[Object, Object, list[Object], str]) -> None:
            loop.run(_work(*case), within=DEADLINE)

        yield check


async def _work(policy: Object, trigger: Object, others: list[Object], operation: str) -> None:
    world = World()
    world.cluster.add(copy.deepcopy(policy))
    compiled = world.index.apply(policy)
    if isinstance(compiled, Exception):
        assert compiled.location, compiled
        assert compiled.reason, compiled
        return
    for obj in [trigger, *others]:
        with contextlib.suppress(AlreadyExists):
            world.cluster.add(copy.deepcopy(obj))
    user = {"userInfo": {"username": "jane", "groups": ["devs"]}, "roles": [], "clusterRoles": []}
    for program in compiled.programs:
        for name, more in (
            ("one", {"operation": operation, "user": user}),
            ("all", {"sweep": True}),
        ):
            request = await world.ask(
                policy, trigger, name=f"{program.rule}-{name}", rule=program.rule, **more
            )
            world.dispatcher.on_stored(request)
    await _end(world)
    for program in compiled.programs:
        for name in ("one", "all"):
            _judge(await world.status(f"{program.rule}-{name}"))


_SCHEMA = stored_schema("updaterequests.yaml")
_REFS = st.sampled_from(
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "c"},
        {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "s"},
        {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "p"},
    ]
)
_CARRIED = {
    "uid": "u",
    "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
    "resource": {"group": "", "version": "v1", "resource": "configmaps"},
    "operation": "UPDATE",
    "subResource": "",
    "object": make_object(),
    "oldObject": make_object(),
    "userInfo": {"username": "jane"},
}
_REF = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "p"}
_KNOWN = {
    "requestType": st.just("mutate"),
    "policy": st.sampled_from(["p", "p", "old", "a/p", "none"]),
    "policyRef": st.sampled_from([{}, _REF, _REF | {"kind": "Unknown"}]),
    "rule": st.sampled_from(["r", "r", "none"]),
    "resource": _REFS,
    "operation": OPERATIONS,
    "policyUID": st.sampled_from(["", "uid-of-p"]),
    "policyGeneration": st.sampled_from([0, 1]),
    "subresource": st.sampled_from(["", "status", "binding"]),
    "resourceVersion": st.sampled_from(["", "1"]),
    "state": st.sampled_from(["", "Pending", "Pending", "Completed", "Failed"]),
    "admissionRequest": damaged(st.just(_CARRIED)),
    "recorded": MAPPINGS | damaged(st.just({"object": make_object(), "oldObject": make_object()})),
    "recordedSecret": st.just(""),
}


@st.composite
def _stored(draw: st.DrawFn) -> Object:
    found: Object = draw_value(draw, {**_SCHEMA, "required": ["spec"]}, _KNOWN)
    marks = {LABEL_SHARD: "1"} if draw(st.booleans()) else {}
    meta: Object = {"name": "ur-odd", "namespace": "kyverno", "labels": marks}
    if draw(st.booleans()):
        meta["annotations"] = {"kube-retrofit.dev/retry": draw(TEXTS)}
    found["metadata"] = meta
    return {**found, "apiVersion": "kyverno.io/v2", "kind": "UpdateRequest"}


REQUESTS_OF_ANY_SHAPE = _stored()


@contextlib.contextmanager
def _stored_requests() -> Iterator[Check]:
    with event_loop() as loop:

        def check(obj: Object) -> None:
            _survives(loop, obj)

        yield check


def _survives(loop: Loop, obj: Object) -> None:
    begun = time.monotonic()
    loop.run(_beside(obj), within=DEADLINE)
    assert time.monotonic() - begun < DEADLINE


async def _beside(obj: Object) -> None:
    """Process a generated request together with a valid one, which must complete."""
    world = World()
    policy = world.install({**make_policy(), "metadata": {"name": "p", "uid": "uid-of-p"}})
    old = make_policy("old", patch={"data": {"x": "{{ request.oldObject.data.a || 'none' }}"}})
    world.install(old)
    for item in (make_object(), make_object("Secret", "s")):
        world.cluster.add(item)
    world.cluster.create(REQUESTS, copy.deepcopy(obj))
    stored = await world.cluster.get(REQUESTS, "kyverno", "ur-odd")
    odd = read_request(stored, adopt=True)
    if odd is not None:
        world.dispatcher.on_stored(odd)
    world.dispatcher.on_stored(await world.ask(policy, make_object(), name="ur-good"))
    await _end(world)
    assert (await world.status("ur-good")).state is State.COMPLETED
    with contextlib.suppress(NotFound):
        after = await world.cluster.get(REQUESTS, "kyverno", "ur-odd")
        found = read_request(after, adopt=True)
        if found is not None and found.status != (odd and odd.status):
            _judge(found.status)
            _fits(after["status"])


def _fits(status: Any) -> None:
    """Fail if a status has an integer beyond 64 bits, which the API server refuses."""
    waiting = [status]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int):
            assert -(2**63) <= value <= _LONGEST_INT, status


FUZZERS = (
    Fuzzer(name="lint", inputs=damaged(WRITTEN), open=_lint, short=80),
    Fuzzer(
        name="rules",
        inputs=st.tuples(POLICIES, OBJECTS, st.lists(OBJECTS, max_size=3), OPERATIONS),
        open=_rules,
        short=60,
    ),
    Fuzzer(name="requests", inputs=REQUESTS_OF_ANY_SHAPE, open=_stored_requests, short=80),
)
