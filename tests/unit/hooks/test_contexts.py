from typing import Any

from reconciler.hooks import contexts
from reconciler.hooks.bindings import KubernetesBinding
from reconciler.hooks.config import load_config
from reconciler.hooks.contexts import Context, ContextType
from reconciler.hooks.monitor import Change, Monitor, ObservedObject, observe
from reconciler.hooks.values import render_json


def binding(extra: str = "") -> KubernetesBinding:
    (found,) = load_config(
        f"configVersion: v1\nkubernetes:\n- {{name: m, kind: Pod{extra}}}\n"
    ).kubernetes
    return found


def pod(name: str, namespace: str = "a", **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def seen(
    monitor: Monitor, obj: dict[str, Any], results: list[Any] | None = None
) -> ObservedObject:
    return observe(monitor.binding, obj, results)


def said(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.event, change.observed.name) for change in changes]


def test_a_new_list_reports_the_changes_since_the_last_one() -> None:
    monitor = Monitor(binding())
    monitor.replace(seen(monitor, pod(name)) for name in ("a", "b", "c"))
    changes = monitor.replace(seen(monitor, obj) for obj in (pod("d"), pod("b", x=1), pod("c")))
    assert said(changes) == [("Added", "d"), ("Modified", "b"), ("Deleted", "a")]


def test_a_change_outside_the_filter_updates_the_snapshot_without_an_event() -> None:
    monitor = Monitor(binding(", jqFilter: .x"))
    monitor.take("Added", seen(monitor, pod("a", x=1, y=1), [1]))
    assert monitor.take("Modified", seen(monitor, pod("a", x=1, y=2), [1])) is None
    assert monitor.snapshot() == [{"object": pod("a", x=1, y=2), "filterResult": 1}]
    changed = monitor.take("Added", seen(monitor, pod("a", x=2), [2]))
    assert changed is not None
    assert changed.event == "Modified"


def test_the_deletion_of_an_unknown_object_is_reported() -> None:
    monitor = Monitor(binding())
    change = monitor.take("Deleted", seen(monitor, pod("a")))
    assert change is not None
    assert change.event == "Deleted"


def test_snapshots_are_sorted_and_contain_only_filter_results_if_set() -> None:
    monitor = Monitor(binding(", jqFilter: .x, keepFullObjectsInMemory: false"))
    for name, namespace in (("b", "a"), ("a", "b"), ("a", "a")):
        monitor.take("Added", seen(monitor, pod(name, namespace), [f"{namespace}/{name}"]))
    assert monitor.snapshot() == [
        {"filterResult": "a/a"},
        {"filterResult": "a/b"},
        {"filterResult": "b/a"},
    ]


def test_all_contexts_of_a_run_share_one_snapshot_of_each_binding() -> None:
    asked: list[str] = []

    def snapshot(name: str) -> list[dict[str, Any]]:
        asked.append(name)
        return [{"filterResult": len(asked)}]

    event = Context(
        type=ContextType.EVENT,
        binding="m",
        event="Deleted",
        shown={"filterResult": 7},
        snapshots=("m", "n"),
    )
    first = Context(type=ContextType.SYNCHRONIZATION, binding="m", snapshots=("m",))
    rendered = contexts.render([contexts.STARTUP, first, event], snapshot)
    assert asked == ["m", "n"]
    assert rendered == [
        {"binding": "onStartup"},
        {
            "binding": "m",
            "type": "Synchronization",
            "snapshots": {"m": [{"filterResult": 1}]},
            "objects": [{"filterResult": 1}],
        },
        {
            "binding": "m",
            "type": "Event",
            "watchEvent": "Deleted",
            "filterResult": 7,
            "snapshots": {"m": [{"filterResult": 1}], "n": [{"filterResult": 2}]},
        },
    ]


def test_only_adjacent_contexts_of_a_group_are_merged() -> None:
    def of(name: str, group: str = "") -> Context:
        return Context(type=ContextType.SCHEDULE, binding=name, group=group)

    given = [of("a", "g"), of("b", "g"), of("c"), of("d", "g"), of("e", "h"), of("f"), of("f")]
    shown = contexts.render(given, lambda _: [])
    assert [context["binding"] for context in shown] == ["b", "c", "d", "e", "f", "f"]
    assert [context.get("groupName") for context in shown[:2]] == ["g", None]


def test_the_synchronization_run_can_be_disabled() -> None:
    assert contexts.of_synchronization(binding(", executeHookOnSynchronization: false")) is None


def test_the_document_is_json_in_the_format_of_the_original() -> None:
    context = Context(
        type=ContextType.EVENT, binding="m", event="Added", shown={"object": {"b": 1.0, "a": "<"}}
    )
    assert render_json(contexts.render([context], lambda _: [])) == (
        '[{"binding":"m","object":{"a":"\\u003c","b":1},"type":"Event","watchEvent":"Added"}]'
    )


REVIEW = {"kind": "AdmissionReview", "request": {"uid": "1"}}


def asked(field):
    text = f"""
      configVersion: v1
      kubernetes: [{{name: pods, kind: Pod, group: all}}]
      {field}
    """
    return load_config(text)


def test_a_review_is_passed_unchanged_and_never_as_a_group():
    config = asked(
        "kubernetesValidating: [{name: a.example.com, group: all, rules: [{apiGroups: [''],"
        " apiVersions: [v1], resources: [pods], operations: [CREATE]}]}]"
    )
    context = contexts.of_review(config.validating[0], REVIEW, mutating=False)
    assert contexts.render([context], lambda _: [{"object": 1}]) == [
        {
            "binding": "a.example.com",
            "type": "Validating",
            "snapshots": {"pods": [{"object": 1}]},
            "review": REVIEW,
        }
    ]
    changing = contexts.of_review(config.validating[0], REVIEW, mutating=True)
    assert contexts.render([changing], lambda _: [])[0]["type"] == "Mutating"


def test_a_conversion_context_names_its_versions():
    config = asked(
        "kubernetesCustomResourceConversion: [{name: up, crdName: crontabs.example.com,"
        " conversions: [{fromVersion: v1, toVersion: v2}]}]"
    )
    context = contexts.of_conversion(config.conversions[0], ("v1", "v2"), REVIEW)
    assert contexts.render([context], lambda _: []) == [
        {
            "binding": "up",
            "type": "Conversion",
            "fromVersion": "v1",
            "toVersion": "v2",
            "review": REVIEW,
        }
    ]
