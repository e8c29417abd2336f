"""A tenant with much waiting work does not delay other tenants."""

import asyncio

from reconciler.services.processing.fairness import FairGate


class Hall:
    """Records the names inside a gate, and lets a test release each of them."""

    def __init__(self, slots, share):
        self.gate = FairGate(slots, share=share)
        self.inside = []
        self.exits = {}
        self.tasks = {}

    async def come(self, *names):
        for name in names:
            self.exits[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name))
        await self.settle()

    async def leave(self, name):
        self.exits[name].set()
        await self.tasks[name]
        await self.settle()

    async def settle(self):
        for _ in range(5):
            await asyncio.sleep(0)

    async def _stay(self, name):
        async with self.gate.enter(name[0]):
            self.inside.append(name)
            await self.exits[name].wait()
            self.inside.remove(name)


async def test_one_tenant_leaves_room_for_others():
    hall = Hall(slots=3, share=2)
    await hall.come("a1", "a2", "a3", "a4")
    assert hall.inside == ["a1", "a2"]
    await hall.come("b1", "b2")
    assert hall.inside == ["a1", "a2", "b1"]


async def test_waiting_tenants_are_admitted_in_turns():
    hall = Hall(slots=2, share=2)
    await hall.come("a1", "a2", "a3", "a4", "b1", "c1")
    await hall.leave("a1")
    await hall.leave("a2")
    assert hall.inside == ["a3", "b1"]
    await hall.leave("a3")
    assert hall.inside == ["b1", "c1"]


async def test_a_cancelled_waiter_takes_no_slot():
    hall = Hall(slots=1, share=1)
    await hall.come("a1", "b1", "c1")
    hall.tasks["b1"].cancel()
    await hall.leave("a1")
    assert hall.inside == ["c1"]
    await hall.leave("c1")
    await hall.come("d1")
    assert hall.inside == ["d1"]


async def test_a_waiter_that_is_cancelled_as_a_slot_becomes_free_takes_no_slot():
    hall = Hall(slots=1, share=1)
    await hall.come("a1", "b1", "c1")
    hall.exits["a1"].set()
    # a1 leaves before b1 runs and notices this.
    hall.tasks["b1"].cancel()
    await hall.settle()
    assert hall.inside == ["c1"]
    assert hall.tasks["a1"].exception() is None
