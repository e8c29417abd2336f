"""Match conditions of webhooks: the dry-run call, and the meaning of its responses."""

import pytest

from reconciler.errors import Invalid
from reconciler.kube.conditions import KubeConditions

NAME = "kube-retrofit-check"
ROUTE = f"PATCH /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{NAME}"
CONDITIONS = [{"name": "a", "expression": "tru("}]


async def test_conditions_are_checked_with_a_dry_run(api, client):
    api.answer(ROUTE, {})
    await KubeConditions(client).check(CONDITIONS)
    (call,) = api.calls(ROUTE)
    assert call.query["dryRun"] == "All"
    assert call.headers["Content-Type"] == "application/apply-patch+yaml"
    assert call.body["spec"]["matchConditions"] == CONDITIONS


async def test_a_condition_that_does_not_compile_is_reported_with_its_location(api, client):
    said = (
        'spec.matchConditions[0].expression: Invalid value: "object.spec.a(": compilation failed'
    )
    answer = {
        "kind": "Status",
        "reason": "Invalid",
        "message": f'ValidatingAdmissionPolicy "{NAME}" is invalid: [{said}, {said}]',
    }
    api.answer(ROUTE, (422, answer))
    with pytest.raises(Invalid) as caught:
        await KubeConditions(client).check(CONDITIONS)
    found = said.removeprefix("spec.")
    assert str(caught.value) == f"{found}, {found}"


async def test_conditions_are_accepted_if_the_server_does_not_serve_the_kind(api, client):
    api.answer(ROUTE, (404, b"404 page not found"))
    await KubeConditions(client).check(CONDITIONS)
