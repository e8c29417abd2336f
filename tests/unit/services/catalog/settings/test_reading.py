"""The settings ConfigMap: each key is read on its own, and each refusal names a cure."""

import pytest

from reconciler.engine.match import Subject
from reconciler.errors import InvalidSetting
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.observe.settings import SettingsReport
from reconciler.services.catalog.settings import Fault, SettingsHolder, WebhookSettings
from reconciler.services.catalog.settings.webhooks import (
    parse_conditions,
    parse_selectors,
    parse_texts,
)
from tests.stored import MemoryEvents


@pytest.fixture
def holder() -> SettingsHolder:
    return SettingsHolder.of("kyverno")


def thing(namespace, kind="ConfigMap"):
    return Subject(obj={}, group="", version="v1", kind=kind, name="x", namespace=namespace)


def test_without_a_config_map_the_defaults_apply(holder):
    holder.load({})
    current = holder.current
    assert current.filters.filter(thing("kube-system"))
    assert current.filters.filter(thing("kyverno"))
    assert current.filters.groups.excludes(["system:nodes"])
    assert current.webhooks == WebhookSettings()
    assert (current.threshold, current.success_events) == (None, None)
    assert (holder.faults, holder.unused) == ((), ())


def test_a_key_replaces_only_its_own_default(holder):
    holder.load({"resourceFilters": "[Secret,*,*]", "excludeRoles": "a:b"})
    filters = holder.current.filters
    assert not filters.filter(thing("kube-system"))
    assert filters.filter(thing("a", "Secret"))
    assert filters.roles.excludes(["a:b"])
    assert filters.groups.excludes(["system:nodes"])
    holder.load({"excludeGroups": " a-* , ! a-1,!, "})
    groups = holder.current.filters.groups
    assert [groups.excludes([name]) for name in ("a-1", "a-2", "")] == [False, True, False]
    holder.load({"excludeGroups": ""})
    assert holder.current.filters.filter(thing("kube-system"))
    assert not holder.current.filters.groups.excludes(["system:nodes"])


def test_numbers_and_flags_are_parsed(holder):
    holder.load({"updateRequestThreshold": " 250\n", "generateSuccessEvents": "True"})
    assert (holder.current.threshold, holder.current.success_events) == (250, True)
    holder.load({"generateSuccessEvents": "false"})
    assert (holder.current.threshold, holder.current.success_events) == (None, False)


def test_success_event_actions_are_parsed(holder):
    holder.load({"successEventActions": " Resource Mutated ,, None"})
    assert holder.current.success_actions == {"Resource Mutated", "None"}
    assert (holder.faults, holder.unused) == ((), ())
    holder.load({"successEventActions": ""})
    assert holder.current.success_actions == frozenset()


@pytest.mark.parametrize(
    ("key", "value", "fault", "cure"),
    [
        ("resourceFilters", "Secret", "'Secret' is outside", "[kind,namespace,name]"),
        ("resourceFilters", "[,a,b]", "no kind", "[Secret,team-a,*]"),
        ("updateRequestThreshold", "many", "'many'", "such as 1000"),
        ("updateRequestThreshold", "0", "'0'", "a positive whole number"),
        ("updateRequestThreshold", "-5", "'-5'", "a positive whole number"),
        ("generateSuccessEvents", "yes", "'yes'", "true nor false"),
        ("successEventActions", "Resource Passed,Mutated", "'Mutated'", "Resource Mutated, "),
        ("webhooks", "{", "not JSON", "namespaceSelector"),
        ("webhooks", "[{}, {}]", "lists 2 entries", "keep one"),
        ("webhooks", '{"timeout": 5}', "'timeout'", "objectSelector"),
        ("webhookLabels", '{"a": 1}', "not an object of strings", '"value"'),
        ("webhookAnnotations", "[]", "not an object of strings", '"value"'),
        ("webhookAnnotations", "", "empty", "remove the key"),
        ("webhookLabels", "  ", "empty", "remove the key"),
        ("webhooks", "", "empty", "remove the key"),
        ("webhooks", '{"objectSelector": {"matchLabels": {"a b": "c"}}}', "'a b'", "letters"),
        ("matchConditions", "\n", "empty", "remove the key"),
        ("matchConditions", "{}", "is not a list", '"expression"'),
    ],
)
def test_an_invalid_value_keeps_the_old_one_and_affects_no_other_key(
    holder, key, value, fault, cure
):
    good = {
        "resourceFilters": "[Secret,*,*]",
        "updateRequestThreshold": "250",
        "generateSuccessEvents": "true",
        "successEventActions": "None",
        "webhooks": '{"objectSelector": {"matchLabels": {"a": "b"}}}',
        "webhookLabels": '{"a": "b"}',
        "webhookAnnotations": '{"a": "b"}',
        "matchConditions": '[{"name": "a", "expression": "true"}]',
    }
    holder.load(good)
    before = holder.current
    holder.load({**good, key: value, "excludeUsernames": "robot-*"})
    (found,) = holder.faults
    assert found.key == key
    assert fault in found.message
    assert cure in found.message
    assert holder.current.filters.usernames.excludes(["robot-1"])
    assert holder.current.webhooks == before.webhooks
    assert holder.current.threshold == 250
    assert holder.current.success_events
    assert holder.current.success_actions == {"None"}
    assert holder.current.filters.filter(thing("a", "Secret"))
    holder.load(good)
    assert holder.faults == ()


def test_keys_without_effect_are_reported(holder):
    holder.load({"maxContextSize": "2Mi", "excludeGroup": "x", "excludeGroups": "y"})
    assert holder.unused == ("excludeGroup", "maxContextSize")


class TestSelectors:
    def test_an_object_and_a_list_of_one_object_are_equivalent(self):
        text = '{"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}'
        found = parse_selectors(text)
        assert found.namespaces == {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
        assert found.objects == {}
        assert parse_selectors(f"[{text}]") == found

    @pytest.mark.parametrize(
        "text", ["null", "[]", "{}", '{"objectSelector": {"matchLabels": {}}}']
    )
    def test_empty_selectors_are_omitted_as_by_the_api_server(self, text):
        assert parse_selectors(text) == WebhookSettings().selectors

    @pytest.mark.parametrize(
        "selector",
        [
            "5",
            '{"matchLabels": {"a": 1}}',
            '{"matchExpressions": {}}',
            '{"matchExpressions": [{"operator": "Exists"}]}',
            '{"matchExpressions": [{"key": "a", "operator": "Is"}]}',
            '{"matchExpressions": [{"key": "a", "operator": "In"}]}',
            '{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}',
            '{"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}',
            '{"matchExpression": []}',
        ],
    )
    def test_a_malformed_selector_is_refused_with_its_location(self, selector):
        with pytest.raises(InvalidSetting, match="objectSelector"):
            parse_selectors(f'{{"objectSelector": {selector}}}')


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "[5]",
        '[{"name": "a"}]',
        '[{"name": "", "expression": "true"}]',
        '[{"name": "a", "expression": "true"}, {"name": "a", "expression": "false"}]',
        '[{"name": "a", "expression": "true", "more": 1}]',
    ],
)
def test_malformed_match_conditions_are_refused(text):
    with pytest.raises(InvalidSetting):
        parse_conditions(text)


def test_very_deep_nesting_is_a_fault_and_not_a_crash():
    with pytest.raises(InvalidSetting, match="not JSON"):
        parse_texts("[" * 200_000)


def test_a_fault_is_reported_once_and_its_metric_is_updated(holder):
    metrics, events = Metrics(), MemoryEvents()
    report = SettingsReport(name="kyverno", log=logger("test"), metrics=metrics, events=events)
    holder.changed.subscribe(report)

    def refused(key):
        return metrics.registry.get_sample_value("retrofit_setting_refused", {"key": key})

    holder.load({"generateSuccessEvents": "yes"})
    holder.load({"generateSuccessEvents": "yes", "excludeGroups": ""})
    assert refused("generateSuccessEvents") == 1
    (event,) = events.emitted
    assert (event.regarding["name"], event.reason) == ("kyverno", "SettingRefused")
    assert event.note.startswith("data.generateSuccessEvents: 'yes' is neither true nor false")
    holder.refuse_webhooks(WebhookSettings(), [Fault(key="matchConditions", message="no")])
    assert refused("matchConditions") == 1
    report.again(holder)
    assert len(events.emitted) == 4
    holder.load({})
    assert (refused("generateSuccessEvents"), refused("matchConditions")) == (0, 0)
