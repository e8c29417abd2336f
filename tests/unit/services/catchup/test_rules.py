import pytest

from reconciler.dialects.registry import compile_policy
from reconciler.services.catchup.rules import why_lost


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, ""),
        ({"kinds": ("Pod/status",)}, "cannot be listed"),
        ({"kinds": ("ConfigMap", "*")}, "cannot be listed"),
        ({"patch": {"data": {"n": "{{ target.data.n }}x"}}}, "how often"),
        ({"patch": {"data": {"n": "{{ request.oldObject.data.n }}"}}}, "oldObject"),
        (
            {
                "spec": {
                    "webhookConfiguration": {
                        "matchConditions": [{"name": "c", "expression": "true"}]
                    }
                }
            },
            "matchConditions",
        ),
    ],
)
def test_why_lost_reports_the_reason_that_a_trigger_stays_lost(make, changes, word):
    compiled = compile_policy(make.policy(**changes))
    text = why_lost(compiled, compiled.programs[0])
    assert (word in text) if word else text == ""
