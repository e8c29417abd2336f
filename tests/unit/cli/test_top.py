"""`retrofit top` without a cluster: figures, rates, and a display that fits on the screen."""

from datetime import UTC, datetime, timedelta
from typing import Any

from reconciler.api.meta import Object
from reconciler.cli.output.screen import Screen
from reconciler.cli.work.board import Board, Holder, board, holder_of, rates
from reconciler.cli.work.picture import data_of_board, picture

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
LEADS = Holder(name="one", fresh=True)
NARROW = Screen(width=80, folding=True)


def policy(name: str, *, ready: str = "", **figures: Any) -> Object:
    condition = {"type": "Ready", "status": "False" if ready else "True", "message": ready}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "status": {"conditions": [condition], "mutateExisting": figures},
    }


def look(*policies: Object, now: datetime = NOW, **more: Any) -> Board:
    return board(policies, now=now, leader=LEADS, admission=LEADS, **more)


def lines(found: Board, **more: Any) -> list[str]:
    return list(picture(found, NARROW, **more))


def test_the_busiest_policy_is_shown_first() -> None:
    found = look(
        policy("idle"),
        policy("busy", pending=1200, triggers=40, skippedTriggers=2, patched=38),
        policy("failing", failed=3, lastRun="2026-06-01T11:59:00Z"),
    )
    assert [item.policy for item in found.policies] == ["busy", "failing", "idle"]
    shown = lines(found)
    assert shown[0] == "1,200 requests wait; a controller leads; an admission server serves"
    assert " ".join(shown[2].split()) == "POLICY READY WAITING DONE PATCHED FAILED LAST RUN"
    assert shown[3].split() == ["busy", "yes", "1,200", "42", "38", "0"]
    assert shown[4].split() == ["failing", "yes", "0", "0", "0", "3", "1m"]
    assert max(map(len, shown)) <= 80


def test_a_rate_counts_triggers_that_ended_between_two_samples() -> None:
    before = look(policy("a", triggers=100), policy("b", triggers=7), policy("gone", triggers=1))
    later = NOW + timedelta(seconds=2)
    # The spec of b changed, so its counters started again from zero.
    after = look(policy("a", triggers=160), policy("b", triggers=1), policy("new"), now=later)
    assert rates(before, after) == {"a": 30.0}
    assert rates(None, after) is None
    assert rates(after, after) == {}
    shown = lines(after, rates=rates(before, after))
    assert shown[0].startswith("0 requests wait; 30.0 done/s;")
    assert shown[3].split() == ["a", "yes", "0", "30.0", "160", "0", "0"]


def test_a_rollout_shows_its_progress_and_why_it_waits() -> None:
    running = {"existing": 120, "total": 480, "eta": "8s"}
    message = "120 of 480 existing objects looked at; it waits: canaries are done"
    found = look(policy("a", pending=1, running=running, message=message))
    assert f"  [#####...............]  25%  a: {message[:38]}" in "\n".join(lines(found))
    (data,) = data_of_board(found, None)["policies"]
    assert data["rollout"] == {"done": 120, "total": 480, "timeLeft": "8s"}
    uncounted = look(policy("a", running={"total": -1}))
    assert "[....................]   0%" in "\n".join(lines(uncounted))
    assert data_of_board(uncounted, None)["policies"][0]["rollout"]["total"] is None
    # Requests for single triggers in work are not a rollout.
    assert look(policy("a", running={"patched": 2})).policies[0].rollout is None


def test_the_obstacle_of_each_policy_is_shown() -> None:
    right = "update deployments.apps in namespace shop"
    found = look(
        policy("a", pending=3, missingPermissions=[right], lastError="no right"),
        policy("b", failed=1, lastError="target not found"),
        policy("c", ready="spec.rules[0]: wrong"),
        policy("d", heldBack="paused by its annotation"),
        policy("e", lastError="of long ago"),
        policy("f", lost=[{"since": "2026-06-01T00:00:00Z"}]),
    )
    shown = "\n".join(lines(found))
    for said in (
        f"  a waits for a right: {right}\n",
        "  b, last error: target not found\n",
        "  c is not ready: spec.rules[0]: wrong\n",
        "  d is held back: paused by its annotation\n",
        "  f lost triggers 1 time: see status.mutateExisting",
    ):
        assert said in f"{shown}\n"
    assert "no right" not in shown
    assert "of long ago" not in shown


def test_the_display_fits_the_height_of_the_screen() -> None:
    many = [policy(f"p-{n:03}", pending=n, failed=1, lastError="x") for n in range(200)]
    shown = lines(look(*many), rates={}, height=24)
    assert len(shown) <= 24
    assert shown[3].startswith("p-199")
    assert any(line.startswith("and ") and "more policies" in line for line in shown)
    assert "Problems:" in shown
    assert len(lines(look(*many))) > 400


def test_a_lease_that_is_not_renewed_has_no_holder() -> None:
    spec = {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-06-01T11:59:50Z",
    }
    assert holder_of({"spec": spec}, NOW) == LEADS
    late = holder_of({"spec": spec}, NOW + timedelta(minutes=1))
    gone = board([policy("a")], now=NOW, leader=late, admission=holder_of(None, NOW))
    assert lines(gone)[0] == "0 requests wait; no controller leads; no admission server serves"
    blind = board([policy("a")], now=NOW, complete=False)
    assert "you may not read its Lease" in lines(blind)[0]
    assert "you may not list all kinds" in "\n".join(lines(blind))


def test_the_absence_of_policies_is_reported() -> None:
    assert lines(look())[-1] == "no policy found"
