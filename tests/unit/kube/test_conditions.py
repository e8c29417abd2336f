"""Match conditions of webhooks: the dry-run call, and the meaning of its responses."""

import pytest

from reconciler.errors import Invalid
from reconciler.kube.conditions import KubeConditions

NAME = "kube-retrofit-check"
ROUTE = f"PATCH /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{NAME}"
CONDITIONS = [{"name": "a", "expression": "tru("}]


async def test_nothing_is_stored(api, client):
    api.answer(ROUTE, {})
    await KubeConditions(client).check(CONDITIONS)
    (call,) = api.calls(ROUTE)
    assert call.query["dryRun"] == "All"
    assert call.headers["Content-Type"] == "application/apply-patch+yaml"
    assert call.body["spec"]["matchConditions"] == CONDITIONS


async def test_what_does_not_compile_is_named_by_its_place(api, client):
    said = 'spec.matchConditions[0].expression: Invalid value: "tru(": compilation failed'
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


async def test_a_server_without_the_kind_objects_to_nothing(api, client):
    api.answer(ROUTE, (404, b"404 page not found"))
    await KubeConditions(client).check(CONDITIONS)
