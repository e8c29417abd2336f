"""The plan of a run, and the step at which a new process continues."""

from typing import Any

from reconciler.hooks.operations import read_operations
from reconciler.hooks.plan import Plan, Step, needs_plan, parse_plan, planned, render_plan

MERGE = {"operation": "MergePatch", "kind": "Pod", "name": "a", "mergePatch": {"x": 1}}
JSON = {
    "operation": "JSONPatch",
    "kind": "Pod",
    "name": "a",
    "jsonPatch": [{"op": "add", "path": "/x/-", "value": 1}],
}


def create(**meta: Any) -> dict[str, Any]:
    return {"operation": "Create", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": meta}}


def needs(*documents: dict[str, Any]) -> bool:
    return needs_plan(read_operations(documents))


def test_one_idempotent_operation_needs_no_plan() -> None:
    assert not needs()
    assert not needs(MERGE)
    assert needs(MERGE, MERGE)
    assert needs(JSON)
    assert needs(create(name="a"))


def test_a_rendered_plan_is_parsed_unchanged() -> None:
    documents = [MERGE, create(name="a")]
    plan = planned(documents, read_operations(documents), ["hook-1", "hook-2"])
    plan = plan.with_step(
        0, Step(document=MERGE, outcome="Forbidden", message="no", uncertain=True)
    )
    assert parse_plan(render_plan(plan)) == plan


def test_the_plan_of_an_earlier_version_is_parsed() -> None:
    stored = {"covers": ["hook-1"], "operations": [{"operation": MERGE, "outcome": "Patched"}, {}]}
    steps = (Step(document=MERGE, outcome="Patched"), Step(document={}))
    assert parse_plan(stored) == Plan(steps=steps, covers=("hook-1",))


def test_a_generated_name_is_the_same_each_time() -> None:
    documents = [create(generateName="pod-"), create(generateName="pod-")]
    operations = read_operations(documents)
    first = planned(documents, operations, ["hook-1"])
    names = [step.document["object"]["metadata"]["name"] for step in first.steps]
    assert len(set(names)) == 2
    assert all(name.startswith("pod-") for name in names)
    assert planned(documents, operations, ["hook-1"]) == first
    assert planned(documents, operations, ["hook-2"]) != first


def test_a_create_step_with_a_generated_name_is_uncertain() -> None:
    def only(**meta: Any) -> Step:
        documents = [create(**meta)]
        (step,) = planned(documents, read_operations(documents), ["hook-1"]).steps
        return step

    made = only(generateName="pod-")
    assert made.uncertain
    assert not only(name="pod").uncertain
    other = only(generateName="pod-", labels={"a": "b"})
    assert made.document["object"]["metadata"]["name"] not in str(other.document)


def test_the_first_open_step_is_uncertain_in_a_new_process() -> None:
    steps = tuple(Step(document=MERGE, outcome=outcome) for outcome in ("Patched", "", ""))
    resumed = Plan(steps=steps, covers=("hook-1",)).resumed()
    assert [step.uncertain for step in resumed.steps] == [False, True, False]


def shares(*documents: dict[str, Any]) -> list[list[int]]:
    steps = tuple(Step(document=document) for document in documents)
    return Plan(steps=steps, covers=("hook-1",)).shares()


def test_steps_that_can_be_repeated_in_order_are_stored_together() -> None:
    creates = [create(name=f"pod-{number}") for number in range(70)]
    assert [len(share) for share in shares(*creates)] == [32, 32, 6]
    assert shares(create(name="b"), MERGE, create(name="c")) == [[0, 1, 2]]
    # Repeating the creation after the deletion would bring the object back.
    gone = {"operation": "Delete", "kind": "pods", "name": "b"}
    assert shares(create(name="b"), gone, create(name="c")) == [[0], [1, 2]]
    assert shares(MERGE, JSON, create(name="c"), create(name="d")) == [[0], [1], [2, 3]]
    # A Hook need not name its own namespace.
    assert shares({**gone, "namespace": "shop"}, create(name="b")) == [[0], [1]]
    assert shares(gone, create(name="b", namespace="shop")) == [[0], [1]]
    elsewhere = [create(name="b", namespace=name) for name in ("shop", "till")]
    assert shares(*elsewhere) == [[0, 1]]
    text = {"operation": "Create", "object": "kind: Pod"}
    assert shares(MERGE, text, create(name="c")) == [[0], [1], [2]]


def test_all_steps_stored_together_are_uncertain_in_a_new_process() -> None:
    documents = [create(name="a"), create(name="b"), JSON, create(name="c")]
    steps = tuple(Step(document=document) for document in documents)
    resumed = Plan(steps=steps, covers=("hook-1",)).resumed()
    assert [step.uncertain for step in resumed.steps] == [True, True, False, False]


def test_a_new_process_repeats_failed_steps() -> None:
    steps = (
        Step(document=MERGE, outcome="Invalid", message="no"),
        Step(document=MERGE, outcome="Patched"),
    )
    for more in ((), (Step(document=MERGE),)):
        resumed = Plan(steps=(*steps, *more), covers=("hook-1",)).resumed()
        assert [step.outcome for step in resumed.steps[:2]] == ["", "Patched"]
        assert [step.uncertain for step in resumed.steps] == [False, False, *(True for _ in more)]


def test_another_attempt_repeats_only_failed_steps() -> None:
    steps = (
        Step(document=MERGE, outcome="Patched"),
        Step(document=MERGE, outcome="Forbidden", message="no"),
    )
    again = Plan(steps=steps, covers=("hook-1",)).reopened()
    assert [step.outcome for step in again.steps] == ["Patched", ""]
