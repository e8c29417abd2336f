"""The webhook's responses to writes of GlobalContextEntries."""

import pytest

from admission.policies import PolicyWebhook
from reconciler.serving.review import parse_review
from tests.unit.rights import Account

GOOD = {"kubernetesResource": {"version": "v1", "resource": "pods"}}


def entry(spec, name="teams", **meta):
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "GlobalContextEntry",
        "metadata": {"name": name, **meta},
        "spec": spec,
    }


async def reviewed(make, *args):
    request = parse_review(make.review(*args))
    return await PolicyWebhook(make.deps()).review(request, make.deadline())


async def test_a_valid_entry_is_stored(make):
    found = await reviewed(make, "CREATE", entry(GOOD))
    assert (found.allowed, found.warnings) == (True, ())


async def test_an_invalid_entry_is_refused_with_its_place(make):
    found = await reviewed(make, "CREATE", entry({"apiCall": {}}))
    assert (found.allowed, found.code) == (False, 422)
    assert "GlobalContextEntry teams: spec.apiCall: either a urlPath" in found.message


async def test_an_entry_whose_name_no_rule_can_use_gives_a_warning(make):
    found = await reviewed(make, "CREATE", entry(GOOD, "a.b"))
    assert found.allowed
    assert "no rule can read a.b" in found.warnings[0]


async def test_a_broken_entry_can_still_be_labelled_and_removed(make):
    broken = entry({"apiCall": {}})
    assert (
        await reviewed(make, "UPDATE", entry({"apiCall": {}}, labels={"a": "b"}), broken)
    ).allowed
    dying = entry({}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert (await reviewed(make, "UPDATE", dying, broken)).allowed
    assert not (await reviewed(make, "UPDATE", entry({}), broken)).allowed


@pytest.mark.parametrize(
    "spec",
    [
        {"kubernetesResource": {"version": "v1", "resource": "secrets", "namespace": "kyverno"}},
        {"apiCall": {"urlPath": "/api/v1/namespaces/kyverno/secrets/kube-retrofit-ca"}},
        {"apiCall": {"urlPath": "/api/v1/namespaces/a/pods", "method": "POST"}},
    ],
)
async def test_an_entry_for_own_objects_or_a_post_call_is_refused(make, spec):
    found = await reviewed(make, "CREATE", entry(spec))
    assert (found.allowed, found.code) == (False, 422)
    assert f"spec.{next(iter(spec))}: " in found.message


CALLS = {"apiCall": {"urlPath": "/apis/apps/v1/namespaces/a/deployments/web"}}
LACKS = {"watch pods", "get deployments.apps"}


def reading(make, *names):
    entries = [{"name": f"e{at}", "globalReference": {"name": it}} for at, it in enumerate(names)]
    return make.mutating(context=entries)


async def test_a_rule_whose_entries_the_admission_server_may_not_read_gives_a_warning(make):
    entries = [entry(GOOD), entry(CALLS, "calls"), entry(GOOD, "unnamed")]
    for names, expected in (
        (["teams.part"], ["GlobalContextEntry teams", "watch pods"]),
        (["calls"], ["GlobalContextEntry calls", "get deployments.apps in namespace a"]),
        (["missing"], None),
    ):
        deps = make.deps(reader=Account(lacks=LACKS), entries=entries)
        request = parse_review(make.review("CREATE", reading(make, *names)))
        found = await PolicyWebhook(deps).review(request, make.deadline())
        assert found.allowed
        if expected is None:
            assert found.warnings == ()
            continue
        place, right = expected
        (warning,) = found.warnings
        assert warning.startswith(
            f"{place}: requests that read it fail unless a role grants"
            f" kyverno-admission-controller {right}"
        )


@pytest.mark.parametrize("is_read", [True, False])
async def test_an_entry_the_admission_server_may_not_read_warns_if_a_rule_reads_it(make, is_read):
    known = [entry(GOOD)] if is_read else []
    deps = make.deps(reader=Account(lacks=LACKS), entries=known)
    request = parse_review(make.review("CREATE", entry(GOOD)))
    found = await PolicyWebhook(deps).review(request, make.deadline())
    assert found.allowed
    assert ["watch pods" in text for text in found.warnings] == ([True] if is_read else [])
