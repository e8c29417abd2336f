"""The webhook's responses to writes of Hooks."""

from typing import Any

import pytest

from admission.decide import AdmissionResponse
from admission.policies import ASKED_AUTHORS, PolicyWebhook
from reconciler.serving.review import parse_review
from tests.unit.admission.conftest import Make
from tests.unit.rights import Account

DELETE = {"operation": "Delete", "kind": "ConfigMap", "name": "{{ element.name }}"}
PODS = [{"name": "pods", "kind": "Deployment"}]


def hook(namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    kind = "Hook" if namespace else "ClusterHook"
    meta = {"name": "h", "uid": "u", **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "kube-retrofit.dev/v1alpha1",
        "kind": kind,
        "metadata": meta,
        "spec": {"kubernetes": PODS, "run": {"operations": [DELETE]}, **spec},
    }


async def response_to(
    make: type[Make],
    obj: dict[str, Any],
    *,
    controller: set[str] | None = None,
    author: set[str] | None = None,
) -> AdmissionResponse:
    deps = make.deps(Account(lacks=controller or set()))
    given = Account(lacks=author or set())
    webhook = PolicyWebhook(deps, about=lambda _: given, asked=ASKED_AUTHORS["policies"])
    review = make.review("CREATE", obj, None, userInfo={"username": "ann"})
    return await webhook.review(parse_review(review), make.deadline())


async def test_a_hook_whose_rights_are_granted_is_stored(make: type[Make]) -> None:
    response = await response_to(make, hook())
    assert response.allowed, response.message


async def test_an_invalid_hook_is_refused_with_the_places_of_all_errors(make: type[Make]) -> None:
    wrong = hook(kubernetes=[{}], run={"operations": [{"operation": "Destroy"}]})
    response = await response_to(make, wrong)
    assert (response.allowed, response.code) == (False, 422)
    assert "spec.kubernetes[0].kind: is required" in response.message
    assert "spec.run.operations[0].operation: 'Destroy'" in response.message


async def test_jq_programs_are_compiled_when_a_hook_is_written(make: type[Make]) -> None:
    patch = {"operation": "JQPatch", "kind": "Pod", "name": "x", "jqFilter": ".spec |= {"}
    wrong = hook(
        kubernetes=[{"kind": "Deployment", "jqFilter": ".metadata |"}],
        run={"operations": [patch, DELETE]},
    )
    response = await response_to(make, wrong)
    assert (response.allowed, response.code) == (False, 422)
    assert "spec.kubernetes[0].jqFilter: the jq program cannot be compiled" in response.message
    assert "spec.run.operations[0].jqFilter: the jq program cannot be compiled" in response.message
    response = await response_to(make, hook(run={"jq": ".contexts[] | foo"}))
    assert (
        "spec.run.jq: the jq program cannot be compiled: foo/0 is not defined" in response.message
    )
    assert (await response_to(make, hook(run={"jq": ".contexts[]"}))).allowed


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ({"watch"}, "spec.kubernetes[0]: 'kyverno-background-controller' may not watch"),
        ({"delete"}, "spec.run.operations[0]: 'kyverno-background-controller' may not delete"),
    ],
)
async def test_a_missing_right_is_named_with_the_role_that_grants_it(
    make: type[Make], lacks: set[str], said: str
) -> None:
    response = await response_to(make, hook(), controller=lacks)
    assert (response.allowed, response.code) == (False, 403)
    assert said.partition("'")[0] in response.message
    assert said.rpartition("' ")[2] in response.message
    assert "kind: ClusterRole" in response.message


async def test_only_missing_rights_are_checked_again_while_waiting_for_a_role(
    make: type[Make],
) -> None:
    account = Account(lacks={"watch"})
    webhook = PolicyWebhook(make.deps(account, patience=1.0))
    response = await webhook.review(parse_review(make.review("CREATE", hook())), make.deadline())
    assert response.code == 403
    assert account.asked.count("watch deployments.apps in namespace shop") > 1
    assert account.asked.count("list deployments.apps in namespace shop") == 1


async def test_a_hook_with_operations_its_author_may_not_do_is_refused(make: type[Make]) -> None:
    response = await response_to(make, hook(), author={"delete"})
    assert (response.allowed, response.code) == (False, 403)
    assert "'ann' may not delete configmaps in namespace shop" in response.message


async def test_a_hook_with_a_jq_program_requires_all_rights_of_its_author(
    make: type[Make],
) -> None:
    unknown = hook(run={"jq": ".contexts[]"})
    assert (await response_to(make, unknown)).allowed
    response = await response_to(make, unknown, author={"*"})
    assert "spec.run.jq: 'ann' may not * *.* in namespace shop" in response.message


async def test_the_hook_of_an_executable_without_a_usable_configuration_is_stored(
    make: type[Make],
) -> None:
    # Its program shows it so, with the reason in the status.
    obj = {**hook(), "spec": {"executable": "pods-hook.sh"}}
    response = await response_to(make, obj)
    assert response.allowed, response.message
    response = await response_to(make, {**hook(), "spec": {"run": hook()["spec"]["run"]}})
    assert "spec: has no bindings" in response.message


async def test_no_rights_are_checked_for_a_hook_with_an_executable(make: type[Make]) -> None:
    obj = hook(executable="pods-hook.sh")
    del obj["spec"]["run"]
    assert (await response_to(make, obj, controller={"list", "watch", "delete"})).allowed


async def test_a_hook_with_lint_errors_is_refused_and_lint_warnings_are_returned(
    make: type[Make],
) -> None:
    lease = {
        "operation": "Delete",
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "name": "x",
    }
    patch = {"operation": "MergePatch", "kind": "Pod", "name": "x"}
    freed = {**patch, "mergePatch": {"metadata": {"finalizers": None}}}
    response = await response_to(make, hook(run={"operations": [lease, freed]}))
    assert (response.allowed, response.code) == (False, 422)
    assert "spec.run.operations[0]: no policy changes objects of coordination" in response.message
    assert "spec.run.operations[1]: no patch changes metadata.finalizers" in response.message
    pace = {"executionMinInterval": "5s", "executionBurst": 1}
    response = await response_to(make, hook(settings=pace))
    assert response.allowed
    assert "spec.kubernetes[0]: the hook runs at most every 5 s" in response.warnings[0]


async def test_a_hook_that_selects_namespaces_by_labels_needs_to_watch_namespaces(
    make: type[Make],
) -> None:
    chosen = {"labelSelector": {"matchLabels": {"a": "b"}}}
    obj = hook("", kubernetes=[{"kind": "Deployment", "namespace": chosen}])
    assert (await response_to(make, obj)).allowed
    response = await response_to(make, obj, controller={"watch"})
    assert "spec.kubernetes[0].namespace: " in response.message
    assert "may not watch namespaces" in response.message
