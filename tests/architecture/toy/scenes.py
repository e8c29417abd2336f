"""The toy dialect works in a tree in which only the registry was edited."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from admission.decide import Limits, decide
from reconciler.api.meta import Object
from reconciler.api.policystatus import blank_progress
from reconciler.api.updaterequest import Source, State
from reconciler.cli.main import retrofit
from reconciler.services.authoring.lint import lint_policy
from reconciler.services.catalog.rule_index import Known
from reconciler.services.reporting.policy_status import Progress
from reconciler.serving.review import parse_review
from tests.filters import parse_filters
from tests.unit.services.conftest import World, make_object

POLICY: Object = {
    "apiVersion": "toy.example/v1",
    "kind": "LabelRule",
    "metadata": {"name": "team"},
    "spec": {"kind": "ConfigMap", "labels": {"team": "a"}},
}


def with_spec(**spec: object) -> Object:
    return {**POLICY, "spec": spec}


async def test_a_trigger_of_a_toy_rule_is_recorded(world: World) -> None:
    world.install(POLICY)
    stored = make_object()
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "c",
        "namespace": "a",
        "operation": "CREATE",
        "userInfo": {"username": "ann"},
        "object": stored,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    intent = decide(
        parse_review(json.dumps(review).encode()),
        world.index.rules(Known(kind="ConfigMap", subresource="", namespace="a")),
        parent=None,
        namespace_labels={},
        limits=Limits(controller_users=(), max_recorded=1 << 20, filters=parse_filters()),
    )
    (draft,) = intent.drafts
    assert (draft.spec.policy.kind, draft.spec.rule) == ("LabelRule", "label")


async def test_a_toy_rule_changes_a_target_and_its_policy_has_a_status(world: World) -> None:
    policy = world.install(POLICY)
    trigger = world.cluster.add(make_object())
    begun = {"observedGeneration": policy["metadata"]["generation"], **blank_progress()}
    known = {name: value for name, value in begun.items() if value is not None}
    await world.policies.write_status(policy, {"mutateExisting": known})
    world.index.apply(await world.read(policy))
    progress = Progress(
        index=world.index,
        policies=world.policies,
        clock=world.clock,
        waiting=world.dispatcher.known.unended,
        filters=lambda: world.filters,
        warn=pytest.fail,
    )
    progress.begin()
    world.dispatcher.observe = lambda request, status, _: progress.observe(request, status)
    world.dispatcher.on_stored(await world.ask(policy, trigger, rule="label"))
    await world.settle()
    assert (await world.status()).state is State.COMPLETED
    assert (await world.read(trigger))["metadata"]["labels"] == {"team": "a"}
    await progress.flush()
    figures = (await world.read(policy))["status"]["mutateExisting"]
    assert (figures["triggers"], figures["patched"]) == (1, 1)


async def test_a_toy_rule_sweeps_existing_objects(world: World) -> None:
    policy = world.install(POLICY)
    names = ["x", "y", "z"]
    triggers = [world.cluster.add(make_object(name=name)) for name in names]
    sweep: dict[str, Any] = {"source": Source.POLICY_CHANGE, "sweep": True, "operation": ""}
    world.dispatcher.on_stored(
        await world.ask(policy, policy, name="sweep", rule="label", **sweep)
    )
    await world.settle()
    found = [(await world.read(item))["metadata"]["labels"] for item in triggers]
    assert found == [{"team": "a"}] * len(names)
    progress = (await world.status("sweep")).sweep
    assert progress is not None
    assert progress.done == len(names)


def test_lint_checks_toy_policies() -> None:
    found = lint_policy(with_spec(kind="ConfigMap"), scope=lambda _group, _kind: True)
    assert "no-labels" in {item.code for item in found}
    (wrong,) = lint_policy(with_spec(), scope=lambda _group, _kind: True)
    assert wrong.location == "spec.kind"


def test_explain_and_apply_support_toy_policies(tmp_path: Path) -> None:
    files = {"policy.json": POLICY, "trigger.json": make_object()}
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    policy, trigger = (str(tmp_path / name) for name in files)
    for command, said in (
        (["explain", policy], "rule label"),
        (["explain", policy, "--trigger", trigger], "+    team: a"),
        (["apply", policy, "--resource", trigger], "team: a"),
    ):
        done = CliRunner().invoke(retrofit, command)
        assert said in done.output, done.output
