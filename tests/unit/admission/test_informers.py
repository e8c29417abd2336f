"""Watch events of policies and namespaces, applied to the caches."""

from admission.informers import NamespaceLabels, PolicyFeed
from reconciler.observe.metrics import Metrics
from reconciler.services.catalog.policy_store import PolicyStore


def test_policies_are_added_changed_and_removed_by_watch_events(make):
    metrics, index = Metrics(), PolicyStore()
    feed = PolicyFeed(index=index, metrics=metrics)

    def counted(state):
        return metrics.registry.get_sample_value("retrofit_policies", {"state": state})

    feed.on_event("ADDED", make.policy("one", uid="1"))
    feed.on_event("ADDED", make.policy("two", namespace="a", uid="2"))
    assert [item.key for item in index.policies()] == ["a/two", "one"]
    broken = make.policy("one", uid="1")
    broken["metadata"]["generation"] = 4
    broken["spec"]["rules"][0]["match"] = {}
    feed.on_event("MODIFIED", broken)
    assert [item.key for item in index.policies()] == ["a/two"]
    assert (counted("ready"), counted("invalid")) == (1, 1)
    feed.on_event("DELETED", make.policy("one", uid="1"))
    feed.on_event("DELETED", make.policy("two", namespace="a", uid="2"))
    assert (counted("ready"), counted("invalid")) == (0, 0)


def test_namespace_labels_follow_watch_events():
    labels = NamespaceLabels()
    labels.on_event("ADDED", {"metadata": {"name": "a", "labels": {"tier": "gold"}}})
    labels.on_event("ADDED", {"metadata": {"name": "b"}})
    assert labels.by_name == {"a": {"tier": "gold"}, "b": {}}
    labels.on_event("MODIFIED", {"metadata": {"name": "a"}})
    labels.on_event("DELETED", {"metadata": {"name": "b"}})
    assert labels.by_name == {"a": {}}
