"""The schedule of catch-up passes, as tables of past events and the next action."""

import math
from dataclasses import replace

import pytest

from reconciler.services.catchup.schedule import Action, Schedule
from reconciler.services.ports.leases import AdmissionHeartbeat

ALIVE, MISSED = AdmissionHeartbeat(renewed="1"), AdmissionHeartbeat(renewed="1", missed="1")
# No trigger is missing, the last pass began at 900, the heartbeat was last read at 1000.
CALM = Schedule(interval=300.0, heartbeat=ALIVE, passed=900.0, alive=1000.0, polled=1000.0)


def act(schedule, now, *, held=False, new=False, guessing=False):
    return schedule.action(now, held=held, new=new, guessing=guessing)


@pytest.mark.parametrize(
    ("now", "facts", "action"),
    [
        (1000.0, {}, Action.REST),
        (1199.0, {}, Action.REST),
        (1200.0, {}, Action.LOOK_AT_IGNORED),
        (1000.0, {"new": True}, Action.LOOK_AT_NEW),
        (1200.0, {"new": True}, Action.LOOK_AT_IGNORED),
        (1000.0, {"held": True}, Action.REST),
        (1000.0, {"held": True, "new": True}, Action.REST),
        (1200.0, {"held": True}, Action.NOTE),
        (1200.0, {"guessing": True}, Action.REST),
        (1000.0, {"guessing": True, "new": True}, Action.LOOK_AT_NEW),
    ],
)
def test_the_action_follows_the_interval_while_no_trigger_is_missing(now, facts, action):
    assert act(CALM, now, **facts) is action


def test_a_guessing_leader_searches_only_beginnings_while_servers_are_alive():
    heard, _ = CALM.heard(AdmissionHeartbeat(renewed="2"), 1180.0)
    assert act(heard, 1200.0, guessing=True) is Action.LOOK_AT_BEGINNINGS
    assert act(heard, 1211.0, guessing=True) is Action.REST


@pytest.mark.parametrize(
    ("passed", "missed", "due"),
    [
        (-math.inf, 1000.0, 1005.0),  # the first pass waits for requests on their way
        (900.0, 1000.0, 1005.0),
        (995.0, 1000.0, 1010.0),  # a pass has just begun
        (1004.0, 1000.0, 1019.0),  # the pass was too early for the last triggers
        (1005.0, 1000.0, 1305.0),  # the pass was late enough
        (700.0, 1000.0, 1000.0),  # the regular pass comes first
    ],
)
def test_a_loss_brings_the_next_pass_forward(passed, missed, due):
    schedule = replace(CALM, passed=passed, missed=missed)
    assert schedule.due == due
    assert schedule.doubt is (due != 1305.0)
    assert act(schedule, due - 0.5) is Action.REST
    assert act(schedule, due, guessing=True) is (
        Action.LOOK_AT_IGNORED if schedule.doubt else Action.REST
    )


def test_a_new_leader_makes_its_first_pass_after_five_seconds():
    begun = CALM.begun(ALIVE, 2000.0, unseen=60.0)
    assert act(begun, 2000.0) is Action.REST
    assert act(begun, 2005.0) is Action.LOOK_AT_IGNORED
    assert act(begun.ended(2005.0), 2006.0) is Action.REST


@pytest.mark.parametrize(
    ("said", "span"),
    [
        ([(ALIVE, 2005.0)], [0.0]),
        # No heartbeat since the previous leader: triggers of all that time may be missing.
        ([(MISSED, 2005.0)], [65.0]),
        # The server whose heartbeat came at 2005 reports at 2010 that none was alive before it.
        (
            [
                (AdmissionHeartbeat(renewed="2"), 2005.0),
                (AdmissionHeartbeat(renewed="2", missed="1"), 2010.0),
            ],
            [0.0, 70.0],
        ),
        (
            [
                (AdmissionHeartbeat(renewed="2"), 2005.0),
                (AdmissionHeartbeat(renewed="3"), 2010.0),
                (AdmissionHeartbeat(renewed="3", missed="1"), 2015.0),
            ],
            [0.0, 0.0, 20.0],
        ),
        # The time before the previous report is covered by that report.
        ([(MISSED, 2005.0), (replace(MISSED, missed="2"), 2010.0)], [65.0, 5.0]),
    ],
)
def test_heartbeats_show_for_how_long_triggers_may_be_missing(said, span):
    schedule, spans = CALM.begun(ALIVE, 2000.0, unseen=60.0), []
    for heartbeat, now in said:
        schedule, missing = schedule.heard(heartbeat, now)
        spans.append(missing)
    assert spans == span


def test_heartbeats_are_read_every_five_seconds():
    begun = CALM.begun(ALIVE, 2000.0, unseen=0.0)
    assert not begun.asks(2004.0)
    assert begun.asks(2005.0)
    heard, _ = begun.heard(ALIVE, 2005.0)
    assert not heard.asks(2009.0)
