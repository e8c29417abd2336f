"""Plays a scenario: sends a stream of triggers, causes a fault meanwhile, counts the effects."""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

from reconciler.api.meta import Object
from reconciler.errors import ClusterError
from tests.faults.rig import FINAL, config_map
from tests.faults.table.counting import LISTS, Effect, Ledger, Row, rules, targets
from tests.faults.table.stage import House, Setting, Stage, open_stage

_CLIENTS = 16
_MOST = 3
"""Limit of the triggers that are sent while the fault lasts, in multiples of their number."""

Make = Callable[[Stage, int], Object]


def own_trigger(stage: Stage, number: int) -> Object:
    """Return the ConfigMap that is the trigger with this number."""
    return config_map(
        stage.rig.namespace, f"trigger-{number}", n=str(number), list=str(number % LISTS)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault that occurs while triggers are sent.

    Attributes:
        name: The name in the table.
        act: Causes the fault and ends it; called when a quarter of the triggers was sent.
        effect: How a trigger shows that it was processed.
        failure_policy: The policy's failurePolicy.
        triggers: The least number of triggers in the long form; more while the fault lasts.
        short: The same in the short form; 0 for scenarios that are not part of it.
        rate: Triggers per second; 0 for as fast as 16 clients can.
        setting: The configuration of the programs and the control plane.
        prepare: Called before the policy is applied.
        before: Called when the policy is Ready, before any trigger is sent.
        make: Returns the trigger with a number.
        rule: Additional fields of the rule.
        patience: Seconds after the fault in which all triggers have to be applied.
    """

    name: str
    act: Callable[[Stage], Awaitable[None]]
    effect: Effect = Effect.APPEND
    failure_policy: str = "Fail"
    triggers: int = 300
    short: int = 0
    rate: float = 20.0
    setting: Setting = field(default_factory=Setting)
    prepare: Callable[[Stage], Awaitable[None]] | None = None
    before: Callable[[Stage], Awaitable[None]] | None = None
    make: Make = own_trigger
    rule: dict[str, Any] = field(default_factory=dict)
    patience: float = 180.0

    def shortened(self) -> Self:
        """Return the short form: the fault lasts as long, with fewer triggers at half the rate."""
        return replace(self, triggers=self.short, rate=self.rate / 2)


async def play(house: House, scenario: Scenario) -> Row:
    """Play a scenario and return its row of the table."""
    count = scenario.triggers
    async with open_stage(house, f"table-{uuid.uuid4().hex[:8]}") as stage:
        rig = stage.rig
        if scenario.prepare is not None:
            await scenario.prepare(stage)
        most = _MOST * count if scenario.rate else count
        names = targets(scenario.effect, most)
        await rig.create_all(config_map(rig.namespace, name, seen="") for name in names)
        await rig.apply(
            *rules(scenario.effect, rig.namespace, **scenario.rule),
            failurePolicy=scenario.failure_policy,
        )
        if scenario.before is not None:
            await scenario.before(stage)
        ledger = Ledger(rig=rig, effect=scenario.effect)
        stream = _stream(stage, scenario, count, most)
        heal, left = await _heal(stage, scenario, count, stream, ledger)
        return Row(
            name=scenario.name,
            failure_policy=scenario.failure_policy,
            accepted=len(ledger.accepted),
            refused=stage.number - len(ledger.accepted),
            applied=len(ledger.accepted) - len(await ledger.missing()),
            reported=await ledger.reported(),
            twice=await ledger.twice(),
            heal=heal,
            left=left,
        )


def _stream(stage: Stage, scenario: Scenario, least: int, most: int) -> Iterator[Object]:
    """Yield ``least`` triggers, and up to ``most`` while the fault is not over."""
    for number in range(most):
        if number >= least and stage.over:
            return
        stage.number = number + 1
        yield scenario.make(stage, number)


async def _heal(
    stage: Stage, scenario: Scenario, count: int, stream: Iterator[Object], ledger: Ledger
) -> tuple[float | None, str]:
    """Send triggers, cause the fault, and return the seconds to heal and what did not heal."""
    loop = asyncio.get_running_loop()
    sending = asyncio.create_task(_send(stage, scenario, stream))
    try:
        await asyncio.sleep(count / 4 / scenario.rate if scenario.rate else 0.0)
        await scenario.act(stage)
    except BaseException:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        raise
    stage.over = True
    over = loop.time()
    until = over + scenario.patience
    await ledger.look()
    left = await _until(until, lambda: _unhealed(stage, ledger, scenario))
    heal = loop.time() - over
    ledger.accepted.update(await sending)
    # The rest of the stream was sent after the fault was over.
    left = left or await _until(until, lambda: _unhealed(stage, ledger, scenario, look=True))
    return (None if left else heal), left


async def _unhealed(
    stage: Stage, ledger: Ledger, scenario: Scenario, *, look: bool = False
) -> object:
    """Return what has not recovered from the fault yet; empty if everything has."""
    with contextlib.suppress(ClusterError):
        if look:
            await ledger.look()
        policy = await stage.rig.get("ClusterPolicy", stage.rig.namespace, "")
        if not (policy.get("status") or {}).get("ready"):
            return "the policy is not Ready"
        missing = await ledger.missing()
        reported = await ledger.reported() if scenario.failure_policy == "Ignore" else 0
        if len(missing) > reported:
            return missing
        return look and [
            item
            for item in await stage.rig.requests()
            if item.status.state not in FINAL and item.spec.resource.name in ledger.accepted
        ]
    return "the API server does not answer"


async def _until(deadline: float, missing: Callable[[], Awaitable[object]]) -> str:
    """Wait until nothing is missing, and return what is still missing at the deadline."""
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        if not (left := await missing()):
            return ""
        if loop.time() > deadline:
            return str(left)
        # A check costs CPU too, so checks take at most a quarter of the time.
        await asyncio.sleep(max(0.3, 3 * (loop.time() - begun)))


async def _send(stage: Stage, scenario: Scenario, stream: Iterator[Object]) -> list[str]:
    """Create all triggers and return those that were accepted."""
    try:
        if scenario.rate:
            return (await stage.rig.burst(stream, scenario.rate)).accepted
        return await _flood(stage, list(stream))
    finally:
        stage.sent.set()


async def _flood(stage: Stage, sent: list[Object]) -> list[str]:
    gate, accepted = asyncio.Semaphore(_CLIENTS), list[str]()

    async def one(obj: Object) -> None:
        async with gate:
            if not await stage.rig.refused(obj):
                accepted.append(obj["metadata"]["name"])

    await asyncio.gather(*(one(obj) for obj in sent))
    return accepted
