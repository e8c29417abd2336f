"""The arithmetic of the bench; nothing here measures time."""

from pathlib import Path

import orjson
import pytest

from tests.bench import audit
from tests.bench.figures import Calls, Figures, Phase, Spread, tables
from tests.bench.load import Times

CONTROLLER = "system:serviceaccount:kyverno:kube-retrofit-controller"


@pytest.mark.parametrize(
    ("seconds", "p50", "p99"),
    [([], 0.0, 0.0), ([2.0], 2.0, 2.0), ([float(n) for n in range(101)], 50.0, 99.0)],
)
def test_a_spread_uses_the_nearest_rank(seconds: list[float], p50: float, p99: float) -> None:
    assert Spread.of(seconds[::-1]) == Spread(p50=p50, p99=p99)


def test_a_trigger_without_effect_is_lost_and_a_refused_one_is_not() -> None:
    times = Times(
        begun={"a": 10.0, "b": 11.0, "c": 12.0, "refused": 12.0},
        accepted={"a": 10.5, "b": 11.5, "c": 12.5},
        patched={"a": 11.0, "b": 14.0, "stranger": 99.0},
    )
    phase = times.phase()
    assert (phase.accepted, phase.refused, phase.lost) == (3, 1, 1)
    assert phase.per_second == 2 / 4.0
    assert phase.patched == Spread(p50=1.0, p99=3.0)
    assert Figures(pipeline=phase, steady=phase).lost == 2


def test_without_accepted_triggers_none_is_lost() -> None:
    phase = Times(begun={"a": 1.0}).phase()
    assert (phase.accepted, phase.refused, phase.lost, phase.per_second) == (0, 1, 0, 0.0)


def test_only_calls_of_both_accounts_are_counted_with_constant_ones_apart(tmp_path: Path) -> None:
    def event(verb: str, resource: str, user: str = CONTROLLER, sub: str = "") -> bytes:
        named = {"resource": resource} | ({"subresource": sub} if sub else {})
        return orjson.dumps(
            {"verb": verb, "user": {"username": user}, "objectRef": named, "requestURI": "/x?y"}
        )

    bare = orjson.dumps(
        {"verb": "get", "user": {"username": CONTROLLER}, "requestURI": "/api?t=1"}
    )
    lines = [
        event("patch", "secrets"),
        event("patch", "updaterequests", sub="status"),
        event("patch", "secrets", user="kubernetes-admin"),
        event("watch", "secrets"),
        event("update", "leases"),
        event("create", "events"),
        bare,
    ]
    before = event("patch", "secrets") + b"\n"
    log = tmp_path / "audit.log"
    log.write_bytes(before + b"\n".join(lines) + b"\n" + before)
    calls = audit.count(log, len(before), log.stat().st_size - len(before))
    assert calls == Calls(
        by_what={"patch secrets": 1, "patch updaterequests/status": 1, "get /api": 1},
        aside={"watch secrets": 1, "update leases": 1, "create events": 1},
    )


def test_calls_are_shown_per_trigger() -> None:
    spread = Spread(p50=0.001, p99=2.0)
    phase = Phase(accepted=4, refused=0, lost=0, per_second=1.0, create=spread, patched=spread)
    figures = Figures(pipeline=phase, calls=Calls(by_what={"get secrets": 6}))
    runs, calls = tables(figures)
    assert list(runs.columns[-1].cells) == ["1.0 ms / 2.00 s"]
    assert list(calls.columns[2].cells) == ["1.500", "1.500"]
    assert orjson.loads(orjson.dumps(figures.as_json()))["pipeline"]["accepted"] == 4
