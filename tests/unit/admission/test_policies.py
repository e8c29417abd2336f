"""What the authors of policies are told."""

from admission.policies import review_policy
from admission.review import parse_review


def test_a_policy_that_compiles_is_stored(make):
    assert review_policy(parse_review(make.review(obj=make.policy()))).allowed


def test_a_policy_that_does_not_compile_is_refused_with_its_place(make):
    policy = make.policy(patch=None)
    del policy["spec"]["rules"][0]["mutate"]["targets"][0]["kind"]
    found = review_policy(parse_review(make.review(obj=policy)))
    assert not found.allowed
    assert found.code == 422
    assert "ClusterPolicy set-team: spec.rules[0].mutate" in found.message


def test_a_broken_policy_can_still_be_labelled_and_removed(make):
    policy = make.policy()
    policy["spec"]["rules"][0]["match"] = {}
    labelled = {**policy, "metadata": {**policy["metadata"], "labels": {"a": "b"}}}
    dying = {
        "apiVersion": "kyverno.io/v1",
        **policy,
        "metadata": {**policy["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"rules": []},
    }
    assert not review_policy(parse_review(make.review(obj=policy))).allowed
    assert review_policy(parse_review(make.review("UPDATE", labelled, policy))).allowed
    assert review_policy(parse_review(make.review("UPDATE", dying, policy))).allowed


def test_rules_that_are_stored_and_not_acted_on_give_a_warning(make):
    policy = make.policy()
    policy["spec"]["rules"].append(
        {
            "name": "check",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "validate": {"message": "no", "pattern": {"metadata": {"name": "?*"}}},
        }
    )
    found = review_policy(parse_review(make.review(obj=policy)))
    assert found.allowed
    assert any("check" in text for text in found.warnings)
