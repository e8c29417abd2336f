from dataclasses import replace

import pytest

from reconciler.requests.naming import aggregate_name, next_aggregate_name
from reconciler.requests.overload import Backlog, Settling, Thresholds, holders

MARKS = Thresholds(limit=100, hard=1000)


class TestMarks:
    @pytest.mark.parametrize(
        ("waiting", "before", "diverts"),
        [
            (99, False, False),
            (100, False, True),
            (99, True, True),
            (80, True, True),
            (79, True, False),
        ],
    )
    def test_diversion_starts_at_the_limit_and_ends_below_the_low_mark(
        self, waiting, before, diverts
    ):
        assert MARKS.diverts(waiting, before=before) is diverts

    def test_a_limit_of_zero_never_diverts(self):
        assert not Thresholds(limit=0, hard=10).diverts(10**9, before=True)

    def test_a_share_is_at_least_one_and_unlimited_if_the_whole_is(self):
        shares = Thresholds(limit=10, hard=1000, policy=5, namespace=50)
        policy, namespace = holders("p", "shop")
        assert (shares.of(policy).limit, shares.of(namespace).limit) == (1, 5)
        assert (shares.of(policy).hard, shares.of(namespace).hard) == (50, 500)
        assert replace(shares, limit=0).of(policy).limit == 0

    def test_objects_without_a_namespace_share_no_limit_of_a_namespace(self):
        assert holders("p", "") == holders("p", "shop")[:1]

    def test_the_hard_limit_is_never_below_the_limit(self):
        marks = Thresholds(limit=100, hard=10)
        assert not marks.full(99)
        assert marks.full(100)

    def test_a_limit_of_one_stops_diverting_when_no_request_waits(self):
        marks = Thresholds(limit=1, hard=10)
        assert marks.diverts(1, before=True)
        assert not marks.diverts(0, before=True)


class TestBacklog:
    @pytest.mark.parametrize(
        ("reported", "now", "noticed", "worth"),
        [
            (0, 0, 0, False),
            (0, 9, 9, False),
            (0, 10, 10, True),
            (30, 21, 0, False),
            (30, 20, 0, True),
            # The requests are done, but replicas count them until the next report.
            (0, 0, 10, True),
            # A change of less than a step is reported if it passes a threshold.
            (82, 79, 0, True),
            (98, 101, 3, True),
            (998, 1001, 3, True),
        ],
    )
    def test_the_backlog_is_reported_after_a_step_or_at_a_threshold(
        self, reported, now, noticed, worth
    ):
        assert Backlog(waiting=now).outdates(Backlog(waiting=reported), noticed, MARKS) is worth

    def test_without_a_limit_the_hard_limit_determines_the_step(self):
        marks = Thresholds(limit=0, hard=1000)
        assert not Backlog(waiting=99).outdates(Backlog(), 0, marks)
        assert Backlog(waiting=100).outdates(Backlog(), 0, marks)


class TestSettling:
    def test_a_sequence_settles_once_it_has_been_known_for_long_enough(self):
        settling = Settling()
        settling.note("ur-all", 3, 100.0)
        assert settling.first("ur-all") == 100.0
        assert settling.settled("ur-all", 99.0) == 0
        assert settling.settled("ur-all", 100.0) == 3

    def test_noting_a_sequence_again_does_not_postpone_its_settling(self):
        settling = Settling()
        settling.note("ur-all", 3, 100.0)
        settling.note("ur-all", 3, 150.0)
        assert settling.settled("ur-all", 100.0) == 3

    def test_later_sequences_do_not_keep_earlier_ones_from_settling(self):
        settling = Settling()
        for second in range(100):
            settling.note("ur-all", second + 1, 2.0 * second)
        assert settling.settled("ur-all", 100.0) == 51

    def test_sequences_close_in_time_settle_together_with_the_last(self):
        settling = Settling()
        for number in range(5):
            settling.note("ur-all", number + 1, 10.0 + number / 5)
        assert settling.settled("ur-all", 10.7) == 0
        assert settling.settled("ur-all", 10.8) == 5

    def test_sequences_in_steady_succession_are_not_merged_without_end(self):
        settling = Settling()
        for number in range(50):
            settling.note("ur-all", number + 1, number / 2)
        assert settling.settled("ur-all", 5.0) > 0

    def test_processed_sequences_are_dropped(self):
        settling = Settling()
        settling.note("ur-all", 1, 1.0)
        settling.note("ur-all", 2, 5.0)
        settling.drop("ur-all", 1)
        assert settling.first("ur-all") == 5.0
        settling.drop("ur-all", 2)
        settling.drop("other", 2)
        assert settling.settled("ur-all", 99.0) == 0

    def test_sequences_of_different_aggregate_requests_are_kept_apart(self):
        settling = Settling()
        settling.note("one", 1, 1.0)
        settling.note("other", 7, 1.0)
        assert (settling.settled("one", 1.0), settling.settled("other", 1.0)) == (1, 7)


def test_an_aggregate_request_has_one_name_until_it_has_ended():
    assert aggregate_name("uid", "rule") == aggregate_name("uid", "rule")
    names = {
        aggregate_name("uid", "rule"),
        aggregate_name("uid", "other"),
        aggregate_name("uid-2", "rule"),
        next_aggregate_name("uid-of-aggregate"),
        next_aggregate_name("uid-of-next"),
    }
    assert len(names) == 5
