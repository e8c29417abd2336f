"""What is said to the author of a Hook when it is written."""

from typing import Any

import pytest

from admission.decide import AdmissionResponse
from admission.policies import ASKED_AUTHORS, PolicyWebhook
from admission.review import parse_review
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


async def answer_to(
    make: type[Make],
    obj: dict[str, Any],
    *,
    controller: set[str] | None = None,
    author: set[str] | None = None,
) -> AdmissionResponse:
    means = make.means(Account(lacks=controller or set()))
    given = Account(lacks=author or set())
    webhook = PolicyWebhook(means, about=lambda _: given, asked=ASKED_AUTHORS["policies"])
    review = make.review("CREATE", obj, None, userInfo={"username": "ann"})
    return await webhook.review(parse_review(review), make.deadline())


async def test_one_that_may_do_what_it_asks_for_is_stored(make: type[Make]) -> None:
    answer = await answer_to(make, hook())
    assert answer.allowed, answer.message


async def test_one_that_cannot_be_read_is_refused_with_all_places(make: type[Make]) -> None:
    wrong = hook(kubernetes=[{}], run={"operations": [{"operation": "Destroy"}]})
    answer = await answer_to(make, wrong)
    assert (answer.allowed, answer.code) == (False, 422)
    assert "spec.kubernetes[0].kind: is required" in answer.message
    assert "spec.run.operations[0].operation: 'Destroy'" in answer.message


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
    answer = await answer_to(make, hook(), controller=lacks)
    assert (answer.allowed, answer.code) == (False, 403)
    assert said.partition("'")[0] in answer.message
    assert said.rpartition("' ")[2] in answer.message
    assert "kind: ClusterRole" in answer.message


async def test_a_tenant_does_nothing_by_a_hook_that_they_may_not_do(make: type[Make]) -> None:
    answer = await answer_to(make, hook(), author={"delete"})
    assert (answer.allowed, answer.code) == (False, 403)
    assert "'ann' may not delete configmaps in namespace shop" in answer.message


async def test_operations_that_only_a_run_tells_need_everything_of_their_author(
    make: type[Make],
) -> None:
    unknown = hook(run={"jq": ".contexts[]"})
    assert (await answer_to(make, unknown)).allowed
    answer = await answer_to(make, unknown, author={"*"})
    assert "spec.run.jq: 'ann' may not * *.* in namespace shop" in answer.message


async def test_of_an_executable_no_right_is_asked_for(make: type[Make]) -> None:
    obj = hook(executable="pods-hook.sh")
    del obj["spec"]["run"]
    assert (await answer_to(make, obj, controller={"list", "watch", "delete"})).allowed
