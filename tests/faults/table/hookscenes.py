"""Fault scenarios for hooks; each is played with declared hooks and with executables."""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from signal import Signals

from devcluster import parts
from devcluster.programs import CONTROLLER, HOOKS
from reconciler.errors import ClusterError
from tests.faults.hooked import seed, with_hooks
from tests.faults.proxy import CALM, Disturbance
from tests.faults.table.hooking import HookRow, HookStage, counted, unordered
from tests.faults.table.stage import House, open_stage

_BEYOND_THE_LEASE = 8.0
_LONGEST = 2.0
"""The longest delay before a new leader is killed, in seconds."""
_PATIENCE = 150.0
_PAUSE = 40.0
"""Longer than the longest pause of a queue between two attempts, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScenario:
    """A fault that occurs while hooks receive events.

    Attributes:
        name: The name in the table.
        program: CONTROLLER or HOOKS.
        act: Causes the fault and ends it; starts together with the events.
        events: How many objects are created.
        rate: How many of them per second.
    """

    name: str
    program: str
    act: Callable[[HookStage], Awaitable[None]]
    events: int = 500
    rate: float = 20.0


async def killed(hooks: HookStage, times: int = 20) -> None:
    """Kill the leader repeatedly, at random moments."""
    for _ in range(times):
        await hooks.leads()
        await asyncio.sleep(hooks.random.uniform(0.0, _LONGEST))
        await hooks.kill()


async def api_server_killed(hooks: HookStage) -> None:
    """Kill the API server twice."""
    for _ in range(2):
        await asyncio.sleep(hooks.random.uniform(1.0, 4.0))
        await hooks.stage.kill_part(parts.API_SERVER)


async def leader_frozen(hooks: HookStage) -> None:
    """Stop the leader until another replica has taken over, then let it continue."""
    await hooks.leads()
    await hooks.standby()
    await asyncio.sleep(hooks.random.uniform(1.0, 3.0))
    await hooks.kill(Signals.SIGSTOP)
    await hooks.leads()
    await asyncio.sleep(_BEYOND_THE_LEASE / 2)
    await hooks.kill(Signals.SIGCONT)


async def away(hooks: HookStage) -> None:
    """Keep the program down while objects are deleted and until the schedule has been due."""
    await asyncio.sleep(hooks.random.uniform(4.0, 6.0))
    await hooks.stage.away(hooks.program)
    hooks.kills += 1
    items = await hooks.stage.rig.items("ConfigMap", labelSelector="seed=yes")
    names = [item["metadata"]["name"] for item in items]
    await hooks.delete(hooks.random.sample(names, len(names) // 2))
    left = (hooks.due - hooks.clock.now()).total_seconds()
    await asyncio.sleep(max(left, 0.0) + 2.0)
    await hooks.stage.back(hooks.program)


async def disturbed(hooks: HookStage, disturbance: Disturbance) -> None:
    """Disturb the calls between the program and the API server for 15 seconds."""
    proxy = hooks.stage.house.proxy
    proxy.disturbance = disturbance
    await asyncio.sleep(15.0)
    proxy.disturbance = CALM


async def cut(hooks: HookStage) -> None:
    """Break all watches every half second."""
    for _ in range(20):
        hooks.stage.house.proxy.cut()
        await asyncio.sleep(0.5)


_UNANSWERED = partial(disturbed, disturbance=Disturbance(every=4, unanswered=True))
_REFUSED = partial(disturbed, disturbance=Disturbance(every=3, status=503))
_ACTS: dict[str, tuple[Callable[[HookStage], Awaitable[None]], float]] = {
    "kill -9 at random, 20 times": (killed, 3.0),
    "kill -9 of the API server, twice": (api_server_killed, 20.0),
    "SIGSTOP of the leader beyond its Lease": (leader_frozen, 20.0),
    "away: deletions, a schedule is due": (away, 40.0),
    "each 4th call: done, never answered": (_UNANSWERED, 30.0),
    "each 3rd call answered 503": (_REFUSED, 30.0),
    "watches cut every 0.5 s": (cut, 40.0),
}


def hook_scenarios() -> list[HookScenario]:
    """Return all scenarios for hooks."""
    return [
        HookScenario(name=f"hooks: {name}", program=program, act=act, rate=rate)
        for program in (CONTROLLER, HOOKS)
        for name, (act, rate) in _ACTS.items()
    ]


async def play_hooks(house: House, scenario: HookScenario, random_seed: int) -> HookRow:
    """Play a scenario and return its row of the table.

    Args:
        house: The running control plane and programs.
        scenario: The scenario to play.
        random_seed: The seed of the random delays and choices.
    """
    place = f"hooks-{uuid.uuid4().hex[:8]}"
    async with open_stage(house, place) as stage, with_hooks(stage.rig):
        hooks = HookStage(
            stage=stage, program=scenario.program, seed=f"{random_seed} {scenario.name}"
        )
        await hooks.install()
        heal, left = await _heal(hooks, scenario)
        stuck = await _says_what_holds_it_up(hooks)
        wanted, made = await hooks.wanted(), await hooks.made()
        found = counted(made)
        return HookRow(
            name=scenario.name,
            program=scenario.program,
            events=len(wanted),
            lost=len(wanted - set(found)),
            twice=sum(number - 1 for number in found.values()) + len(set(found) - wanted),
            unordered=unordered(made),
            stuck=stuck,
            kills=hooks.kills,
            heal=heal,
            left=left,
        )


async def _heal(hooks: HookStage, scenario: HookScenario) -> tuple[float | None, str]:
    """Send events, cause the fault, and return the seconds to heal and what did not heal.

    If the schedule is due after the fault, its seconds count from the due time.
    """
    rig, loop = hooks.stage.rig, asyncio.get_running_loop()
    events = (seed(rig.namespace, f"seed-{number}") for number in range(scenario.events))
    sending = asyncio.create_task(rig.burst(events, scenario.rate))
    try:
        await scenario.act(hooks)
    finally:
        await asyncio.gather(sending, return_exceptions=True)
    over = loop.time()
    due = loop.time() + (hooks.due - hooks.clock.now()).total_seconds()
    try:
        await rig.settle(partial(_missing, hooks, but={"due", "stuck"}), within=_PATIENCE)
        took = loop.time() - over
        await rig.settle(partial(_missing, hooks, but={"stuck"}), within=_PATIENCE)
    except AssertionError as error:
        return None, str(error)
    return max(took, loop.time() - max(over, due)), ""


async def _missing(hooks: HookStage, *, but: Collection[str]) -> object:
    """Return what hooks, except those in ``but``, still have to do; empty if nothing."""
    with contextlib.suppress(ClusterError):
        lost = await hooks.wanted() - set(counted(await hooks.made())) - set(but)
        statuses = await hooks.statuses()
        waiting = {
            name: (said.get("waiting"), said.get("message"))
            for name, said in statuses.items()
            if name not in but and (said.get("waiting") or lost)
        }
        return waiting and (waiting, len(lost), sorted(lost)[:5])
    return "the API server does not answer"


async def _says_what_holds_it_up(hooks: HookStage) -> bool:
    """Return whether the hook that always fails reports its retry, as it does between attempts."""

    async def silent() -> str:
        message = str((await hooks.statuses()).get("stuck", {}).get("message"))
        return "" if "next attempt at" in message else message or "nothing"

    try:
        await hooks.stage.rig.settle(silent, within=_PAUSE)
    except AssertionError:
        return False
    return True
