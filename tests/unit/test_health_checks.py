"""The documented health checks for Argo CD and Flux, run in their own languages."""

from collections.abc import Callable
from typing import Any

import lupa
import pytest
import yaml
from cel_expr_python import cel

from reconciler.api.meta import Object
from tests.architecture.conftest import ROOT
from tests.documents import blocks

PAGE = ROOT / "docs/how-to/gitops.md"
WRITTEN = {
    item["kind"]: item
    for block in blocks(PAGE)
    if block.kind == "yaml"
    for item in [yaml.safe_load(block.text)]
}
HEALTHY, FAILED, WAITING = "healthy", "failed", "in progress"
ARGO = {"Healthy": HEALTHY, "Degraded": FAILED, "Progressing": WAITING}
POLICIES = ("ClusterPolicy", "Policy")
Check = Callable[[Object], str]


def argo(kind: str) -> Check:
    """Return Argo CD's check of a kind: a Lua script that returns a table for ``obj``."""
    script = WRITTEN["ConfigMap"]["data"][f"resource.customizations.health.kyverno.io_{kind}"]

    def check(obj: Object) -> str:
        runtime = lupa.LuaRuntime(register_eval=False, register_builtins=False)
        runtime.globals().obj = runtime.table_from(obj, recursive=True)
        health = runtime.execute(script)
        assert health.message
        return ARGO[health.status]

    return check


def flux(kind: str) -> Check:
    """Return Flux's check of a kind: CEL expressions, of which ``failed`` is evaluated first."""
    (written,) = (
        item
        for item in WRITTEN["Kustomization"]["spec"]["healthCheckExprs"]
        if item["kind"] == kind
    )
    environment = cel.NewEnv(variables={"status": cel.Type.DYN, "metadata": cel.Type.DYN})

    def holds(obj: Object, expression: str) -> bool:
        data = {key: obj[key] for key in ("metadata", "status") if key in obj}
        answer = environment.compile(expression).eval(data=data)
        # If an expression cannot be evaluated, Flux treats it as false and continues to wait.
        return bool(answer.type() == cel.Type.BOOL and answer.value())

    def check(obj: Object) -> str:
        if holds(obj, written["failed"]):
            return FAILED
        return HEALTHY if holds(obj, written["current"]) else WAITING

    return check


def policy(
    status: str = "", reason: str = "", *, about: int | None = 2, generation: int = 2
) -> Object:
    condition: dict[str, Any] = {"type": "Ready", "status": status, "reason": reason}
    condition |= {"message": "why"} | ({} if about is None else {"observedGeneration": about})
    found: Object = {"metadata": {"name": "p", "generation": generation}}
    return found | ({"status": {"conditions": [condition]}} if status else {})


@pytest.mark.parametrize("tool", [argo, flux])
@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize(
    ("obj", "health"),
    [
        (policy(), WAITING),
        ({**policy(), "status": {"mutateExisting": {"pending": 1}}}, WAITING),
        (policy("True", "Succeeded"), HEALTHY),
        (policy("True", "Succeeded", about=None), HEALTHY),
        (policy("True", "Succeeded", about=1), WAITING),
        (policy("False", "Failed"), FAILED),
        (policy("False", "NotActedOn"), FAILED),
        (policy("False", "Failed", about=1), WAITING),
        (policy("False", "WebhookMissing"), WAITING),
        (policy("False", "KindNotServed"), WAITING),
    ],
)
def test_the_health_of_a_policy_follows_from_its_ready_condition(
    tool: Callable[[str], Check], kind: str, obj: Object, health: str
) -> None:
    assert tool(kind)(obj) == health


@pytest.mark.parametrize("tool", [argo, flux])
@pytest.mark.parametrize(
    ("state", "health"),
    [
        ("", WAITING),
        ("Pending", WAITING),
        ("Completed", HEALTHY),
        ("Skip", HEALTHY),
        ("Failed", FAILED),
    ],
)
def test_the_health_of_a_request_follows_from_its_state(
    tool: Callable[[str], Check], state: str, health: str
) -> None:
    obj: Object = {"metadata": {"name": "ur-1", "generation": 1}}
    assert tool("UpdateRequest")(obj | ({"status": {"state": state}} if state else {})) == health
