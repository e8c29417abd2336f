"""The limits on access reviews for policies that need many rights."""

import asyncio

import pytest
from typing_extensions import override

from admission.asking import MOST_CALLS, MOST_RIGHTS, BoundedAccess, TooManyRights
from admission.policies import PolicyWebhook
from reconciler.api.rights import Right
from reconciler.serving.review import parse_review
from tests.unit.admission.conftest import make_deps


class Counted:
    """An `Access` port that always gives the same answer and counts its calls."""

    def __init__(self, *, granted):
        self.granted, self.calls = granted, 0

    async def may(self, _right):
        self.calls += 1
        return self.granted


def right(number):
    return Right(verb="get", group="", resource="secrets", name=f"s-{number}")


async def test_one_policy_cannot_cause_thousands_of_access_reviews(make):
    account = Counted(granted=True)
    policy = make.policy()
    target = policy["spec"]["rules"][0]["mutate"]["targets"][0]
    targets = [{**target, "namespace": f"n-{number}"} for number in range(2000)]
    policy["spec"]["rules"][0]["mutate"]["targets"] = targets
    review = parse_review(make.review(obj=policy))
    response = await PolicyWebhook(make_deps(account=account)).review(review, make.deadline(60))
    assert (response.allowed, response.code) == (False, 422)
    assert response.message.endswith("split the policy, or name fewer kinds, names and namespaces")
    assert account.calls <= MOST_RIGHTS


async def test_a_missing_right_is_reviewed_again_until_the_limit_of_calls():
    account = Counted(granted=False)
    access = BoundedAccess(access=account, gate=asyncio.Semaphore(4))
    for _ in range(10):
        for number in range(MOST_RIGHTS):
            assert await access.may(right(number)) is False
    assert account.calls == MOST_CALLS
    with pytest.raises(TooManyRights, match="split the policy"):
        await access.may(right(MOST_RIGHTS))


async def test_reviews_in_parallel_keep_within_both_limits():
    class Slow(Counted):
        running = most = 0

        @override
        async def may(self, right):
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            return await super().may(right)

    account = Slow(granted=True)
    access = BoundedAccess(access=account, gate=asyncio.Semaphore(4))
    asked = (access.may(right(number)) for number in range(2 * MOST_RIGHTS))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert (account.calls, account.most) == (MOST_RIGHTS, 4)
    assert sum(isinstance(answer, TooManyRights) for answer in answers) == MOST_RIGHTS


async def test_a_granted_right_is_reviewed_once():
    account = Counted(granted=True)
    access = BoundedAccess(access=account, gate=asyncio.Semaphore(4))
    assert [await access.may(right(1)) for _ in range(5)] == [True] * 5
    assert account.calls == 1
