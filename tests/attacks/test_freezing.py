"""Compilation, evaluation, connections and service calls of one user do not slow down others."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from devcluster.parts import HOST
from devcluster.programs import ADMISSION, CONTROLLER, Programs
from reconciler.api.meta import CONFIG_MAPS, Object
from reconciler.api.updaterequest import State
from reconciler.errors import ClusterError
from tests.attacks.roles import Neighbour, Roles
from tests.attacks.strangers import HEAD, Caller, Stranger, crowd, flood
from tests.attacks.test_forged_reviews import review
from tests.attacks.vitals import ALLOWED, WRITTEN, endure, share
from tests.faults.rig import SHORT_LEASE, Rig, config_map, rule, target
from tests.linux import linux

pytestmark = [linux, pytest.mark.cluster, pytest.mark.timeout(300)]

BOMB = "length(join('', map(&to_upper(@), request.object.data.*)))"
LARGE = {f"k{at}": "x" * 4_000 for at in range(200)}
WILD = "*".join(["a"] * 2_000)
FITS_NEARLY = "a" * 200_000 + "b"
DEEP = 1_200
PATIENT = 3.0
"""Seconds after which the slow service answers."""


def aliases() -> str:
    lines = ["- op: add", "  path: /data/x", "  value:", "    a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"    a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 7)]
    return "\n".join(lines)


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


def variables() -> Object:
    """Return a patch with half a megabyte of nested variables."""
    inner = "{{ request.object.data." * 60 + "a" + " }}" * 60
    return {"data": {f"k{at}": inner for at in range(300)}}


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (aliases(), "more than 20000 values"),
        ({"data": nested(200)}, "nested deeper than 100 levels"),
        (variables(), "more than|longer than"),
    ],
    ids=["aliases", "depth", "nested variables"],
)
async def test_an_oversized_policy_is_refused_before_it_is_compiled(
    rig: Rig, roles: Roles, neighbour: Neighbour, patch: Any, words: str
) -> None:
    place = rig.namespace
    made = rule(place, [target(place, "x")], patch)
    # Except for its size the policy is valid.
    del made["match"]["any"][0]["resources"]["namespaces"]
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": "attack", "namespace": place},
        "spec": {"rules": [made]},
    }

    async def attack(_mark: str) -> None:
        for _ in range(100):
            with pytest.raises(ClusterError, match=words):
                await roles.policy_writer.create(policy)

    await endure(f"a policy, {words}", rig, neighbour, attack)


def conditions() -> Object:
    return {
        "all": [
            {"key": f"{{{{ {BOMB} }}}}", "operator": "GreaterThan", "value": at}
            for at in range(150)
        ]
    }


def elements() -> Object:
    patch = {"data": {"x": f"{{{{ {BOMB} }}}}"}}
    return {"foreach": [{"list": "values(request.object.data)", "patchStrategicMerge": patch}]}


@pytest.mark.parametrize("part", ["preconditions", "foreach"])
async def test_an_evaluation_that_exceeds_its_allowance_fails(
    rig: Rig, roles: Roles, neighbour: Neighbour, part: str
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "x"))
    made = rule(place, [target(place, "x")], {"data": {"a": "b"}})
    if part == "preconditions":
        made["preconditions"] = conditions()
    else:
        made["mutate"] = {"targets": [target(place, "x")], **elements()}
    await rig.apply(made)

    async def attack(mark: str) -> None:
        before = len(await rig.requests(state=State.FAILED))
        for number in range(5):
            name = f"trigger-{mark}-{number}"
            await roles.namespace_admin.create(config_map(place, name, **LARGE))

        async def unfinished() -> str:
            failed = len(await rig.requests(state=State.FAILED)) - before
            return "" if failed == 5 else f"{failed} of 5 failed"

        await rig.settle(unfinished, within=60.0)

    await endure(part, rig, neighbour, attack)
    for request in await rig.requests(state=State.FAILED):
        assert "more than 80000000 steps" in request.status.message
    assert await rig.data("x") == {}


async def test_costly_wildcards_do_not_slow_down_other_tenants(
    rig: Rig, roles: Roles, neighbour: Neighbour
) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "x"))
    wild = {"key": "{{ request.object.data.long }}", "operator": "Equals", "value": WILD}
    made = rule(place, [target(place, "x")], {"data": {"a": "b"}})
    await rig.apply({**made, "preconditions": {"any": [wild] * 20}})

    async def evaluated() -> int:
        ended = [item for item in await rig.requests() if item.status.state is not State.PENDING]
        for item in ended:
            assert item.status.state is State.SKIP, item.status
            assert "preconditions not met" in item.status.message
        return len(ended)

    async def attack(mark: str) -> None:
        before = await evaluated()
        for number in range(40):
            name = f"trigger-{mark}-{number}"
            await roles.namespace_admin.create(config_map(place, name, long=FITS_NEARLY))

        # Each takes about a second, and the neighbour is measured meanwhile.
        async def too_few() -> str:
            count = await evaluated() - before
            return "" if count >= 10 else f"{count} evaluated"

        await rig.settle(too_few, within=60.0)

    await endure("wildcards", rig, neighbour, attack)
    assert await rig.data("x") == {}


NESTED_KIND: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nests.attack.example.com"},
    "spec": {
        "group": "attack.example.com",
        "scope": "Namespaced",
        "names": {"kind": "Nest", "plural": "nests"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture
async def nests(rig: Rig) -> AsyncIterator[Rig]:
    """The rig of a cluster with a custom kind whose objects may contain anything."""
    cluster = rig.cluster
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(NESTED_KIND))
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "attacks:nests",
            "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
        },
        "rules": [{"apiGroups": ["attack.example.com"], "resources": ["nests"], "verbs": ["*"]}],
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    await rig.learn("attack.example.com/v1", "Nest")
    yield rig
    cluster.kubectl("delete", "crd", NESTED_KIND["metadata"]["name"])
    cluster.kubectl("delete", "clusterrole", "attacks:nests")


def nest(namespace: str, name: str, spec: Any) -> Object:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "attack.example.com/v1", "kind": "Nest", "metadata": meta, "spec": spec}


async def test_a_deeply_nested_object_does_not_hide_others_in_its_list(
    nests: Rig, neighbour: Neighbour
) -> None:
    rig, place = nests, nests.namespace
    listed = {"apiVersion": "attack.example.com/v1", "kind": "Nest", "namespace": place}
    await rig.apply(rule(place, [listed], {"spec": {"got": "{{ request.object.metadata.name }}"}}))
    await rig.create(nest(place, "plain", {"a": 1}))

    async def attack(mark: str) -> None:
        for number in range(5):
            text = json.dumps(nest(place, f"deep-{mark}-{number}", "DEEP"))
            deep = text.replace('"DEEP"', '{"a":' * DEEP + "1" + "}" * DEEP)
            await asyncio.to_thread(rig.cluster.kubectl, "create", "-f", "-", stdin=deep)
        name = f"trigger-{mark}"
        await rig.create(config_map(place, name))

        async def unchanged() -> str:
            found = (await rig.get("Nest", "plain"))["spec"]
            return "" if found.get("got") == name else str(found)

        await rig.settle(unchanged, within=30.0)

    await endure("deep objects in a list", rig, neighbour, attack)


ENDLESS = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 8_000) for number in range(30))
IDLERS = (
    Stranger(),
    Stranger(sends=b"\x16\x03\x01", tls=False),
    Stranger(sends=HEAD),
    Stranger(sends=HEAD, drips=b"X"),
    Stranger(sends=HEAD + ENDLESS),
)
"""They send nothing, half a handshake, half a header at once or in drips, an endless header."""


async def test_idle_connections_do_not_keep_other_callers_out(
    rig: Rig, neighbour: Neighbour
) -> None:
    """There are about twice as many strangers as allowed connections."""

    async def attack(_mark: str) -> None:
        async with crowd(rig.programs.webhook_port, IDLERS * 200) as held:
            begun = [item for item in held if item.stranger.sends]
            stay = await asyncio.gather(*(item.stays() for item in begun))
        assert sum(stay) == 0, "who does not end what it began keeps connections"

    await endure("a thousand connections without a request", rig, neighbour, attack)


@pytest.fixture
def unguarded(live_programs: Programs) -> Iterator[Programs]:
    """A replica that requires no client certificates and therefore reads bodies."""
    with Programs(live_programs.cluster, ask_callers=False) as programs:
        programs.start(ADMISSION, name="admission-unguarded")
        yield programs


async def test_unfinished_bodies_stay_within_the_memory_limit(
    rig: Rig, neighbour: Neighbour, unguarded: Programs
) -> None:
    """120 strangers send bodies, and another 120 once the first connections are aborted."""
    length = b"Content-Length: 8388608\r\n\r\n"
    sent = HEAD + length + b"x" * (7 * 1024 * 1024)
    pid, port = unguarded.supervision.pids["admission-unguarded"], unguarded.webhook_port
    waits: list[float] = []

    async def attack(_mark: str) -> None:
        real = review(CONFIG_MAPS, "CREATE", config_map("unconcerned", "x"))
        caller = Caller(port=port, review=real)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(caller.work())
            for _ in range(2):
                await flood(port, sent, 120)
            asking.cancel()
        waits.append(share(caller.seconds, 0.99))
        peak = _peak(pid)
        print(f"{len(caller.seconds)} reviews, p99 {waits[-1] * 1000:.0f} ms; {peak // 1024} MiB")  # noqa: T201
        assert peak < ALLOWED[ADMISSION]

    def served() -> bool:
        return waits[-1] < WRITTEN

    await endure("unfinished bodies", rig, neighbour, attack, served=served)
    assert unguarded.ready("admission-unguarded")


def _peak(pid: int) -> int:
    """Return the peak of a process's resident memory in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


@dataclass(slots=True)
class Slow:
    """A service that answers after some seconds.

    Attributes:
        asked: How often the service was called.
    """

    address: str = ""
    asked: int = 0

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(PATIENT)
        return web.json_response({"got": "it"})


@pytest.fixture
async def slow() -> AsyncIterator[Slow]:
    found = Slow()
    app = web.Application()
    app.router.add_get("/", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    found.address = f"http://{HOST}:{runner.addresses[0][1]}/"
    yield found
    await runner.cleanup()


@pytest.fixture
async def calls_here(rig: Rig, neighbour: Neighbour) -> AsyncIterator[Rig]:
    """A controller that may call services on this machine, in place of the usual one."""
    await asyncio.to_thread(rig.programs.kill, CONTROLLER, signal.SIGTERM)
    await rig.controller(f"--service-hosts={HOST}", *SHORT_LEASE, name="calls-here")
    yield rig
    await asyncio.to_thread(rig.ensure)


async def test_slow_services_of_a_tenant_do_not_delay_other_tenants(
    calls_here: Rig, roles: Roles, neighbour: Neighbour, slow: Slow
) -> None:
    rig, place = calls_here, calls_here.namespace
    await rig.create_all(config_map(place, f"target-{number}") for number in range(50))
    call = {"name": "answer", "apiCall": {"service": {"url": slow.address}}}
    own = target(place, "target-{{ request.object.data.n }}")
    made = rule(place, [own], {"data": {"got": "{{ answer.got }}"}})
    await rig.apply({**made, "context": [call]})

    async def attack(mark: str) -> None:
        await roles.namespace_admin.create_all(
            config_map(place, f"trigger-{mark}-{number}", n=str(number % 50))
            for number in range(300)
        )
        await asyncio.sleep(2 * PATIENT)
        assert len(await rig.waiting()) > 50, "the attack was over before it could be measured"

    await endure("300 triggers of a slow service", rig, neighbour, attack)
    assert slow.asked > 50
