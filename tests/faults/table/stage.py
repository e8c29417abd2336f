"""Environment of scenarios: a control plane, both programs behind a proxy, and a supervisor."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from devcluster import parts
from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from devcluster.install import ProgramSettings, install
from devcluster.programs import ADMISSION, CONTROLLER, Programs
from reconciler.errors import Unavailable
from tests.faults.proxy import CALM, Proxy, open_proxy
from tests.faults.rig import SHORT_LEASE, Rig, clock_environment, open_rig, set_clock
from tests.usedrights import audited

STANDBY = "standby"
_QUOTA = "ETCD_QUOTA_BACKEND_BYTES"
_LOOK = 0.3

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A configuration of the programs and the control plane that scenarios may share.

    Attributes:
        flags: Flags of both programs, in addition to the shipped ones.
        controller: Flags of the controller alone.
        quota: Size limit of etcd's database in bytes; 0 for etcd's default.
    """

    flags: tuple[str, ...] = ()
    controller: tuple[str, ...] = ()
    quota: int = 0


@dataclass(kw_only=True)
class House:
    """The running control plane, proxy and programs of one setting."""

    plane: ControlPlane
    binaries: Binaries
    programs: Programs
    proxy: Proxy
    settings: dict[str, ProgramSettings]


@contextlib.contextmanager
def open_house(binaries: Binaries, setting: Setting) -> Iterator[House]:
    """Start everything; the programs reach the API server only through the proxy."""
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(_plane(binaries, setting))
        settings = install(plane, "demo")
        own = (*SHORT_LEASE, *setting.controller)
        more = {ADMISSION: setting.flags, CONTROLLER: (*own, *setting.flags)}
        for name, flags in more.items():
            settings[name] = ProgramSettings(
                flags=(*settings[name].flags, *flags),
                env={**settings[name].env, **clock_environment(plane.directory / f"clock-{name}")},
            )
            set_clock(plane.directory / f"clock-{name}", 0.0)
        proxy, behind = stack.enter_context(open_proxy(plane, binaries))
        programs = stack.enter_context(Programs(behind))
        for name in (ADMISSION, CONTROLLER):
            programs.start(name, settings[name], ready=False)
        for name in (ADMISSION, CONTROLLER):
            programs.wait_ready(name)
        yield House(
            plane=plane, binaries=binaries, programs=programs, proxy=proxy, settings=settings
        )


@contextlib.contextmanager
def _plane(binaries: Binaries, setting: Setting) -> Iterator[ControlPlane]:
    if setting.quota:
        os.environ[_QUOTA] = str(setting.quota)
    with contextlib.ExitStack() as stack:
        try:
            plane = stack.enter_context(audited(binaries))
        finally:
            os.environ.pop(_QUOTA, None)
        yield plane


@dataclass(kw_only=True)
class Stage:
    """The operations by which a scenario disturbs the programs and the control plane.

    A program that ends is restarted, as a kubelet does, unless it is `away`.

    Attributes:
        house: The running control plane and programs.
        rig: The administrator's access, with a namespace of this scenario's own.
        sent: Set when all triggers have been sent.
        over: Whether the fault is over.
        number: How many triggers were sent.
    """

    house: House
    rig: Rig
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    number: int = 0
    _up: set[str] = field(default_factory=lambda: {ADMISSION, CONTROLLER})
    # `Programs` may be used from one thread at a time.
    _hand: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    async def by_hand(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking function that handles processes, in the only thread for such work."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._hand, lambda: work(*args, **kwargs))

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a program a signal."""
        await self.by_hand(self.house.programs.kill, name, number)

    async def away(self, *names: str) -> None:
        """Kill programs with SIGKILL and keep them down until `back`."""
        self._up -= set(names)
        for name in names:
            await self.kill(name)

    async def back(self, *names: str) -> None:
        """Allow the restart of programs that are away, and wait until they are ready."""
        self._up |= set(names)
        await self.ready(*names)

    async def ready(self, *names: str) -> None:
        """Wait until programs are ready, however often they are restarted meanwhile."""

        async def unready() -> list[str]:
            return [
                name for name in names if not await self.by_hand(self.house.programs.ready, name)
            ]

        await self.rig.settle(unready, within=120)

    async def standby(self) -> None:
        """Start a second controller."""
        settings = self.house.settings[CONTROLLER]
        await self.by_hand(self.house.programs.start, CONTROLLER, settings, name=STANDBY)
        self._up.add(STANDBY)

    def keep_up(self, name: str) -> None:
        """Restart a program, which the scenario started itself, whenever it ends."""
        self._up.add(name)

    async def renew_accounts(self) -> None:
        """Restart both programs with new tokens, after their ServiceAccounts were replaced."""
        names = (ADMISSION, CONTROLLER)
        await self.away(*names)
        for name in names:
            settings = self.house.settings[name]
            await self.by_hand(self.house.programs.start, name, settings, ready=False)
        await self.back(*names)

    async def kill_part(self, part: str) -> None:
        """Kill a program of the control plane and start it again."""
        plane = self.house.plane
        if part == parts.API_SERVER:
            await self.by_hand(plane.kill_apiserver)
            await self.by_hand(plane.start_apiserver)
            return
        plane.supervision.kill(part)
        await self.by_hand(plane.supervision.wait_exit, part, 10.0)
        command = [
            *self.house.binaries.command(part),
            *parts.etcd(plane.layout, plane.ports),
        ]
        await self.by_hand(plane.supervision.start, part, command, log=plane.layout.log(part))

    def step_clock(self, name: str, seconds: float) -> None:
        """Set how many seconds the wall clock of a program is ahead."""
        set_clock(self.house.plane.directory / f"clock-{name}", seconds)

    async def kubelet(self) -> None:
        """Restart programs that ended, until cancelled."""
        programs = self.house.programs
        while True:
            for name in sorted(self._up):
                code = await self.by_hand(programs.supervision.exit_code, name)
                if code is not None and name in self._up:
                    with contextlib.suppress(Unavailable):
                        await self.by_hand(programs.restart, name, ready=False)
            await asyncio.sleep(_LOOK)

    def close(self) -> None:
        """Reset the proxy and end the additional programs."""
        self.house.proxy.disturbance = CALM
        for name in self._up - {ADMISSION, CONTROLLER}:
            self.house.programs.kill(name, signal.SIGTERM)
        self._hand.shutdown()


@contextlib.asynccontextmanager
async def open_stage(house: House, namespace: str) -> AsyncIterator[Stage]:
    """Yield a stage with a namespace of its own and both programs ready."""
    async with open_rig(house.plane, house.programs, namespace) as rig:
        stage = Stage(house=house, rig=rig)
        keeping = asyncio.create_task(stage.kubelet())
        try:
            yield stage
            # The next scenario needs both programs ready, even if one of them exits only now.
            house.proxy.disturbance = CALM
            await stage.ready(ADMISSION, CONTROLLER)
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            stage.close()
