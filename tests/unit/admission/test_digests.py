"""Webhook paths with a digest that this replica has not seen, real and invented ones."""

import asyncio

import pytest

from admission.digests import Digests
from reconciler.clock import SystemClock
from reconciler.errors import Unavailable


class Policies:
    """A source of policies that counts how often it is read."""

    def __init__(self):
        self.times, self.broken = list[float](), False
        self.digests = Digests(read_policies=self.read, clock=SystemClock())

    @property
    def reads(self):
        return len(self.times)

    async def read(self):
        self.times.append(SystemClock().monotonic())
        await asyncio.sleep(0)
        if self.broken:
            raise Unavailable("gone for lunch")


@pytest.fixture
def policies() -> Policies:
    return Policies()


async def test_concurrent_unknown_digests_share_reads(policies):
    known = "0" * 16
    invented = [f"{number:016x}" for number in range(1, 301)]
    for part in (invented[:100], invented[100:]):
        await asyncio.gather(*(policies.digests.learn(item, known) for item in part))
    assert policies.reads == 2
    for item in invented:
        await policies.digests.learn(item, known)
    assert policies.reads == 2


async def test_invented_digests_cause_two_reads_a_second(policies):
    for number in range(3):
        await policies.digests.learn(f"{number:016x}", "known")
    assert policies.times[2] - policies.times[0] >= 0.9


@pytest.mark.parametrize("text", ["", "0123456789abcdef", "../../x", "0123456789ABCDEF", "a" * 99])
async def test_known_and_malformed_digests_cause_no_read(policies, text):
    await policies.digests.learn(text, "0123456789abcdef")
    assert policies.reads == 0


async def test_a_digest_that_arrives_during_a_read_waits_for_a_new_read(policies):
    first = asyncio.create_task(policies.digests.learn("1" * 16, ""))
    while policies.reads == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await policies.digests.learn("2" * 16, "")
    await first
    assert policies.reads == 2


async def test_a_failed_read_is_reported_and_repeated(policies):
    policies.broken = True
    with pytest.raises(Unavailable):
        await policies.digests.learn("1" * 16, "")
    policies.broken = False
    await policies.digests.learn("1" * 16, "")
    assert policies.reads == 2
