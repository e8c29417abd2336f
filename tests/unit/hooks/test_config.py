from typing import Any

import pytest

from reconciler.errors import InvalidPolicy
from reconciler.hooks.bindings import EVENTS
from reconciler.hooks.config import load_config
from reconciler.requests.pace import Pace

MONITOR = "configVersion: v1\nkubernetes:\n- kind: Pod\n"
NAME_AND_FIELD = """\
  nameSelector: {matchNames: [a]}
  fieldSelector: {matchExpressions: [{field: metadata.name, operator: '!=', value: b}]}
"""


def places(text: str) -> list[str]:
    with pytest.raises(InvalidPolicy) as caught:
        load_config(text)
    return [caught.value.location, *(error.location for error in caught.value.others)]


def test_every_error_is_reported_with_its_location() -> None:
    text = """
configVersion: v1
onStartup: soon
colour: red
schedule:
- crontab: '*/0 * * * *'
  includeSnapshotsFrom: [nothing]
kubernetes:
- kind: Pod
  nameSelector: {matchNames: [5]}
  labelSelector: {matchLabels: {app: '*'}}
  jqFilter: input
- nameSelector: {}
  fieldSelector: {matchExpressions: [{field: a, operator: '='}]}
"""
    assert set(places(text)) == {
        "onStartup",
        "colour",
        "schedule[0].crontab",
        "schedule[0].includeSnapshotsFrom[0]",
        "kubernetes[0].nameSelector.matchNames[0]",
        "kubernetes[0].labelSelector.matchLabels.app",
        "kubernetes[0].jqFilter",
        "kubernetes[1].kind",
        "kubernetes[1].nameSelector.matchNames",
        "kubernetes[1].fieldSelector.matchExpressions[0].value",
    }


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "configVersion"),
        ("onStartup: 1", "configVersion"),
        ("configVersion: v1", "configVersion"),
        ("configVersion: 1\nonStartup: 1", "configVersion"),
        ("configVersion: v2\nonStartup: 1", "configVersion"),
        ("[1]", "configuration"),
        ("{", "configuration"),
        ("\x00\x01", "configuration"),
        ("configVersion: v1\nschedule: []", "schedule"),
        ("configVersion: v1\nschedule: null", "schedule"),
        ("configVersion: v1\nonStartup: true", "onStartup"),
        (f"{MONITOR}  apiVersion: a/b/c", "kubernetes[0].apiVersion"),
        (f"{MONITOR}  labelSelector: {{}}", "kubernetes[0].labelSelector"),
        (f"{MONITOR}  namespace: {{}}", "kubernetes[0].namespace"),
        (
            f"{MONITOR}  labelSelector: {{matchExpressions: [{{key: a, operator: In}}]}}",
            "kubernetes[0].labelSelector.matchExpressions[0].values",
        ),
        (
            f"{MONITOR}  labelSelector: {{matchExpressions: [{{key: '', operator: Exists}}]}}",
            "kubernetes[0].labelSelector.matchExpressions[0].key",
        ),
        (
            MONITOR + NAME_AND_FIELD,
            "kubernetes[0].fieldSelector",
        ),
        (
            f"{MONITOR}- kind: Node\n  includeSnapshotsFrom: [kubernetes]",
            "kubernetes[1].includeSnapshotsFrom[0]",
        ),
        (f"{MONITOR}settings: {{executionMinInterval: 3s}}", "settings.executionBurst"),
        (
            f"{MONITOR}settings: {{executionMinInterval: soon, executionBurst: 1}}",
            "settings.executionMinInterval",
        ),
    ],
)
def test_an_invalid_configuration_is_refused_with_its_location(text: str, place: str) -> None:
    assert places(text) == [place]


def test_defaults_apply_unless_a_binding_sets_other_values() -> None:
    config = load_config(
        f"{MONITOR}  executeHookOnEvent: []\n  watchEvent: [Added]\n"
        "- {kind: Node, name: nodes, watchEvent: [Deleted], waitForSynchronization: false}\n"
        "- {kind: Node, name: slow, waitForSynchronization: false, queue: slow}\n"
        "settings: {executionMinInterval: 1m30s, executionBurst: 4}\n"
    )
    pods, nodes, slow = config.kubernetes
    assert (pods.name, pods.queue, pods.events) == ("kubernetes", "main", ())
    assert (nodes.events, nodes.wait_for_synchronization) == (("Deleted",), True)
    assert (slow.events, slow.wait_for_synchronization) == (EVENTS, False)
    assert config.pace == Pace(interval=90.0, burst=4)


def test_booleans_are_parsed_as_in_the_original() -> None:
    (binding,) = load_config(
        f"{MONITOR}  keepFullObjectsInMemory: off\n  allowFailure: yes\n"
    ).kubernetes
    assert (binding.keep_full_objects, binding.allow_failure) == (False, True)


def test_monitors_of_a_group_are_added_after_the_named_snapshots() -> None:
    config = load_config(
        "configVersion: v1\n"
        "kubernetes:\n"
        "- {kind: Pod, name: a, group: g}\n"
        "- {kind: Pod, name: b, group: g, includeSnapshotsFrom: [c]}\n"
        "- {kind: Pod, name: c}\n"
        "schedule: [{crontab: '@hourly', group: g}, {crontab: '@hourly', group: other}]\n"
    )
    assert [item.snapshots for item in config.kubernetes] == [("a", "b"), ("c", "a", "b"), ()]
    assert [item.snapshots for item in config.schedules] == [("a", "b"), ()]


def test_a_selection_accepts_only_matching_objects() -> None:
    (binding,) = load_config(
        f"{MONITOR}  nameSelector: {{matchNames: [a, b]}}\n"
        "  labelSelector: {matchLabels: {app: web}, matchExpressions:"
        " [{key: old, operator: DoesNotExist}]}\n"
        "  fieldSelector: {matchExpressions:"
        " [{field: spec.nodeName, operator: '!=', value: ''}]}\n"
        "  namespace: {nameSelector: {matchNames: [shop]},"
        " labelSelector: {matchLabels: {team: x}}}\n"
    ).kubernetes
    pod: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"nodeName": "n"},
    }

    def takes(team: str = "x", **meta: object) -> bool:
        changed = {**pod, "metadata": {**pod["metadata"], **meta}}
        return binding.selection.accepts(changed, {"team": team})

    assert takes()
    assert not takes(name="c")
    assert not takes(namespace="other")
    assert not takes(labels={"app": "web", "old": ""})
    assert not takes(team="y")
    assert not binding.selection.accepts({**pod, "spec": {}}, {"team": "x"})
    assert binding.selection.labels is not None
    assert binding.selection.labels.server == "app=web,!old"
    assert [test.server for test in binding.selection.fields or ()] == ["spec.nodeName!="]


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("operations: ['*', CREATE]", "rules[0].operations"),
        ("operations: [PATCH]", "rules[0].operations[0]"),
        ("resources: ['']", "rules[0].resources"),
        ("resources: ['*', pods]", "rules[0].resources"),
        ("resources: ['*/*', pods]", "rules[0].resources"),
        ("resources: [pods/*, pods/status]", "rules[0].resources"),
        ("resources: ['*/scale', pods/scale]", "rules[0].resources"),
        ("scope: All", "rules[0].scope"),
    ],
)
def test_a_validating_rule_that_the_api_server_would_reject_is_refused(
    rule: str, place: str
) -> None:
    whole = {
        "operations": "[CREATE]",
        "apiGroups": "['']",
        "apiVersions": "[v1]",
        "resources": "[pods]",
    }
    name, _, value = rule.partition(": ")
    fields = ", ".join(f"{key}: {text}" for key, text in {**whole, name: value}.items())
    text = (
        "configVersion: v1\nkubernetesValidating:\n"
        f"- {{name: a.example.com, rules: [{{{fields}}}]}}\n"
    )
    assert places(text) == [f"kubernetesValidating[0].{place}"]


@pytest.mark.parametrize(
    "resources",
    ["'*/*'", "'*', pods/status", "pods, '*'", "pods/status, pods/*", "pods/*, '*/scale', pods"],
)
def test_a_wildcard_is_accepted_beside_resources_that_it_does_not_cover(resources: str) -> None:
    (binding,) = load_config(
        "configVersion: v1\nkubernetesValidating:\n- name: a.example.com\n  rules:\n  - "
        f"{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [{resources}]}}"
    ).validating
    assert len(binding.rules) == 1
