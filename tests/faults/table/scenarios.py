"""The fault scenarios of the table."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Iterable, Iterator
from functools import partial

from devcluster import parts
from devcluster.install import NAMESPACE, install
from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.meta import Object
from reconciler.errors import Conflict, Denied, NotFound
from reconciler.kube.authority import CA_SECRET, TLS_SECRET
from tests.faults.proxy import CALM, Disturbance
from tests.faults.rig import REACHES_THE_CONTROLLER
from tests.faults.siblings import labelled, open_sibling
from tests.faults.table import etcd
from tests.faults.table.counting import Effect, rules
from tests.faults.table.play import Scenario, own_trigger
from tests.faults.table.stage import Setting, Stage

WEBHOOKS = ("ValidatingWebhookConfiguration", "kube-retrofit-resource")
LIMITS = Setting(flags=("--waiting-limit=50",), controller=("--request-timeout=5s",))
SMALL = Setting(quota=48 * 1024 * 1024)
_BEYOND_THE_LEASE = 8.0


async def killed(stage: Stage, names: Iterable[str]) -> None:
    """Kill programs twice; each is restarted at once."""
    for _ in range(2):
        for name in names:
            await stage.kill(name)
        await asyncio.sleep(1.0)
        await stage.ready(*names)


async def part_killed(stage: Stage, part: str) -> None:
    """Kill a program of the control plane and start it again."""
    await stage.kill_part(part)


async def leader_killed(stage: Stage) -> None:
    """Kill the leader and keep it down beyond its Lease, so that the standby takes over."""
    await stage.away(CONTROLLER)
    await asyncio.sleep(_BEYOND_THE_LEASE)
    await stage.back(CONTROLLER)


async def leader_frozen(stage: Stage) -> None:
    """Stop the leader for longer than its Lease, then let it continue."""
    await stage.kill(CONTROLLER, signal.SIGSTOP)
    await asyncio.sleep(_BEYOND_THE_LEASE)
    await stage.kill(CONTROLLER, signal.SIGCONT)


async def disturbed(stage: Stage, disturbance: Disturbance, seconds: float = 6.0) -> None:
    """Disturb the calls between the programs and the API server for some seconds."""
    stage.house.proxy.disturbance = disturbance
    await asyncio.sleep(seconds)
    stage.house.proxy.disturbance = CALM


async def cut(stage: Stage) -> None:
    """Break all watches every half second."""
    for _ in range(12):
        stage.house.proxy.cut()
        await asyncio.sleep(0.5)


async def labelled_in_silence(stage: Stage) -> None:
    """Silence the watches for longer than the detection takes, then label the namespace."""
    stage.house.proxy.disturbance = Disturbance(silent=True)
    await asyncio.sleep(_BEYOND_THE_LEASE)
    await label(stage, "on")


async def label(stage: Stage, value: str) -> None:
    """Label the scenario's namespace."""
    labels = {"metadata": {"labels": {"table": value}}}
    await stage.rig.merge("Namespace", stage.rig.namespace, labels, namespace="")


async def webhooks_deleted(stage: Stage, times: int = 6) -> None:
    """Delete the webhook configuration repeatedly; the programs restore it each time."""
    for _ in range(times):
        with contextlib.suppress(NotFound):
            await stage.rig.delete(*WEBHOOKS, "")
        await asyncio.sleep(0.5)


async def ca_deleted(stage: Stage) -> None:
    """Delete the Secrets of the certificates, which the programs create again."""
    for name in (CA_SECRET, TLS_SECRET):
        with contextlib.suppress(NotFound):
            await stage.rig.delete("Secret", name, NAMESPACE)
    await asyncio.sleep(3.0)


async def namespace_deleted(stage: Stage) -> None:
    """Delete the namespace of the programs, and install everything again."""
    await stage.rig.delete("Namespace", NAMESPACE, "")

    async def there() -> object:
        return await stage.rig.find("Namespace", NAMESPACE, "")

    await stage.rig.settle(there, within=60)
    await stage.by_hand(install, stage.house.plane, "demo")
    await stage.renew_accounts()


async def policy_edited(stage: Stage) -> None:
    """Edit the policy ten times while triggers arrive."""
    rig, effect = stage.rig, Effect.APPEND
    for number in range(10):
        more = rules(effect, rig.namespace, name=f"other-{number}", names="never-*")
        policy = await rig.get("ClusterPolicy", rig.namespace, "")
        policy["spec"]["rules"] = [*rules(effect, rig.namespace), *more]
        with contextlib.suppress(Conflict):
            await rig.replace(policy)
        await asyncio.sleep(0.5)


async def diverted_and_edited(stage: Stage) -> None:
    """Divert triggers into an aggregate request, then edit the rule so they cannot be rebuilt.

    The edit may be refused while the request is open, or accepted and the request completed.
    """
    rig = stage.rig
    await stage.away(CONTROLLER)

    async def undiverted() -> str:
        aggregates = [item for item in await rig.requests() if item.spec.sequence]
        return "" if aggregates else "no aggregate request yet"

    await rig.settle(undiverted, within=30)
    policy = await rig.get("ClusterPolicy", rig.namespace, "")
    policy["spec"]["rules"] = rules(Effect.OWN, rig.namespace, operations=["CREATE"])
    with contextlib.suppress(Denied):
        await rig.replace(policy)
    await stage.back(CONTROLLER)


async def controller_away(stage: Stage) -> None:
    """Keep the controller down until all triggers have been sent."""
    await stage.away(CONTROLLER)
    await stage.sent.wait()
    await stage.back(CONTROLLER)


async def admission_away(stage: Stage) -> None:
    """Keep the admission server down for 4 seconds; under Ignore triggers are stored meanwhile."""
    await stage.away(ADMISSION)
    await asyncio.sleep(4.0)
    await stage.back(ADMISSION)


async def clock_stepped(stage: Stage, seconds: float) -> None:
    """Step the controller's clock while another webhook takes a second for each trigger."""
    async with open_sibling(stage.rig):
        stage.step_clock(CONTROLLER, seconds)
        await asyncio.sleep(6.0)
    stage.step_clock(CONTROLLER, 0.0)


def slow_trigger(stage: Stage, number: int) -> Object:
    """Return a trigger for which a sibling webhook takes a second."""
    return labelled(own_trigger(stage, number), "slow")


async def store_full(stage: Stage) -> None:
    """Fill the store up to its quota, wait 3 seconds, and free space again."""
    made = await etcd.fill(stage.rig)
    await asyncio.sleep(3.0)
    await etcd.make_room(stage.house.plane, stage.rig, made)


_GROUP = "table.kube-retrofit.example"
_WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{_GROUP}"},
    "spec": {
        "group": _GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "data": {"type": "object", "additionalProperties": {"type": "string"}}
                        },
                    }
                },
            }
        ],
    },
}

_READERS: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": f"readers:{_GROUP}", "labels": {REACHES_THE_CONTROLLER: "true"}},
    "rules": [{"apiGroups": [_GROUP], "resources": ["widgets"], "verbs": ["get", "list"]}],
}


async def serve_widgets(stage: Stage) -> None:
    """Install the CRD of a custom kind and grant the controller the right to read the kind."""
    kubectl, rig = stage.house.plane.kubectl, stage.rig
    text = f"{json.dumps(_WIDGETS)}\n---\n{json.dumps(_READERS)}"
    await stage.by_hand(kubectl, "apply", "-f", "-", stdin=text)
    await rig.learn(f"{_GROUP}/v1", "Widget")

    async def ungranted() -> str:
        return "" if await rig.may(f"get widgets.{_GROUP}") else "not granted yet"

    await rig.settle(ungranted, within=20)


async def unserve_widgets(stage: Stage) -> None:
    """Delete the CRD of the custom kind."""
    await stage.by_hand(stage.house.plane.kubectl, "delete", "crd", f"widgets.{_GROUP}")
    await asyncio.sleep(2.0)


def widget(stage: Stage, number: int) -> Object:
    """Return a trigger of the custom kind."""
    return {**own_trigger(stage, number), "apiVersion": f"{_GROUP}/v1", "kind": "Widget"}


def _clocks() -> Iterator[Scenario]:
    for seconds in (600, -600, 130):
        yield Scenario(
            name=f"the clock steps by {seconds:+} s beside a slow webhook",
            act=partial(clock_stepped, seconds=seconds),
            make=slow_trigger,
            short=40 if seconds > 130 else 0,
        )


def _network() -> Iterator[Scenario]:
    bad = {
        "calls take 0.3 s longer": Disturbance(delay=0.3),
        "each 4th call: connection reset": Disturbance(every=4, reset=True),
        "each 4th call: done, never answered": Disturbance(every=4, unanswered=True),
        "each 3rd call answered 500": Disturbance(every=3, status=500),
        "each 3rd call answered 503": Disturbance(every=3, status=503),
        "each 3rd call answered 429": Disturbance(every=3, status=429),
    }
    for name, disturbance in bad.items():
        short = 40 if disturbance.unanswered else 0
        yield Scenario(name=name, act=partial(disturbed, disturbance=disturbance), short=short)
    yield Scenario(name="watches cut every 0.5 s", act=cut, short=40)
    yield Scenario(
        name="silent watches, a namespace gets its label",
        act=partial(disturbed, disturbance=Disturbance(silent=True)),
        rule={"match": _LABELLED},
        before=labelled_in_silence,
    )


_LABELLED = {
    "any": [
        {
            "resources": {
                "kinds": ["ConfigMap"],
                "names": ["trigger-*"],
                "namespaceSelector": {"matchLabels": {"table": "on"}},
            }
        }
    ]
}


def scenarios() -> list[Scenario]:
    """Return all scenarios, with those of one setting next to each other."""
    both = partial(killed, names=(ADMISSION, CONTROLLER))
    return [
        Scenario(name="kill -9 of admission", act=partial(killed, names=(ADMISSION,)), short=40),
        Scenario(name="kill -9 of the controller", act=partial(killed, names=(CONTROLLER,))),
        Scenario(name="kill -9 of both", act=both, short=40),
        Scenario(name="kill -9 of the leader", act=leader_killed, prepare=Stage.standby),
        Scenario(
            name="SIGSTOP of the leader beyond its Lease",
            act=leader_frozen,
            prepare=Stage.standby,
        ),
        Scenario(
            name="kill -9 of the API server",
            act=partial(part_killed, part=parts.API_SERVER),
            short=40,
        ),
        Scenario(name="kill -9 of etcd", act=partial(part_killed, part=parts.ETCD)),
        *_network(),
        *_clocks(),
        Scenario(
            name="webhook configuration deleted",
            act=webhooks_deleted,
            effect=Effect.OWN,
            short=40,
        ),
        Scenario(
            name="webhook configuration deleted, appends",
            act=webhooks_deleted,
            failure_policy="Ignore",
        ),
        Scenario(name="CA and certificate deleted", act=ca_deleted, effect=Effect.OWN),
        Scenario(
            name="CRD of the trigger deleted and made again",
            act=serve_widgets,
            effect=Effect.OWN,
            prepare=serve_widgets,
            before=unserve_widgets,
            make=widget,
            rule={"kinds": [f"{_GROUP}/v1/Widget"]},
        ),
        Scenario(
            name="namespace kyverno deleted and installed again",
            act=namespace_deleted,
            effect=Effect.OWN,
            triggers=500,
        ),
        Scenario(name="policy edited ten times", act=policy_edited, short=40),
        Scenario(
            name="admission away",
            act=admission_away,
            effect=Effect.OWN,
            failure_policy="Ignore",
            short=40,
        ),
        Scenario(name="admission away, appends", act=admission_away, failure_policy="Ignore"),
        Scenario(
            name="controller away for 20,000 triggers",
            act=controller_away,
            effect=Effect.OWN,
            triggers=20_000,
            rate=0.0,
            patience=1200.0,
        ),
        Scenario(
            name="triggers diverted, then the rule edited",
            act=diverted_and_edited,
            effect=Effect.OWN,
            setting=LIMITS,
        ),
        Scenario(name="etcd full", act=store_full, setting=SMALL),
    ]
