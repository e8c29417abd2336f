import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.services.rollout.manual_run import why_not

ALICE = [{"kind": "User", "name": "alice"}]


def reason(policy):
    (program,) = compile_policy(policy).programs
    return why_not(program)


def labelled(make, value, **more):
    return make.policy(patch={"metadata": {"labels": {"x": value}}}, **more)


def test_a_rule_without_mutate_existing_on_policy_update_can_run(make):
    assert reason(make.policy()) == ""
    assert reason(labelled(make, "{{ request.object.metadata.name }}")) == ""


@pytest.mark.parametrize(
    ("policy", "part"),
    [
        ({"resources": {"operations": ["CREATE"]}}, "every filter of its match lists operations"),
        ({"kinds": ("Pod/binding",)}, "cannot be listed"),
        ({"kinds": ("*",)}, "cannot be listed"),
    ],
)
def test_a_rule_whose_triggers_cannot_be_listed_cannot_run(make, policy, part):
    assert part in reason(make.policy(**policy))


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("{{ request.oldObject.metadata.name }}", "request.oldObject"),
        ("{{ request.userInfo.username }}", "who sent the request"),
        ("{{ serviceAccountName }}", "who sent the request"),
    ],
)
def test_data_that_only_requests_carry_is_named_with_the_remedy(make, value, part):
    found = reason(labelled(make, value))
    assert part in found
    assert "mutateExistingOnPolicyUpdate: true" in found
    assert reason(labelled(make, value, on_change=True)) == ""


def test_a_rule_for_certain_users_cannot_run(make):
    policy = make.policy(spec={"background": False})
    policy["spec"]["rules"][0]["match"]["any"][0]["subjects"] = ALICE
    assert "depends on who sent the request" in reason(policy)
