from datetime import UTC, datetime, timedelta

from reconciler.api.kinds import policy_named
from reconciler.services.catchup.activations import Activations

P = policy_named("p")
NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def text(seconds):
    return (NOON + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def policy(generation=1, *, touched=0, version="50", ready=0, uid="u", name="p"):
    """Return a policy that was created at noon; ``ready`` is the generation in force."""
    status = {"ready": True, "mutateExisting": {"observedGeneration": ready}} if ready else {}
    return {
        "apiVersion": P.api_version,
        "kind": P.kind,
        "metadata": {
            "name": name,
            "uid": uid,
            "generation": generation,
            "resourceVersion": version,
            "creationTimestamp": text(0),
            "managedFields": [{"manager": "kubectl", "time": text(touched)}],
        },
        "status": status,
    }


def test_catch_up_of_a_new_policy_begins_at_its_first_version():
    starts = Activations()
    starts.on_stored(policy(), 100.0)
    start = starts.get(P)
    assert (start.since, start.version, start.ready) == (NOON, 50, None)
    assert starts.open(1000.0) == {}
    assert starts.earliest({P}) == NOON
    starts.on_stored(policy(version="51", ready=1), 103.0)
    assert starts.get(P).version == 50
    assert starts.open(102.0) == {}
    assert set(starts.open(103.0)) == {P}
    starts.cover(starts.open(103.0).values())
    assert starts.open(200.0) == {}
    assert starts.earliest({P}) is None


def test_a_policy_first_seen_in_force_has_no_start_version():
    starts = Activations()
    starts.on_stored(policy(version="77", ready=1), 100.0)
    assert starts.get(P).version == 0


def test_catch_up_of_a_new_generation_begins_at_its_change():
    starts = Activations()
    starts.on_stored(policy(ready=1), 100.0)
    starts.cover(starts.open(100.0).values())
    # Labels and the controller's status do not change the generation.
    starts.on_stored(policy(ready=1, touched=30, version="60"), 130.0)
    assert starts.get(P).covered
    starts.on_stored(policy(2, touched=60, version="70", ready=1), 160.0)
    start = starts.get(P)
    assert (start.since, start.version) == (NOON + timedelta(seconds=60), 70)
    assert (start.ready, start.covered) == (None, False)
    starts.on_stored(policy(2, touched=60, version="71", ready=2), 161.0)
    assert set(starts.open(161.0)) == {P}


def test_a_generation_begins_where_an_uncovered_earlier_one_began():
    starts = Activations()
    starts.on_stored(policy(), 100.0)
    starts.on_stored(policy(2, touched=2, version="60"), 102.0)
    assert (starts.get(P).since, starts.get(P).version) == (NOON, 50)


def test_covering_an_older_generation_late_does_not_cover_a_newer_one():
    starts = Activations()
    starts.on_stored(policy(ready=1), 100.0)
    looked_at = starts.open(100.0)
    starts.on_stored(policy(2, touched=60, ready=2), 160.0)
    starts.cover(looked_at.values())
    assert set(starts.open(160.0)) == {P}


def test_a_recreated_policy_has_a_new_activation():
    starts = Activations()
    starts.on_stored(policy(3, ready=3), 100.0)
    starts.cover(starts.open(100.0).values())
    starts.on_deleted(P)
    starts.on_stored(policy(uid="v", ready=1), 200.0)
    assert set(starts.open(200.0)) == {P}


def test_a_new_leader_skips_activations_that_were_covered():
    starts = Activations()
    starts.on_stored(policy(ready=1, name="old"), 100.0)
    starts.on_stored(policy(ready=1, touched=500, name="touched"), 100.0)
    starts.on_stored(policy(2, ready=1, name="pending"), 100.0)
    before = NOON + timedelta(seconds=300)
    starts.begin(before, instead=before)
    assert starts.get(policy_named("old")).covered
    assert set(starts.open(100.0)) == {policy_named("touched")}
    assert starts.earliest(set(map(policy_named, ("old", "touched", "pending")))) == before
    assert starts.earliest({policy_named("old")}) is None


def test_without_an_earlier_pass_older_policies_begin_now():
    starts = Activations()
    starts.on_stored(policy(ready=1), 100.0)
    now = NOON + timedelta(hours=1)
    starts.begin(now - timedelta(minutes=10), instead=now)
    assert starts.get(P).since == now
